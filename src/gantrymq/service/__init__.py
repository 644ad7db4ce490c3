"""RocketMQ's service threads: each service has a bounded step and a drain, and a runner that sleeps between steps."""
