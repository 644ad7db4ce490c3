"""The settings of a broker (without its store's), under RocketMQ's keys and with its defaults.

Source: BrokerConfig, BrokerIdentity, NettyServerConfig and BrokerStartup.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from gantrymq.config.auth_settings import AuthConfig
from gantrymq.config.exporter_settings import ExporterConfig
from gantrymq.config.frozen import settings
from gantrymq.config.grpc_settings import WITHOUT_EFFECT as OF_PROXY
from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.config.guards import Reason, accepted_names, require_honoured
from gantrymq.config.keys import (
    check_text,
    check_values,
    fields_by_key,
    key,
    read_fields,
    require_same_at_start,
    shown_fields,
    write_fields,
)
from gantrymq.config.known_keys import WITHOUT_EFFECT, is_read_at_start
from gantrymq.config.name_servers import name_server_addresses
from gantrymq.config.refused_keys import REFUSALS, ServerKind, refused_keys, warned_keys
from gantrymq.config.remoting_limits import RemotingLimits
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError
from gantrymq.model.java import INT_MAX, LONG_MAX
from gantrymq.model.limits import MAX_QUEUES
from gantrymq.model.system_names import TRACE_TOPIC

PERM_INHERIT, PERM_WRITE, PERM_READ = 1, 2, 4
_NAME = r"[^\s/]{1,127}"  # also a topic name
_TOPIC = r"[%|a-zA-Z0-9_-]{1,127}"


@settings(frozen=True)
class BrokerConfig(RemotingLimits, ExporterConfig, AuthConfig):
    """The settings of one broker. Immutable and validated; raises ConfigError.

    ``listen_port`` 0 takes a free port. The default of ``bind_address`` is loopback; RocketMQ's is 0.0.0.0.
    ``namesrv_addr`` is ``host:port;host:port``; a broker with an empty one does not register.
    """

    # RocketMQ's default is the machine's name; its broker.conf says this.
    broker_name: str = key("brokerName", "broker-a", allowed=_NAME, at_start=True)
    broker_cluster_name: str = key("brokerClusterName", "DefaultCluster", allowed=_NAME, at_start=True)
    # -1 in RocketMQ's examples of controller mode. A start refuses every other than 0 unless brokerRole=SLAVE.
    broker_id: int = key("brokerId", 0, min_value=-1, max_value=LONG_MAX, at_start=True)
    broker_ip1: str = key("brokerIP1", "127.0.0.1", at_start=True)
    broker_ip2: str = key("brokerIP2", "", at_start=True)  # the address for slaves; empty: brokerIP1
    bind_address: str = key("bindAddress", "127.0.0.1", at_start=True)
    listen_port: int = key("listenPort", 10911, min_value=0, max_value=65535, at_start=True)
    namesrv_addr: str = key("namesrvAddr", "")
    broker_permission: int = key("brokerPermission", PERM_READ | PERM_WRITE, min_value=0, max_value=7)
    default_topic_queue_nums: int = key("defaultTopicQueueNums", 8, min_value=1, max_value=MAX_QUEUES)
    auto_create_topic_enable: bool = key("autoCreateTopicEnable", True)
    cluster_topic_enable: bool = key("clusterTopicEnable", True, at_start=True)
    broker_topic_enable: bool = key("brokerTopicEnable", True, at_start=True)
    auto_create_subscription_group: bool = key("autoCreateSubscriptionGroup", True)
    enable_create_sys_group: bool = key("enableCreateSysGroup", True)
    validate_system_topic_when_update_topic: bool = key("validateSystemTopicWhenUpdateTopic", True)
    clear_retry_topic_when_delete_topic: bool = key("clearRetryTopicWhenDeleteTopic", True)
    enable_mixed_message_type: bool = key("enableMixedMessageType", False)
    trace_topic_enable: bool = key("traceTopicEnable", False, at_start=True)
    msg_trace_topic_name: str = key("msgTraceTopicName", TRACE_TOPIC, allowed=_TOPIC, at_start=True)
    recall_message_enable: bool = key("recallMessageEnable", False)
    allow_recall_when_broker_not_writeable: bool = key("allowRecallWhenBrokerNotWriteable", True)
    store_reply_message_enable: bool = key("storeReplyMessageEnable", True)
    region_id: str = key("regionId", "DefaultRegion", allowed=".{1,255}")
    trace_on: bool = key("traceOn", True)
    revive_queue_num: int = key("reviveQueueNum", 8, min_value=1, max_value=MAX_QUEUES, at_start=True)
    server_load_balancer_enable: bool = key("serverLoadBalancerEnable", True)
    default_message_request_mode: str = key("defaultMessageRequestMode", "PULL", allowed="PULL|POP")
    default_pop_share_queue_num: int = key("defaultPopShareQueueNum", -1, min_value=-INT_MAX - 1)
    revive_interval_ms: int = key("reviveInterval", 1_000, min_value=1)
    skip_when_ck_re_put_reach_max_times: bool = key("skipWhenCKRePutReachMaxTimes", False)
    pop_polling_size: int = key("popPollingSize", 1_024, min_value=0)
    pop_polling_map_size: int = key("popPollingMapSize", 100_000, min_value=1)
    max_pop_polling_size: int = key("maxPopPollingSize", 100_000, min_value=0, max_value=LONG_MAX)
    enable_pop_buffer_merge: bool = key("enablePopBufferMerge", False)
    enable_pop_batch_ack: bool = key("enablePopBatchAck", False)
    pop_ck_stay_buffer_time_ms: int = key("popCkStayBufferTime", 10_000, min_value=0)
    pop_ck_stay_buffer_timeout_ms: int = key("popCkStayBufferTimeOut", 3_000, min_value=0)
    pop_ck_max_buffer_size: int = key("popCkMaxBufferSize", 200_000, min_value=0)
    pop_ck_offset_max_queue_size: int = key("popCkOffsetMaxQueueSize", 20_000, min_value=0)
    pop_from_retry_probability: int = key("popFromRetryProbability", 20, min_value=0, max_value=100)
    pop_from_retry_probability_for_priority: int = key(
        "popFromRetryProbabilityForPriority", 0, min_value=0, max_value=100
    )
    priority_order_asc: bool = key("priorityOrderAsc", True)
    use_separate_retry_queue: bool = key("useSeparateRetryQueue", False)
    enable_retry_topic_v2: bool = key("enableRetryTopicV2", False)
    retrieve_message_from_pop_retry_topic_v1: bool = key("retrieveMessageFromPopRetryTopicV1", True)
    pop_response_return_actual_retry_topic: bool = key("popResponseReturnActualRetryTopic", False)
    init_pop_offset_by_check_msg_in_mem: bool = key("initPopOffsetByCheckMsgInMem", True)
    enable_pop_message_threshold: bool = key("enablePopMessageThreshold", False)
    pop_inflight_message_threshold: int = key("popInflightMessageThreshold", 10_000, min_value=0, max_value=LONG_MAX)
    use_message_filter_for_notification: bool = key("useMessageFilterForNotification", True)
    max_message_filter_num_for_notification: int = key("maxMessageFilterNumForNotification", 64, min_value=0)
    reject_pull_consumer_enable: bool = key("rejectPullConsumerEnable", False)
    slave_read_enable: bool = key("slaveReadEnable", False)
    lite_pull_message_enable: bool = key("litePullMessageEnable", True)
    use_server_side_reset_offset: bool = key("useServerSideResetOffset", True)
    enable_property_filter: bool = key("enablePropertyFilter", False)
    filter_support_retry: bool = key("filterSupportRetry", False)
    filter_data_clean_time_span_ms: int = key("filterDataCleanTimeSpan", 86_400_000, min_value=0, max_value=LONG_MAX)
    max_error_rate_of_bloom_filter: int = key("maxErrorRateOfBloomFilter", 20, min_value=1, max_value=99, at_start=True)
    expect_consumer_num_use_filter: int = key(
        "expectConsumerNumUseFilter", 32, min_value=1, max_value=65_536, at_start=True
    )
    long_polling_enable: bool = key("longPollingEnable", True)
    short_polling_time_ms: int = key("shortPollingTimeMills", 1_000, min_value=1, max_value=LONG_MAX)
    max_transfer_count_in_memory: int = key("maxTransferCountOnMessageInMemory", 512, min_value=1)
    max_transfer_bytes_in_memory: int = key("maxTransferBytesOnMessageInMemory", 256 << 10, min_value=1)
    notify_consumer_ids_changed_enable: bool = key("notifyConsumerIdsChangedEnable", True)
    channel_expired_timeout_ms: int = key(
        "channelExpiredTimeout", 120_000, min_value=1, max_value=LONG_MAX, at_start=True
    )
    subscription_expired_timeout_ms: int = key("subscriptionExpiredTimeout", 600_000, min_value=1, max_value=LONG_MAX)
    flush_consumer_offset_interval_ms: int = key("flushConsumerOffsetInterval", 5_000, min_value=1)
    consumer_offset_update_version_step: int = key(
        "consumerOffsetUpdateVersionStep", 500, min_value=1, max_value=LONG_MAX
    )
    default_query_max_num: int = key("defaultQueryMaxNum", 32, min_value=1)
    broker_fast_failure_enable: bool = key("brokerFastFailureEnable", True)
    wait_time_in_send_queue_ms: int = key("waitTimeMillsInSendQueue", 200, min_value=1, max_value=LONG_MAX)
    os_page_cache_busy_timeout_ms: int = key("osPageCacheBusyTimeOutMills", 1_000, min_value=1, max_value=LONG_MAX)
    send_thread_pool_queue_capacity: int = key("sendThreadPoolQueueCapacity", 10_000, min_value=1)
    pull_thread_pool_queue_capacity: int = key("pullThreadPoolQueueCapacity", 100_000, min_value=1)
    reject_transaction_message: bool = key("rejectTransactionMessage", False)
    transaction_timeout_ms: int = key("transactionTimeOut", 6_000, min_value=0, max_value=LONG_MAX)
    transaction_check_max: int = key("transactionCheckMax", 15, min_value=0)
    transaction_check_interval_ms: int = key("transactionCheckInterval", 30_000, min_value=1, max_value=LONG_MAX)
    transaction_op_msg_max_size: int = key("transactionOpMsgMaxSize", 4_096, min_value=1)
    transaction_op_batch_interval_ms: int = key("transactionOpBatchInterval", 3_000, min_value=1)
    start_accept_send_request_timestamp_ms: int = key(
        "startAcceptSendRequestTimeStamp", 0, min_value=0, max_value=LONG_MAX
    )
    compressed_register: bool = key("compressedRegister", False)
    force_register: bool = key("forceRegister", True)
    register_broker_timeout_ms: int = key("registerBrokerTimeoutMills", 24_000, min_value=1)
    register_name_server_period_ms: int = key("registerNameServerPeriod", 30_000, min_value=1)
    broker_heartbeat_interval_ms: int = key("brokerHeartbeatInterval", 1_000, min_value=1)
    broker_not_active_timeout_ms: int = key("brokerNotActiveTimeoutMillis", 10_000, min_value=1, max_value=LONG_MAX)
    enable_slave_acting_master: bool = key("enableSlaveActingMaster", False, at_start=True)
    enable_split_metadata: bool = key("enableSplitMetadata", True)
    split_metadata_size: int = key("splitMetadataSize", 2_000, min_value=1)
    idle_seconds: int = key("serverChannelMaxIdleTimeSeconds", 120, min_value=1, at_start=True)
    acl_enable: bool = key("aclEnable", False, at_start=True)
    acl_plain_file: str = key("aclPlainFile", "", at_start=True)  # empty: config/plain_acl.yml of the store
    # A key of RocketMQ's proxy, which is in this process here. 0 takes a free port, -1 means no gRPC.
    grpc_server_port: int = key("grpcServerPort", -1, min_value=-1, max_value=65535, at_start=True)
    metrics_cardinality_limit: int = key("metricsOtelCardinalityLimit", 50_000, min_value=1, at_start=True)
    enable_stats_metrics: bool = key("enableStatsMetrics", True)
    enable_request_metrics: bool = key("enableRequestMetrics", True)
    enable_connection_metrics: bool = key("enableConnectionMetrics", True)
    enable_lag_and_dlq_metrics: bool = key("enableLagAndDlqMetrics", True)
    enable_transaction_metrics: bool = key("enableTransactionMetrics", True)
    enable_remoting_metrics: bool = key("enableRemotingMetrics", True)
    enable_message_store_metrics: bool = key("enableMessageStoreMetrics", True)
    enable_pop_metrics: bool = key("enablePopMetrics", True)
    estimate_accumulation: bool = key("estimateAccumulation", True)
    # Not RocketMQ's: limits for what sends, heartbeats and pulls create.
    max_topics: int = key("maxTopics", 50_000, min_value=1)
    max_subscription_groups: int = key("maxSubscriptionGroups", 50_000, min_value=1)
    config_black_list: str = key("configBlackList", "configBlackList;brokerConfigPath", at_start=True)
    # Not RocketMQ's: keys, paths and topics that a start takes although they cannot be honoured (see config/guards.py).
    accept_without_effect: str = key("acceptWithoutEffect", "", at_start=True)

    def __post_init__(self) -> None:
        """Validate every value and the name servers' addresses."""
        check_values(self)
        name_server_addresses("namesrvAddr", self.namesrv_addr)

    @property
    def name_servers(self) -> list[str]:
        """The name servers of namesrvAddr, one address each."""
        return name_server_addresses("namesrvAddr", self.namesrv_addr)

    @property
    def is_guarded(self) -> bool:
        """Whether requests are signed: with accounts of plain_acl.yml, or by users."""
        return self.acl_enable or self.authentication_enabled

    @property
    def is_writable(self) -> bool:
        """Whether brokerPermission allows sends."""
        return self.broker_permission & PERM_WRITE != 0

    @property
    def is_readable(self) -> bool:
        """Whether brokerPermission allows pulls."""
        return self.broker_permission & PERM_READ != 0


