"""The bodies of messages as columns of a table."""
