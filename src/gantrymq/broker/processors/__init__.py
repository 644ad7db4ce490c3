"""What answers requests, one file for each kind."""
