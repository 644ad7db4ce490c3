"""The request processors, one file for each kind."""
