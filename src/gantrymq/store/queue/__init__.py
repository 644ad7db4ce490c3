"""Consume queues: their files, their units, and how records are dispatched to them."""
