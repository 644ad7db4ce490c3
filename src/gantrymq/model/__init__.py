"""The nouns of RocketMQ without any I/O: messages, hosts, flag bits and statuses."""
