"""The typed header of each request and answer, one file a family; the names are those of RocketMQ's classes."""
