"""The limits of one server that are no settings. Those with keys of RocketMQ are in config/grpc_settings.py."""

LITE_SUBSCRIPTION_QUOTA = 2_000  # liteSubClientQuota of a group
MAX_LITE_TOPIC_BYTES = 64
REQUEST_TIMEOUT_MS = 3_000  # of a request to a broker

# What one server keeps. RocketMQ's proxy has no such limits.
MAX_CLIENTS = 100_000
MAX_SETTINGS_BYTES = 256 << 10  # of one client
MAX_ALL_SETTINGS_BYTES = 64 << 20
MAX_QUEUED_COMMANDS = 64  # commands that wait for one client to read its telemetry stream
MAX_RENEWED_MESSAGES = 4_096  # of one client; further messages are not renewed
MAX_ENTRIES = 1_024  # of one acknowledgement; RocketMQ's proxy has no limit
SETTINGS_WAIT_S = 1.0  # a receive waits this long for the settings of its client
