"""Consume queues: their files, their units, and the dispatch of records to them."""
