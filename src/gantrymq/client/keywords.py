"""The settings of clients as keyword arguments, so that type checkers reject ``producer_grop="x"``.

Each class has the fields of one settings class, which validates the values. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from gantrymq.client.consumer.allocation import AllocateMessageQueueStrategy
from gantrymq.client.consumer.settings import ConsumeFromWhere, MessageModel
from gantrymq.client.hooks import ConsumeMessageHook, EndTransactionHook, SendMessageHook
from gantrymq.client.producer.compression import CompressionType
from gantrymq.remoting.codes import SerializeType


class ClientSettings(TypedDict, total=False):
    """The fields of :class:`gantrymq.client.settings.ClientConfig`."""

    namespace: str
    access_key: str
    secret_key: str
    security_token: str
    tls: Mapping[str, str]
    connect_timeout_ms: int
    request_timeout_ms: int
    serialize_type: SerializeType | str
    max_decompressed_body_size: int


class ProducerSettings(ClientSettings, total=False):
    """The fields of :class:`gantrymq.client.settings.ProducerConfig`."""

    producer_group: str
    send_msg_timeout_ms: int
    retry_times_when_send_failed: int
    retry_another_broker_when_not_store_ok: bool
    send_latency_fault_enable: bool
    compress_msg_body_over_howmuch: int
    compression_type: CompressionType | str
    compression_level: int
    max_message_size: int
    max_delay_level: int
    create_topic_key: str
    default_topic_queue_nums: int
    back_pressure_for_async_send_num: int
    back_pressure_for_async_send_size: int
    trace: bool | str
    hooks: Sequence[SendMessageHook | EndTransactionHook]


class GroupSettings(ClientSettings, total=False):
    """The fields of :class:`gantrymq.client.consumer.settings.GroupConfig`."""

    consumer_group: str
    consume_from_where: ConsumeFromWhere | str
    poll_name_server_interval_ms: int
    decode_decompress_body: bool
    trace: bool | str
    hooks: Sequence[ConsumeMessageHook]


class ConsumerSettings(GroupSettings, total=False):
    """The fields of :class:`gantrymq.client.consumer.settings.ConsumerConfig`."""

    instance_name: str
    message_model: MessageModel | str
    consume_timestamp: str
    allocate_message_queue_strategy: AllocateMessageQueueStrategy
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    persist_consumer_offset_interval_ms: int
    local_offset_store_dir: str | Path


class PushConsumerSettings(ConsumerSettings, total=False):
    """The fields of :class:`gantrymq.client.consumer.settings.PushConsumerConfig`."""

    consume_thread_max: int
    consume_concurrently_max_span: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic: int
    pull_interval_ms: int
    consume_message_batch_max_size: int
    pull_batch_size: int
    pull_batch_size_in_bytes: int
    post_subscription_when_pull: bool
    max_reconsume_times: int
    suspend_current_queue_time_ms: int
    consume_timeout_minutes: int
    await_termination_ms_when_shutdown: int
    pull_time_delay_ms_when_exception: int
    client_rebalance: bool
    pop_invisible_time_ms: int
    pop_batch_nums: int
    pop_threshold_for_queue: int


class LitePullConsumerSettings(ConsumerSettings, total=False):
    """The fields of :class:`gantrymq.client.consumer.settings.LitePullConsumerConfig`."""

    pull_batch_size: int
    pull_threshold_for_all: int
    consume_max_span: int
    poll_timeout_ms: int
    auto_commit: bool
    auto_commit_interval_ms: int
    broker_suspend_max_time_ms: int
    consumer_timeout_ms_when_suspend: int
    topic_metadata_check_interval_ms: int
    pull_time_delay_ms_when_exception: int


class SimpleConsumerSettings(GroupSettings, total=False):
    """The fields of :class:`gantrymq.client.consumer.settings.SimpleConsumerConfig`."""

    await_duration_ms: int
    invisible_duration_ms: int
    max_reconsume_times: int
    consume_orderly: bool
