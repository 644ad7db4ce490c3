"""The broker: topics, messages and consumer groups over RocketMQ's remoting protocol."""
