"""Membership in a consumer group: heartbeats, the share of the queues, committed offsets."""
