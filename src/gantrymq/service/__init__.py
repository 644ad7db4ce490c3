"""RocketMQ's service threads: each has a bounded step and a drain, and a runner that sleeps between steps."""
