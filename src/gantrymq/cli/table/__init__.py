"""The commands of ``gantrymq table``: topics as tables."""
