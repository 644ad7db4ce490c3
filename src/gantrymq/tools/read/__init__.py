"""Reads the log, the queues and the index of a store that may be damaged, also from a failing disk."""
