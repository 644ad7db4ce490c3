"""The typed bodies of requests and answers, one file for each family, under the names of RocketMQ's classes."""
