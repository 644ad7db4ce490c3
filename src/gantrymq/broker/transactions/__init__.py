"""Transactional messages: half messages, their ends, and the check of those that have none."""
