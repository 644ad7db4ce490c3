"""Every metric of the broker: name, kind, unit, labels, buckets and meaning.

The names, units and labels are RocketMQ's, so that its dashboards work. What RocketMQ does not have begins with
``gantrymq_``. ``scripts/metrics_page.py`` makes the tables of docs/metrics.md from it.

Source: BrokerMetricsConstant, BrokerMetricsManager; PopMetricsConstant; RemotingMetricsConstant;
DefaultStoreMetricsConstant; and their managers.
"""

from __future__ import annotations

from gantrymq.metrics.instruments import Kind, Metric

_KB, _MB = 1 << 10, 1 << 20
_MINUTE_S, _HOUR_S = 60, 3600
_MS = "milliseconds"

_IN = ("topic", "message_type", "is_system")
_OUT = ("topic", "consumer_group", "is_system", "is_retry")
_LAG = ("consumer_group", "topic", "is_retry", "is_system")
STORE_LABELS = {"storage_type": "local", "storage_medium": "disk"}
_STORE = tuple(STORE_LABELS)


def _counter(name: str, description: str, *labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, description, labels)


def _gauge(name: str, description: str, *labels: str, unit: str = "") -> Metric:
    return Metric(name, Kind.GAUGE, description, labels, unit)


def _histogram(name: str, description: str, buckets: tuple[int, ...], *labels: str, unit: str = "") -> Metric:
    return Metric(name, Kind.HISTOGRAM, description, labels, unit, buckets)


# enableStatsMetrics

PROCESSOR_WATERMARK = _gauge(
    "rocketmq_processor_watermark",
    "Requests that wait for a processor: sends that wait for the append or the disk. Other requests never wait.",
    "processor",
)
BROKER_PERMISSION = _gauge("rocketmq_broker_permission", "brokerPermission: 4 allows reads, 2 writes, 6 both.")
TOPIC_NUMBER = _gauge("rocketmq_topic_number", "Topics, the system's included.")
CONSUMER_GROUP_NUMBER = _gauge("rocketmq_consumer_group_number", "Subscription groups, the system's included.")

# enableRequestMetrics

MESSAGES_IN = _counter(
    "rocketmq_messages_in_total",
    "Stored messages. A delayed, timed or half message counts under its system topic, and a delivered delayed message "
    "again under its own. Retry and dead-letter topics are left out.",
    *_IN,
)
MESSAGES_OUT = _counter(
    "rocketmq_messages_out_total",
    "Messages that were pulled, popped or peeked, and those that the broker reads itself for its system groups.",
    *_OUT,
)
THROUGHPUT_IN = _counter("rocketmq_throughput_in_total", "Bytes of the records of messages_in_total.", *_IN)
THROUGHPUT_OUT = _counter("rocketmq_throughput_out_total", "Bytes of the records of messages_out_total.", *_OUT)
MESSAGE_SIZE = _histogram(
    "rocketmq_message_size",
    "Bytes of a message's record; of a batch the mean, once.",
    (_KB, 4 * _KB, 512 * _KB, _MB, 2 * _MB, 4 * _MB),
    *_IN,
)
_CREATE_BUCKETS_MS = (10, 100, 1_000, 3_000, 5_000)
TOPIC_CREATE_TIME = _histogram(
    "rocketmq_topic_create_execution_time",
    "How long the creation or change of a topic by an administrator took.",
    _CREATE_BUCKETS_MS,
    "invocation_status",
    "is_system",
    unit=_MS,
)
GROUP_CREATE_TIME = _histogram(
    "rocketmq_consumer_group_create_execution_time",
    "How long the creation or change of a group by an administrator took.",
    _CREATE_BUCKETS_MS,
    "invocation_status",
    unit=_MS,
)

# enableConnectionMetrics

PRODUCER_CONNECTIONS = _gauge(
    "rocketmq_producer_connections",
    "Producers by language and version. A producer of two groups counts twice.",
    "language",
    "version",
    "protocol_type",
)
CONSUMER_CONNECTIONS = _gauge(
    "rocketmq_consumer_connections",
    "Consumers by group, language and version.",
    "consumer_group",
    "language",
    "version",
    "consume_mode",
    "protocol_type",
    "is_system",
)

# enableLagAndDlqMetrics

CONSUMER_LAG_MESSAGES = _gauge(
    "rocketmq_consumer_lag_messages",
    "Messages that a connected group has not consumed: not committed, or for POP not acknowledged. With a tag filter "
    "an estimate (estimateAccumulation).",
    *_LAG,
)
CONSUMER_LAG_LATENCY = _gauge(
    "rocketmq_consumer_lag_latency",
    "The age of the oldest message that a connected group has not consumed; 0 without one.",
    *_LAG,
    unit=_MS,
)
CONSUMER_INFLIGHT_MESSAGES = _gauge(
    "rocketmq_consumer_inflight_messages", "Messages that were delivered to a group and not consumed yet.", *_LAG
)
CONSUMER_QUEUEING_LATENCY = _gauge(
    "rocketmq_consumer_queueing_latency",
    "The age of the oldest message that was not delivered to a group yet; 0 without one.",
    *_LAG,
    unit=_MS,
)
CONSUMER_READY_MESSAGES = _gauge(
    "rocketmq_consumer_ready_messages", "Messages that were not delivered to a group yet.", *_LAG
)
SEND_TO_DLQ = _counter(
    "rocketmq_send_to_dlq_messages_total",
    "Messages that a consumer gave up, which go to the dead letters of its group.",
    "consumer_group",
    "topic",
    "is_system",
)

