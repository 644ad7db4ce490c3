"""The broker's metrics, under RocketMQ's names."""
