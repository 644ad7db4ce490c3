"""Planning a read on the driver: what is there, from where to where, cut into partitions."""
