"""The settings of a client: what it sends, merged with what the server decides.

A consumer's retries, its order and its polling come from its group. A producer's come from the proxy.

Source: GrpcClientSettingsManager.
"""

from __future__ import annotations

from typing import Any

from gantrymq.grpc import limits
from gantrymq.grpc.protocol.codes import ClientType
from gantrymq.grpc.protocol.messages import Settings, set_ms
from gantrymq.remoting.bodies.group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)

CONSUMERS = frozenset({ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER, ClientType.LITE_PUSH_CONSUMER})
_EXPONENTIAL = "EXPONENTIAL"


def kept_settings(sent: Any) -> Any:
    """The settings to keep of a client. A consumer's get a default for everything it leaves out."""
    if not sent.HasField("subscription"):
        return sent
    kept = Settings()
    _merge_group(kept, SubscriptionGroupConfig())
    kept.MergeFrom(sent)
    return kept


def merged_settings(kept: Any, group: SubscriptionGroupConfig | None, max_body_bytes: int) -> Any:
    """The settings in force. ``group`` is the configuration of a consumer's group, None if there is no such group."""
    merged = Settings()
    merged.CopyFrom(kept)
    if kept.HasField("publishing"):
        _merge_producer(merged, max_body_bytes)
    elif kept.HasField("subscription") and group is not None:
        _merge_group(merged, group)
    merged.ClearField("metric")
    merged.metric.on = False
    return merged


def settings_of_group(group: SubscriptionGroupConfig | None) -> Any:
    """The settings for a consumer that has sent none, for example because the server was restarted."""
    settings = Settings()
    _merge_group(settings, group or SubscriptionGroupConfig())
    return settings


def _merge_producer(settings: Any, max_body_bytes: int) -> None:
    policy = settings.backoff_policy
    policy.max_attempts = limits.PRODUCER_MAX_ATTEMPTS
    backoff = policy.exponential_backoff
    set_ms(backoff.initial, limits.PRODUCER_BACKOFF_INITIAL_MS)
    set_ms(backoff.max, limits.PRODUCER_BACKOFF_MAX_MS)
    backoff.multiplier = limits.PRODUCER_BACKOFF_MULTIPLIER
    settings.publishing.validate_message_type = True
    settings.publishing.max_body_size = max_body_bytes


def _merge_group(settings: Any, group: SubscriptionGroupConfig) -> None:
    subscription = settings.subscription
    subscription.receive_batch_size = limits.RECEIVE_BATCH_SIZE
    set_ms(subscription.long_polling_timeout, limits.MAX_POLLING_MS)
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
    index = min(times + 2, len(delays) - 1)
    return delays[index] if delays else 0
