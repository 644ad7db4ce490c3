"""The checks of verify, one for each kind of file, and the findings that they report."""
