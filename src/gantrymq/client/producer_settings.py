"""A producer's settings, with RocketMQ's defaults.

Source: DefaultMQProducer.
"""

import re
from dataclasses import dataclass

from gantrymq.client.compression import CompressionType
from gantrymq.client.settings import ClientConfig
from gantrymq.config.keys import key
from gantrymq.errors import ConfigError

_GROUP = re.compile(r"[%|a-zA-Z0-9_-]{1,120}")


@dataclass(frozen=True, slots=True)
class ProducerConfig(ClientConfig):
    """The names are RocketMQ's in Python's spelling; times in milliseconds, sizes in bytes.

    ``send_msg_timeout_ms`` is for one send with all its attempts, of which there are at most one more than
    ``retry_times_when_send_failed``. A body of ``compress_msg_body_over_howmuch`` bytes or more is compressed.
    ``max_delay_level`` is how many levels the brokers have (messageDelayLevel): of a higher one they make the highest.
    A send waits while ``back_pressure_for_async_send_num`` messages, or ``back_pressure_for_async_send_size`` bytes of
    bodies, are under way: always, where RocketMQ's does so, and fails, with ``enableBackpressureForAsyncMode`` alone.
    """

    producer_group: str = key("producerGroup", "DEFAULT_PRODUCER")
    send_msg_timeout_ms: int = key("sendMsgTimeout", 3000, least=1)
    retry_times_when_send_failed: int = key("retryTimesWhenSendFailed", 2, least=0)
    retry_another_broker_when_not_store_ok: bool = key("retryAnotherBrokerWhenNotStoreOK", False)
    send_latency_fault_enable: bool = key("sendLatencyFaultEnable", False)
    compress_msg_body_over_howmuch: int = key("compressMsgBodyOverHowmuch", 4096, least=0)
    compression_type: CompressionType = key("compressType", CompressionType.ZLIB)
    compression_level: int = key("compressLevel", 5, least=0, most=9)
    max_message_size: int = key("maxMessageSize", 4 * 1024 * 1024, least=1)
    max_delay_level: int = key("maxDelayLevel", 18, least=0)
    create_topic_key: str = key("createTopicKey", "TBW102")
    default_topic_queue_nums: int = key("defaultTopicQueueNums", 4, least=1)
    back_pressure_for_async_send_num: int = key("backPressureForAsyncSendNum", 1024, least=1)
    # 100 MiB in RocketMQ: the last of that many bytes would leave later than the time limit of a send on a slow link.
    back_pressure_for_async_send_size: int = key("backPressureForAsyncSendSize", 16 * 1024 * 1024, least=1)

    def __post_init__(self) -> None:
        # Without arguments super() does not work in a dataclass with slots.
        super(ProducerConfig, self).__post_init__()
        if not _GROUP.fullmatch(self.producer_group):
            raise ConfigError("producerGroup", self.producer_group, "1 to 120 of ^[%|a-zA-Z0-9_-]+$")
