"""The typed bodies of requests and answers, one file a family; the names are those of RocketMQ's classes."""
