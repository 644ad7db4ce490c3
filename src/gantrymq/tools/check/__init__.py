"""The checks of verify, one for each kind of file."""
