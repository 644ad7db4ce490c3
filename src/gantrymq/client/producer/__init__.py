"""Producers: a message from its validation to its acknowledgement, transactions, and requests with a reply."""
