"""The settings of a client: what it sends, merged with what the server decides.

A consumer's retries, its order and its polling come from its group. A producer's come from the proxy.

Source: GrpcClientSettingsManager.
"""

from __future__ import annotations

from typing import Any

from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.grpc import limits
from gantrymq.grpc.protocol.codes import AddressScheme, ClientType
from gantrymq.grpc.protocol.messages import Settings, set_ms
from gantrymq.model.delays import retry_delay
from gantrymq.remoting.bodies.group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)

CONSUMERS = frozenset({ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER, ClientType.LITE_PUSH_CONSUMER})
_EXPONENTIAL = "EXPONENTIAL"


def client_settings(config: GrpcConfig, sent: Any) -> Any:
    """The settings to keep of a client. A consumer's get a default for everything it leaves out."""
    if not sent.HasField("subscription"):
        return sent
    settings = Settings()
    _merge_group(config, settings, SubscriptionGroupConfig())
    settings.MergeFrom(sent)
    return settings


def merged_settings(config: GrpcConfig, sent: Any, group: SubscriptionGroupConfig | None, max_body_bytes: int) -> Any:
    """The settings in force. ``group`` is the configuration of a consumer's group, None if there is no such group."""
    merged = Settings()
    merged.CopyFrom(sent)
    if sent.HasField("publishing"):
        _merge_producer(config, merged, max_body_bytes)
    elif sent.HasField("subscription") and group is not None:
        _merge_group(config, merged, group)
    merged.ClearField("metric")
    _merge_metric(config, merged)
    return merged


def settings_of_group(config: GrpcConfig, group: SubscriptionGroupConfig | None) -> Any:
    """The settings for a consumer that has sent none, for example because the server was restarted."""
    settings = Settings()
    _merge_group(config, settings, group or SubscriptionGroupConfig())
    return settings


def _merge_metric(config: GrpcConfig, settings: Any) -> None:
    """Where a client sends its own metrics. The server does not take them; a collector does (metricCollectorMode)."""
    mode, metric = config.metric_collector_mode.lower(), settings.metric
    metric.on = mode != "off"
    if mode == "on":
        host, _, port = config.metric_collector_address.partition(":")
        metric.endpoints.scheme = AddressScheme.IPv4
        metric.endpoints.addresses.add(host=host, port=int(port))
    elif mode == "proxy":
        metric.endpoints.CopyFrom(settings.access_point)


def _merge_producer(config: GrpcConfig, settings: Any, max_body_bytes: int) -> None:
    policy = settings.backoff_policy
    policy.max_attempts = config.producer_max_attempts
    backoff = policy.exponential_backoff
    set_ms(backoff.initial, config.producer_backoff_initial_ms)
    set_ms(backoff.max, config.producer_backoff_max_ms)
    backoff.multiplier = config.producer_backoff_multiplier
    settings.publishing.validate_message_type = config.check_message_type
    settings.publishing.max_body_size = max_body_bytes


def _merge_group(config: GrpcConfig, settings: Any, group: SubscriptionGroupConfig) -> None:
    subscription = settings.subscription
    subscription.receive_batch_size = config.receive_batch_size
    set_ms(subscription.long_polling_timeout, config.max_polling_ms)
    subscription.fifo = group.consume_message_orderly
    subscription.lite_subscription_quota = limits.LITE_SUBSCRIPTION_QUOTA
    subscription.max_lite_topic_size = limits.MAX_LITE_TOPIC_BYTES
    policy, retry = settings.backoff_policy, group.group_retry_policy
    policy.max_attempts = max_attempts(group)
    if retry.type == _EXPONENTIAL:
        exponential = retry.exponential_retry_policy or ExponentialRetryPolicy()
        backoff = policy.exponential_backoff
        set_ms(backoff.initial, exponential.initial)
        set_ms(backoff.max, exponential.max)
        backoff.multiplier = exponential.multiplier
    else:
        customized = retry.customized_retry_policy or CustomizedRetryPolicy()
        policy.ClearField("strategy")
        policy.customized_backoff.SetInParent()
        for delay_ms in customized.next:
            set_ms(policy.customized_backoff.next.add(), delay_ms)


def max_attempts(group: SubscriptionGroupConfig) -> int:
    """How often a message is delivered at most."""
    return min(max(group.retry_max_times, -1) + 1, 0x7FFFFFFF)


def retry_delay_ms(policy: GroupRetryPolicy, reconsume_times: int) -> int:
    """The delay before a delivery after ``reconsume_times`` failures (RetryPolicy.nextDelayDuration)."""
    times = max(reconsume_times, 0)
    if policy.type == _EXPONENTIAL:
        exponential = policy.exponential_retry_policy or ExponentialRetryPolicy()
        # A power of more than 32 is above every maximum, or the multiplier is 1.
        grown: int = exponential.initial * exponential.multiplier ** min(times, 32)
        return min(exponential.max, max(grown, 0))
    delays = (policy.customized_retry_policy or CustomizedRetryPolicy()).next
    return retry_delay(times, delays) if delays else 0
