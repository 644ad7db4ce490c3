"""The settings of a producer, with RocketMQ's names in Python's spelling and its defaults.

Source: DefaultMQProducer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gantrymq.client.hooks import EndTransactionHook, SendMessageHook, check_hooks
from gantrymq.client.producer.compression import CompressionType
from gantrymq.client.settings import GROUP_NAME, GROUP_NAME_ALLOWED, ClientConfig, ClientSettings, trace_topic
from gantrymq.config.keys import key
from gantrymq.errors import ConfigError
from gantrymq.model.system_names import AUTO_CREATE_TOPIC


@dataclass(frozen=True, slots=True)
class ProducerConfig(ClientConfig):
    """A producer's settings. Names are RocketMQ's in Python's spelling; times in milliseconds, sizes in bytes.

    ``send_msg_timeout_ms`` applies to one send with all its attempts, at most ``retry_times_when_send_failed`` + 1. A
    body of ``compress_msg_body_over_howmuch`` bytes or more is compressed. ``max_delay_level`` is the number of levels
    of the brokers (messageDelayLevel), which treat a higher level as their highest.

    A send waits while ``back_pressure_for_async_send_num`` messages, or ``back_pressure_for_async_send_size`` bytes of
    bodies, are under way. RocketMQ has these limits only with ``enableBackpressureForAsyncMode``, and a send above them
    fails.

    With ``auto_batch`` plain messages that are sent at about the same time, without a time limit of their own, leave in
    one request of up to ``batch_max_bytes``; each has its own result. A message waits for others at most
    ``batch_max_delay_ms``, and only while an earlier request of its topic is under way. While
    ``total_batch_max_bytes`` wait, messages leave alone.

    ``trace`` True traces each message to RMQ_SYS_TRACE_TOPIC; a text is the name of another topic. ``hooks`` are called
    before and after each send (:class:`gantrymq.client.hooks.SendMessageHook`).
    """

    producer_group: str = key("producerGroup", "DEFAULT_PRODUCER")
    send_msg_timeout_ms: int = key("sendMsgTimeout", 3000, min_value=1)
    retry_times_when_send_failed: int = key("retryTimesWhenSendFailed", 2, min_value=0)
    retry_another_broker_when_not_store_ok: bool = key("retryAnotherBrokerWhenNotStoreOK", False)
    send_latency_fault_enable: bool = key("sendLatencyFaultEnable", False)
    compress_msg_body_over_howmuch: int = key("compressMsgBodyOverHowmuch", 4096, min_value=0)
    compression_type: CompressionType = key("compressType", CompressionType.ZLIB)
    compression_level: int = key("compressLevel", 5, min_value=0, max_value=9)
    max_message_size: int = key("maxMessageSize", 4 * 1024 * 1024, min_value=1)
    max_delay_level: int = key("maxDelayLevel", 18, min_value=0)
    create_topic_key: str = key("createTopicKey", AUTO_CREATE_TOPIC)
    default_topic_queue_nums: int = key("defaultTopicQueueNums", 4, min_value=1)
    back_pressure_for_async_send_num: int = key("backPressureForAsyncSendNum", 1024, min_value=1)
    # RocketMQ has 100 MiB. On a slow link the last of that many bytes would leave after the time limit of a send.
    back_pressure_for_async_send_size: int = key("backPressureForAsyncSendSize", 16 * 1024 * 1024, min_value=1)
    auto_batch: bool = key("autoBatch", False)
    batch_max_delay_ms: int = key("batchMaxDelayMs", 10, min_value=1, max_value=30_000)
    batch_max_bytes: int = key("batchMaxBytes", 32 * 1024, min_value=1, max_value=2 * 1024 * 1024)
    total_batch_max_bytes: int = key("totalBatchMaxBytes", 32 * 1024 * 1024, min_value=1)
    trace: bool | str = False
    hooks: Sequence[SendMessageHook | EndTransactionHook] = ()

    def __post_init__(self) -> None:
        # super() without arguments does not work in a dataclass with slots.
        super(ProducerConfig, self).__post_init__()
        if not GROUP_NAME.fullmatch(self.producer_group):
            raise ConfigError("producerGroup", self.producer_group, GROUP_NAME_ALLOWED)
        trace_topic(self.trace)
        check_hooks(self.hooks, of_producer=True)


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
    auto_batch: bool
    batch_max_delay_ms: int
    batch_max_bytes: int
    total_batch_max_bytes: int
    trace: bool | str
    hooks: Sequence[SendMessageHook | EndTransactionHook]