class LiveConfig:
    """The settings in force, which UPDATE_BROKER_CONFIG changes while the broker runs: ``broker``, ``store``, ``grpc``.

    ``keep`` gets the changed entries, to write them into the ``broker.conf`` of the settings. ``accepted`` has the
    refused reasons that the start took because of acceptWithoutEffect.
    Thread rule: one thread changes them; a reader reads ``broker`` or ``store`` again for each use.
    """

    def __init__(
        self,
        broker: BrokerConfig | None = None,
        store: MessageStoreConfig | None = None,
        keep: Callable[[Mapping[str, str]], None] = lambda entries: None,
    ) -> None:
        self.broker = broker or BrokerConfig()
        self.store = store or MessageStoreConfig()
        self.grpc = GrpcConfig()
        self.keep = keep
        self.accepted: list[Reason] = []
        self._others: dict[str, str] = {}
        self._tls: dict[str, str] = {}

    def update(self, entries: Mapping[str, str], *, running: bool = False) -> None:
        """Set all ``entries`` or none. Raises ConfigError.

        With ``running`` a change of a key that is read only at the start raises ConfigError too, and a value that
        cannot be honoured NotHonouredError. A key of RocketMQ without effect here is stored and shown; an unknown key
        is ignored.
        """
        others = {name: text for name, text in entries.items() if is_known(name) and not knows(name)}
        for name, text in others.items():
            check_text(name, text)
        broker = replace(self.broker, **read_fields(self.broker, entries))
        store = replace(self.store, **read_fields(self.store, entries))
        grpc = replace(self.grpc, **read_fields(self.grpc, entries))
        if running:
            wanted = self._tls | self._others | others | write_fields(store) | write_fields(broker)
            require_honoured(refused_keys(wanted, ServerKind.BROKER), self.accepted_names)
            self._refuse_start_keys(entries)
            require_same_at_start(self.broker, broker)
            require_same_at_start(self.store, store)
            require_same_at_start(self.grpc, grpc)
        self.broker, self.store, self.grpc = broker, store, grpc
        self._others |= others
        self._tls |= {name: text for name, text in entries.items() if name.startswith("tls.")}

    @property
    def accepted_names(self) -> frozenset[str]:
        """The names in acceptWithoutEffect."""
        return accepted_names(f"{self.broker.accept_without_effect},{self.store.accept_without_effect}")

    @property
    def is_slave(self) -> bool:
        """Whether this broker is a slave: the one place that says so to the parts of a broker."""
        return self.store.is_slave

    def require_honoured(self) -> None:
        """Raise NotHonouredError for a key that cannot be honoured, unless acceptWithoutEffect names it.

        A start calls it before anything is touched. ``accepted`` is set. Raises ConfigError for a slave's brokerId that
        is a master's.
        """
        if self.is_slave and self.broker.broker_id <= 0:
            raise ConfigError("brokerId", self.broker.broker_id, "above 0 with brokerRole=SLAVE")
        entries = self._tls | self._others | write_fields(self.store) | write_fields(self.broker)
        self.accepted = require_honoured(refused_keys(entries, ServerKind.BROKER), self.accepted_names)

    def unused_acceptances(self) -> list[str]:
        """The names in acceptWithoutEffect that are no key and accept nothing, as a misspelled one."""
        used = {name for reason in self.accepted for name in (reason.name, reason.group)}
        keys = {key for rows in REFUSALS.values() for key in rows}
        return sorted(self.accepted_names - used - keys - {name for name in self.accepted_names if is_known(name)})

    def _refuse_start_keys(self, entries: Mapping[str, str]) -> None:
        """Raise ConfigError for keys without effect here that name a place or a role."""
        for name, text in entries.items():
            if is_read_at_start(name) and not knows(name) and text != self._others.get(name):
                raise ConfigError(name, text[:64], "the value at the start: this key is only read from the broker.conf")

    def warnings(self) -> list[str]:
        """A line for each key that was set, acts in RocketMQ, and has no effect here."""
        entries = self._others | write_fields(self.store) | write_fields(self.broker)
        return [reason.text for reason in warned_keys(entries, ServerKind.BROKER)]

    def to_properties(self) -> str:
        """The settings of broker and store as the text of a ``broker.conf``, one key a line.

        Those of gRPC are there if they are not the default. Passwords are masked.
        """
        default = write_fields(GrpcConfig())
        grpc = {name: text for name, text in write_fields(self.grpc).items() if text != default[name]}
        entries = self._others | grpc | write_fields(self.store) | shown_fields(self.broker)
        return "".join(f"{name}={value}\n" for name, value in entries.items())


def knows(name: str) -> bool:
    """Whether a key has an effect here, on the broker, its store or its gRPC."""
    return any(name in fields_by_key(kind) for kind in (BrokerConfig, MessageStoreConfig, GrpcConfig))


def is_live(name: str) -> bool:
    """Whether a change of a key takes effect in a running broker."""
    kinds = (BrokerConfig, MessageStoreConfig, GrpcConfig)
    specs = [spec for kind in kinds if (spec := fields_by_key(kind).get(name)) is not None]
    return bool(specs) and not any(spec.metadata["at_start"] for spec in specs)


def is_known(name: str) -> bool:
    """Whether a key has an effect here or in RocketMQ."""
    return knows(name) or name in WITHOUT_EFFECT or name in OF_PROXY
