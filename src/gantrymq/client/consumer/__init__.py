"""Consumers of a group: push and lite-pull, and their common parts."""
