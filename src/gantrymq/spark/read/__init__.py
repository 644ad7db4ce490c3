"""Reading partitions, mostly on executors: a log, a live cluster, a batch, a stream."""
