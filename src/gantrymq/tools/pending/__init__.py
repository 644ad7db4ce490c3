"""Pending messages of a store: delayed, timer and half messages, and popped messages without an acknowledgement."""
