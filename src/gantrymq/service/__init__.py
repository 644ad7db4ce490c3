"""RocketMQ's service threads, all of one small shape: a bounded step, a drain, and a runner that alone sleeps."""
