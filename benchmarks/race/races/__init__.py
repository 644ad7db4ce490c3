"""The races, one module for each kind of work."""
