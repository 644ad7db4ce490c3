"""Settings: RocketMQ's keys and defaults as frozen dataclasses, and the text of a ``broker.conf``."""
