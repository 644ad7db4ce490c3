"""Transactional messages: half messages, decisions on them, and the check of those without a decision."""