# enableTransactionMetrics

HALF_MESSAGES = _gauge("rocketmq_half_messages", "Half messages that are neither committed nor rolled back.", "topic")
COMMIT_MESSAGES = _counter("rocketmq_commit_messages_total", "Committed transactional messages.", "topic")
ROLLBACK_MESSAGES = _counter("rocketmq_rollback_messages_total", "Rolled back transactional messages.", "topic")
FINISH_MESSAGE_LATENCY = _histogram(
    "rocketmq_finish_message_latency",
    "Seconds between a half message's birth and its commit. The name says milliseconds in RocketMQ, too.",
    (5, _MINUTE_S, 10 * _MINUTE_S, _HOUR_S, 12 * _HOUR_S, 24 * _HOUR_S),
    "topic",
    unit="ms",
)

# enableRemotingMetrics

RPC_LATENCY = _histogram(
    "rocketmq_rpc_latency",
    "The time between the arrival of a request and its answer, in whole milliseconds.",
    (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000),
    "protocol_type",
    "request_code",
    "response_code",
    "is_long_polling",
    "result",
    unit=_MS,
)

# enableMessageStoreMetrics

STORAGE_SIZE = _gauge(
    "rocketmq_storage_size", "Used bytes of the file system with the store, of all its users.", *_STORE, unit="bytes"
)
FLUSH_BEHIND = _gauge(
    "rocketmq_storage_flush_behind_bytes", "Bytes of the log that are not on the disk yet.", *_STORE, unit="bytes"
)
DISPATCH_BEHIND = _gauge(
    "rocketmq_storage_dispatch_behind_bytes", "Bytes of the log that are not in the queues yet.", *_STORE, unit="bytes"
)
MESSAGE_RESERVE_TIME = _gauge(
    "rocketmq_storage_message_reserve_time", "The age of the oldest message in the log.", *_STORE, unit=_MS
)
TIMER_ENQUEUE_LAG = _gauge("rocketmq_timer_enqueue_lag", "Timer messages that are not in the wheel yet.", *_STORE)
TIMER_ENQUEUE_LATENCY = _gauge(
    "rocketmq_timer_enqueue_latency",
    "The age of the oldest timer message that is not in the wheel yet; 0 without one.",
    *_STORE,
    unit=_MS,
)
TIMER_DEQUEUE_LAG = _gauge("rocketmq_timer_dequeue_lag", "Timer messages in the wheel.", *_STORE)
TIMER_DEQUEUE_LATENCY = _gauge(
    "rocketmq_timer_dequeue_latency", "How far the reading of due slots is behind the clock.", *_STORE, unit=_MS
)
TIMING_MESSAGES = _gauge("rocketmq_timing_messages", "Timer messages that wait, by their topic.", *_STORE, "topic")
TIMER_ENQUEUE = _counter("rocketmq_timer_enqueue_total", "Timer messages that were scheduled.", *_STORE, "topic")
TIMER_DEQUEUE = _counter("rocketmq_timer_dequeue_total", "Timer messages that were delivered.", *_STORE, "topic")
TIMER_MESSAGE_SNAPSHOT = _gauge(
    "rocketmq_timer_message_snapshot",
    "Timer messages in the wheel that are due within timer_bound_s seconds, without those of the smaller bounds.",
    *_STORE,
    "timer_bound_s",
)
DELAY_MESSAGE_LATENCY = _histogram(
    "rocketmq_delay_message_latency",
    "The delay that the sender of a timer message asked for.",
    (_MINUTE_S, 10 * _MINUTE_S, _HOUR_S, 12 * _HOUR_S, 24 * _HOUR_S, 72 * _HOUR_S),
    *_STORE,
    "topic",
    unit="seconds",
)

# enablePopMetrics

