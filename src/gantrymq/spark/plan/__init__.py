"""Planning a read on the driver: the queues and their offsets, the range to read, and its partitions."""
