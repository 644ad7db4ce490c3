"""The comparison of queues with the log: what a store had, and what the result of a tool does not have."""
