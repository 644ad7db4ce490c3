"""Reading partitions, mostly on executors: from a log or a live cluster, for a batch or a stream."""
