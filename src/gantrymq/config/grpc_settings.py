"""The settings of the gRPC protocol, under the keys of RocketMQ's ``rmq-proxy.json`` and with its defaults.

They hold for a proxy and for a broker that speaks gRPC itself. :data:`WITHOUT_EFFECT` has the other keys of RocketMQ's
proxy: why they have no effect here, and whether one is worth a warning. compatibility/proxy-keys.md is made
from both.

Source: ProxyConfig.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gantrymq.config.frozen import settings
from gantrymq.config.keys import check_values, key
from gantrymq.config.known_keys import THREADS, KeyWithoutEffect, rows_of
from gantrymq.errors import ConfigError
from gantrymq.model.delays import DELAY_LEVELS
from gantrymq.model.java import LONG_MAX

_ADDRESS = re.compile(r"[^:\s]+:\d{1,5}")
_DELIVERY = "a delivery time stays a delivery time here, and never becomes a delay level"
# Keys that act in RocketMQ, with its defaults. "…" depends on the machine.
_ACTING = {
    "serve --grpc-port is the LOCAL mode, proxy the CLUSTER mode": "proxyMode=CLUSTER brokerConfigPath=…",
    "tls.server.mode, tls.server.certPath, tls.server.keyPath and tls.server.keyPassword set TLS": (
        "tlsTestModeEnable=true tlsKeyPath=… tlsKeyPassword= tlsCertPath=… tlsCertWatchIntervalMs=3600000"
    ),
    "the name servers are those of namesrvAddr": "namesrvDomain= namesrvDomainSubgroup=",
    _DELIVERY: "useDelayLevel=false",
    "there are no lite topics here": (
        "maxLiteTopicSize=64 maxLiteRenewNumPerChannel=100 maxSyncLiteSubscriptionRate=5000"
    ),
    "the proxy does not speak remoting: its clients use the brokers' own ports": """
        traceOn=false regionId= remotingListenPort=8080 remotingAccessAddr= enableRemotingLocalProxyGrpc=true
        localProxyConnectTimeoutMs=3000 remotingWaitTimeMillsInSendQueue=3000 remotingWaitTimeMillsInPullQueue=5000
        remotingWaitTimeMillsInHeartbeatQueue=31000 remotingWaitTimeMillsInUpdateOffsetQueue=3000
        remotingWaitTimeMillsInTopicRouteQueue=3000 remotingWaitTimeMillsInDefaultQueue=3000
    """,
    "proxies do not tell each other of consumers here": (
        "heartbeatSyncerTopicClusterName= heartbeatSyncerTopicName=DefaultHeartBeatSyncerTopic"
    ),
    "a send goes to the brokers in turn here, whatever their latency": (
        "sendLatencyEnable=false startDetectorEnable=false detectTimeout=200 detectInterval=2000"
    ),
    "what is cached leaves when the cache is full, or is read again after its refresh time": """
        topicRouteServiceCacheExpiredSeconds=300 topicConfigCacheExpiredSeconds=300
        subscriptionGroupConfigCacheExpiredSeconds=300
    """,
    "with aclEnable requests to brokers are signed in the name of the caller's account": (
        "enableAclRpcHookForClusterMode=false"
    ),
    "QueryRoute answers with the port that the client used": "useEndpointPortFromRequest=false",
    "a shutdown here answers receives that wait at once, and gives other calls a second": (
        "grpcShutdownTimeSeconds=30 transactionDataMaxWaitClearMillis=30000"
    ),
}
_HARMLESS = {
    "the messages of one broker are always acknowledged by one request here": "enableBatchAck",
    "a proxy here serves all clusters that its name servers know": "rocketMQClusterName",
    "nothing in RocketMQ reads it": "longPollingReserveTimeInMillis contextExpiredInSeconds",
    "Java's channels of single calls; here they end with the call": "channelExpiredInSeconds",
    "renewals need no locks here": "lockTimeoutMsInHandleGroup",
    "one connection to each broker is used here": "rocketmqMQClientNum",
    "one heartbeat names all producers of a topic here": "transactionHeartbeatBatchNum",
    "expired transactions are removed every few seconds": "transactionDataExpireScanPeriodMillis",
    THREADS: """
        heartbeatSyncerThreadPoolNums heartbeatSyncerThreadPoolQueueCapacity enablePrintJstack printJstackInMillis
        printThreadPoolStatusInMillis grpcBossLoopNum grpcWorkerLoopNum enableGrpcEpoll grpcThreadPoolNums
        grpcThreadPoolQueueCapacity grpcProducerThreadPoolNums grpcProducerThreadQueueCapacity
        grpcConsumerThreadPoolNums grpcConsumerThreadQueueCapacity grpcRouteThreadPoolNums
        grpcRouteThreadQueueCapacity grpcClientManagerThreadPoolNums grpcClientManagerThreadQueueCapacity
        grpcTransactionThreadPoolNums grpcTransactionThreadQueueCapacity producerProcessorThreadPoolNums
        producerProcessorThreadPoolQueueCapacity consumerProcessorThreadPoolNums
        consumerProcessorThreadPoolQueueCapacity topicRouteServiceThreadPoolNums
        topicRouteServiceThreadPoolQueueCapacity metadataThreadPoolNums metadataThreadPoolQueueCapacity
        transactionHeartbeatThreadPoolNums transactionHeartbeatThreadPoolQueueCapacity renewThreadPoolNums
        renewMaxThreadPoolNums renewThreadPoolQueueCapacity returnHandleGroupThreadPoolNums
        remotingHeartbeatThreadPoolNums remotingTopicRouteThreadPoolNums remotingSendMessageThreadPoolNums
        remotingPullMessageThreadPoolNums remotingUpdateOffsetThreadPoolNums remotingDefaultThreadPoolNums
        remotingHeartbeatThreadPoolQueueCapacity remotingTopicRouteThreadPoolQueueCapacity
        remotingSendThreadPoolQueueCapacity remotingPullThreadPoolQueueCapacity
        remotingUpdateOffsetThreadPoolQueueCapacity remotingDefaultThreadPoolQueueCapacity
    """,
}
WITHOUT_EFFECT: Mapping[str, KeyWithoutEffect] = rows_of(_ACTING, _HARMLESS) | {
    "messageDelayLevel": KeyWithoutEffect(_DELIVERY, DELAY_LEVELS)
}


@settings(frozen=True)
class GrpcConfig:
    """Immutable and validated; raises ConfigError. Only a start reads them.

    The default of ``max_inbound_bytes`` is 32 MiB, RocketMQ's is 130 MiB: a request of several messages is one batch
    for the broker, which refuses more than maxMessageSize. A limit of 0 or less is no limit where RocketMQ has none
    then. ``metric_collector_address`` is a ``host:port`` and needed with the mode ``on``.
    """

    max_inbound_bytes: int = key("grpcMaxInboundMessageSize", 32 << 20, min_value=1, at_start=True)
    max_concurrent_calls: int = key("grpcMaxConcurrentCallsPerConnection", 2**31 - 1, min_value=1, at_start=True)
    idle_connection_ms: int = key("grpcClientIdleTimeMills", 120_000, min_value=1, at_start=True)
    # Messages that are sent
    check_body_empty: bool = key("enableMessageBodyEmptyCheck", True, at_start=True)
    check_message_type: bool = key("enableTopicMessageTypeCheck", True, at_start=True)
    max_user_property_bytes: int = key("maxUserPropertySize", 16 << 10, at_start=True)
    max_user_properties: int = key("userPropertyMaxNum", 128, min_value=0, at_start=True)
    max_message_group_bytes: int = key("maxMessageGroupSize", 64, at_start=True)
    max_delay_ms: int = key("maxDelayTimeMills", 24 * 3600 * 1000, max_value=LONG_MAX, at_start=True)
    max_transaction_recovery_s: int = key("maxTransactionRecoverySecond", 3600, max_value=LONG_MAX, at_start=True)
    producer_max_attempts: int = key("grpcClientProducerMaxAttempts", 3, min_value=1, at_start=True)
    producer_backoff_initial_ms: int = key("grpcClientProducerBackoffInitialMillis", 10, min_value=0, at_start=True)
    producer_backoff_max_ms: int = key("grpcClientProducerBackoffMaxMillis", 1_000, min_value=0, at_start=True)
    producer_backoff_multiplier: int = key("grpcClientProducerBackoffMultiplier", 2, min_value=1, at_start=True)
    transaction_data_expire_ms: int = key("transactionDataExpireMillis", 30_000, min_value=1, at_start=True)
    max_transactions_of_id: int = key("transactionDataMaxNum", 15, min_value=1, max_value=10_000, at_start=True)
    # Messages that are received
    default_invisible_ms: int = key("defaultInvisibleTimeMills", 60_000, min_value=1, max_value=LONG_MAX, at_start=True)
    min_receive_invisible_ms: int = key(
        "minInvisibleTimeMillsForRecv", 10_000, min_value=0, max_value=LONG_MAX, at_start=True
    )
    max_invisible_ms: int = key(
        "maxInvisibleTimeMills", 12 * 3600 * 1000, min_value=0, max_value=LONG_MAX, at_start=True
    )
    min_polling_ms: int = key("grpcClientConsumerMinLongPollingTimeoutMillis", 5_000, min_value=0, at_start=True)
    max_polling_ms: int = key("grpcClientConsumerMaxLongPollingTimeoutMillis", 20_000, min_value=0, at_start=True)
    receive_batch_size: int = key("grpcClientConsumerLongPollingBatchSize", 32, min_value=1, at_start=True)
    renews: bool = key("enableProxyAutoRenew", True, at_start=True)
    renew_period_ms: int = key("renewSchedulePeriodMillis", 5_000, min_value=1, at_start=True)
    renew_ahead_ms: int = key("renewAheadTimeMillis", 10_000, min_value=0, at_start=True)
    renew_max_ms: int = key("renewMaxTimeMillis", 3 * 3600 * 1000, min_value=0, max_value=LONG_MAX, at_start=True)
    max_renew_retries: int = key("maxRenewRetryTimes", 3, min_value=0, at_start=True)
    nack_invisible_ms: int = key("invisibleTimeMillisWhenClear", 1_000, min_value=0, at_start=True)
    # Clients
    client_expired_ms: int = key("channelExpiredTimeout", 120_000, min_value=1, at_start=True)
    relay_timeout_s: int = key("grpcProxyRelayRequestTimeoutInSeconds", 5, min_value=1, at_start=True)
    metric_collector_mode: str = key("metricCollectorMode", "off", allowed="(?i)off|on|proxy", at_start=True)
    metric_collector_address: str = key("metricCollectorAddress", "", at_start=True)

    def __post_init__(self) -> None:
        """Validate every value, and the address of the metric collector."""
        check_values(self)
        if self.metric_collector_mode.lower() == "on" and not _ADDRESS.fullmatch(self.metric_collector_address):
            raise ConfigError("metricCollectorAddress", self.metric_collector_address[:64], "host:port")
        if self.min_polling_ms > self.max_polling_ms:
            name = "grpcClientConsumerMinLongPollingTimeoutMillis"
            raise ConfigError(name, self.min_polling_ms, "at most grpcClientConsumerMaxLongPollingTimeoutMillis")