POP_BUFFER_SCAN_TIME = _histogram(
    "rocketmq_pop_buffer_scan_time_consume",
    "How long a scan of the checkpoints in memory took.",
    (1, 10, 100, 1_000, 2_000, 3_000),
    unit=_MS,
)
POP_REVIVE_IN = _counter(
    "rocketmq_pop_revive_in_message_total",
    "Checkpoints (CK) and acknowledgements (ACK) that were put into the revive topic.",
    "consumer_group",
    "topic",
    "revive_message_type",
    "put_status",
)
POP_REVIVE_OUT = _counter(
    "rocketmq_pop_revive_out_message_total",
    "Checkpoints and acknowledgements that were read from the revive topic.",
    "consumer_group",
    "topic",
    "queue_id",
    "revive_message_type",
)
POP_REVIVE_RETRY = _counter(
    "rocketmq_pop_revive_retry_messages_total",
    "Messages that were popped, not acknowledged, and put into the retry topic of their group.",
    "consumer_group",
    "topic",
    "put_status",
)
POP_OFFSET_BUFFER_SIZE = _gauge("rocketmq_pop_offset_buffer_size", "Pops whose offset is not committed yet.")
POP_CHECKPOINT_BUFFER_SIZE = _gauge(
    "rocketmq_pop_checkpoint_buffer_size", "Checkpoints in memory: not stored yet, or collecting acknowledgements."
)
POP_REVIVE_LAG = _gauge(
    "rocketmq_pop_revive_lag",
    "Records of a revive queue behind the last decided checkpoint. A number; the name says milliseconds in RocketMQ, "
    "too.",
    "queue_id",
    unit=_MS,
)
POP_REVIVE_LATENCY = _gauge(
    "rocketmq_pop_revive_latency",
    "How far the decisions on a revive queue are behind the clock; 0 without undecided checkpoints.",
    "queue_id",
    unit=_MS,
)

# Not RocketMQ's

BUILD_INFO = _gauge("gantrymq_build_info", "Always 1; the version is a label.", "version")
DISK_USED_RATIO = _gauge(
    "gantrymq_disk_used_ratio", "The used part of the fullest file system of the store, from 0 to 1.", unit="ratio"
)
CONNECTIONS = _gauge("gantrymq_connections", "Open connections.")
ACCEPTED_WITHOUT_EFFECT = _gauge(
    "gantrymq_accepted_without_effect",
    "Always 1: a key, path or topic of acceptWithoutEffect with which the broker would not have started.",
    "name",
)
SLAVES = _gauge(
    "gantrymq_slaves",
    "Connected slaves by state, and those whose connection was closed within the last minute by the reason.",
    "state",
)
SLAVE_BEHIND = _gauge("gantrymq_slave_behind", "How much of the log a connected slave lacks.", "slave", unit="bytes")
SLAVE_COPY = _gauge(
    "gantrymq_slave_copy", "Of a slave: 1 for the state of its copy of the master's log, as admin ha shows it.", "state"
)
SLAVE_COPY_BEHIND = _gauge(
    "gantrymq_slave_copy_behind", "Of a slave: how much of the master's log is not here.", "master", unit="bytes"
)
HELD_PULLS = _gauge("gantrymq_held_pulls", "Pulls that wait for a message.")
STORE_WRITABLE = _gauge("gantrymq_store_writable", "1 while the store accepts messages, else 0.")

# The key that turns some of them off.
SWITCHES: dict[str, frozenset[Metric]] = {
    "enableStatsMetrics": frozenset({PROCESSOR_WATERMARK, BROKER_PERMISSION, TOPIC_NUMBER, CONSUMER_GROUP_NUMBER}),
    "enableRequestMetrics": frozenset(
        {
            *(MESSAGES_IN, MESSAGES_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, MESSAGE_SIZE),
            *(TOPIC_CREATE_TIME, GROUP_CREATE_TIME),
        }
    ),
    "enableConnectionMetrics": frozenset({PRODUCER_CONNECTIONS, CONSUMER_CONNECTIONS}),
    "enableLagAndDlqMetrics": frozenset(
        {
            *(CONSUMER_LAG_MESSAGES, CONSUMER_LAG_LATENCY, CONSUMER_INFLIGHT_MESSAGES, CONSUMER_QUEUEING_LATENCY),
            *(CONSUMER_READY_MESSAGES, SEND_TO_DLQ),
        }
    ),
    "enableTransactionMetrics": frozenset({HALF_MESSAGES, COMMIT_MESSAGES, ROLLBACK_MESSAGES, FINISH_MESSAGE_LATENCY}),
    "enableRemotingMetrics": frozenset({RPC_LATENCY}),
    "enableMessageStoreMetrics": frozenset(
        {
            *(STORAGE_SIZE, FLUSH_BEHIND, DISPATCH_BEHIND, MESSAGE_RESERVE_TIME, TIMER_ENQUEUE_LAG),
            *(TIMER_ENQUEUE_LATENCY, TIMER_DEQUEUE_LAG, TIMER_DEQUEUE_LATENCY, TIMING_MESSAGES, TIMER_ENQUEUE),
            *(TIMER_DEQUEUE, TIMER_MESSAGE_SNAPSHOT, DELAY_MESSAGE_LATENCY),
        }
    ),
    "enablePopMetrics": frozenset(
        {
            *(POP_BUFFER_SCAN_TIME, POP_REVIVE_IN, POP_REVIVE_OUT, POP_REVIVE_RETRY, POP_OFFSET_BUFFER_SIZE),
            *(POP_CHECKPOINT_BUFFER_SIZE, POP_REVIVE_LAG, POP_REVIVE_LATENCY),
        }
    ),
}
ALL: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
