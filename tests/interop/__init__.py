"""Tests against the real RocketMQ."""
