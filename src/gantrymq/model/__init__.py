"""RocketMQ's messages, hosts, flag bits and statuses, without I/O."""
