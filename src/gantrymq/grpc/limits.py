"""The limits and periods of the proxy, with RocketMQ's defaults (the key of ProxyConfig behind each).

Source: ProxyConfig.
"""

MAX_INBOUND_BYTES = 32 << 20  # of a request; RocketMQ's is 130 MiB (grpcMaxInboundMessageSize)
MAX_USER_PROPERTY_BYTES = 16 << 10  # maxUserPropertySize
MAX_USER_PROPERTIES = 128  # userPropertyMaxNum
MAX_MESSAGE_GROUP_BYTES = 64  # maxMessageGroupSize
MAX_DELAY_MS = 24 * 3600 * 1000  # maxDelayTimeMills
MAX_TRANSACTION_RECOVERY_S = 3600  # maxTransactionRecoverySecond

DEFAULT_INVISIBLE_MS = 60_000  # defaultInvisibleTimeMills
MIN_RECEIVE_INVISIBLE_MS = 10_000  # minInvisibleTimeMillsForRecv
MAX_INVISIBLE_MS = 12 * 3600 * 1000  # maxInvisibleTimeMills
NACK_INVISIBLE_MS = 1_000  # of messages that could not be delivered (invisibleTimeMillisWhenClear)

MIN_POLLING_MS = 5_000  # grpcClientConsumerMinLongPollingTimeoutMillis
MAX_POLLING_MS = 20_000  # grpcClientConsumerMaxLongPollingTimeoutMillis
RECEIVE_BATCH_SIZE = 32  # grpcClientConsumerLongPollingBatchSize
MAX_LITE_TOPIC_BYTES = 64  # maxLiteTopicSize
LITE_SUBSCRIPTION_QUOTA = 2_000  # liteSubClientQuota of a group

PRODUCER_MAX_ATTEMPTS = 3  # grpcClientProducerMaxAttempts
PRODUCER_BACKOFF_INITIAL_MS = 10  # grpcClientProducerBackoffInitialMillis
PRODUCER_BACKOFF_MAX_MS = 1_000  # grpcClientProducerBackoffMaxMillis
PRODUCER_BACKOFF_MULTIPLIER = 2  # grpcClientProducerBackoffMultiplier

TRANSACTION_DATA_EXPIRE_MS = 30_000  # transactionDataExpireMillis
MAX_TRANSACTIONS_OF_ID = 15  # transactionDataMaxNum

RENEW_PERIOD_MS = 5_000  # renewSchedulePeriodMillis
RENEW_AHEAD_MS = 10_000  # renewAheadTimeMillis
RENEW_MAX_MS = 3 * 3600 * 1000  # renewMaxTimeMillis
MAX_RENEW_RETRIES = 3  # maxRenewRetryTimes

RELAY_TIMEOUT_MS = 5_000  # grpcProxyRelayRequestTimeoutInSeconds
REQUEST_TIMEOUT_MS = 3_000
CLIENT_EXPIRED_MS = 120_000  # channelExpiredTimeout

# Not RocketMQ's: what one proxy keeps.
MAX_CLIENTS = 100_000
MAX_SETTINGS_BYTES = 256 << 10  # of one client
MAX_ALL_SETTINGS_BYTES = 64 << 20
MAX_QUEUED_COMMANDS = 64  # commands that wait for one client to read its telemetry stream
MAX_RENEWED_MESSAGES = 4_096  # of one client; further messages are not renewed
MAX_ENTRIES = 1_024  # of one acknowledgement; RocketMQ's proxy has no limit
SETTINGS_WAIT_S = 1.0  # a receive waits this long for the settings of its client
