"""Reads of the store for requests: messages by offset, filters on records, whether a queue is still in memory."""
