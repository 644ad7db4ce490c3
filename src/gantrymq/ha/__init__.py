"""Replication between a master and its slaves: RocketMQ's frames, and the server of a master."""
