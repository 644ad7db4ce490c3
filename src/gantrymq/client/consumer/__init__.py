"""Consumers that belong to a group: push and lite-pull, and what they share."""
