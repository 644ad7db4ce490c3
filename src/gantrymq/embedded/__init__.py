"""Name server and broker in one process: what ``gantrymq serve`` runs, and what tests embed."""
