"""The name server: it tells clients which brokers have a topic."""
