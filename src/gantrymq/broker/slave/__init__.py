"""The role of a slave: it finds its master, copies the log, and follows the master's tables."""
