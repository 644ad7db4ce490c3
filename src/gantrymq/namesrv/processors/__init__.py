"""The request processors of a name server, by subject."""
