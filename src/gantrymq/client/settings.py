"""The settings of every client (name servers, credentials, protocol) and of a producer, with RocketMQ's defaults.

Source: ClientConfig, NettyClientConfig, DefaultMQProducer.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Self, cast

from gantrymq.client.hooks import EndTransactionHook, SendMessageHook, check_hooks
from gantrymq.client.producer.compression import CompressionType
from gantrymq.config.keys import check_values, key
from gantrymq.config.name_servers import ALLOWED, name_server_addresses
from gantrymq.errors import ConfigError
from gantrymq.format.trace import TRACE_TOPIC
from gantrymq.model.size import MAX_DECOMPRESSED_BODY_SIZE
from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.codes import SerializeType

_NAMESPACE = re.compile(r"[a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """``name_servers`` has RocketMQ's syntax: ``host:port;host:port``, also ``http://host:port``.

    With ``access_key`` and ``secret_key`` every request is signed. ``tls`` has keys of tls.properties (``tls.enable``,
    ``tls.client.trustCertPath``, …). ``request_timeout_ms`` (mqClientApiTimeout) applies to one answer. A body that has
    more than ``max_decompressed_body_size`` bytes when decompressed is delivered as it is stored.
    """

    name_servers: str
    namespace: str = key("namespace", "")
    access_key: str = key("accessKey", "")
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect_timeout_ms: int = key("connectTimeoutMillis", 3000, least=1)
    request_timeout_ms: int = key("mqClientApiTimeout", 3000, least=1)
    serialize_type: SerializeType = key("rocketmq.serialize.type", SerializeType.JSON)
    max_decompressed_body_size: int = key("maxDecompressedBodySize", MAX_DECOMPRESSED_BODY_SIZE, least=1)

    def __post_init__(self) -> None:
        check_values(self)
        if not isinstance(cast(object, self.name_servers), str) or not self.name_server_list:
            raise ConfigError("namesrvAddr", self.name_servers, ALLOWED)
        for name in ("secret_key", "security_token"):
            if not isinstance(getattr(self, name), str | None):
                raise ConfigError(name, "…", "a text")
        if not isinstance(cast(object, self.tls), Mapping) or not all(
            isinstance(text, str) for pair in self.tls.items() for text in pair
        ):
            raise ConfigError("tls", "…", 'texts by keys of tls.properties, as {"tls.enable": "true"}')
        if self.namespace and not _NAMESPACE.fullmatch(self.namespace):
            raise ConfigError("namespace", self.namespace, "only letters, digits, - and _")
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("accessKey", self.access_key, "accessKey and secretKey together, or neither")

    @classmethod
    def of(cls, given: Self | str, settings: Mapping[str, object]) -> Self:
        """The settings from a client's arguments: a config object or the name servers, changed by single ``settings``.

        Raises ConfigError for an invalid value or a config of another kind of client, and TypeError for an unknown
        setting, as Python does for keywords.
        """
        known = [one.name for one in fields(cls)]
        for name in settings:
            if name not in known:
                close = get_close_matches(name, known, 1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise TypeError(f"{cls.__name__} has no setting {name!r}{hint}")
        values = cast(dict[str, Any], dict(settings))
        return replace(given, **values) if isinstance(given, cls) else cls(cast(str, given), **values)

    @property
    def name_server_list(self) -> list[str]:
        """The addresses of the name servers."""
        return name_server_addresses("namesrvAddr", self.name_servers)

    @property
    def credentials(self) -> SessionCredentials | None:
        """The credentials that sign each request, or None."""
        if not self.access_key:
            return None
        return SessionCredentials(self.access_key, self.secret_key, self.security_token or None)


_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")


def trace_topic(trace: object) -> str:
    """The topic of the traces for a setting ``trace``; empty for False. Raises ConfigError."""
    if isinstance(trace, bool):
        return TRACE_TOPIC if trace else ""
    if isinstance(trace, str) and _TOPIC.fullmatch(trace):
        return trace
    raise ConfigError("traceTopic", trace, f"True for {TRACE_TOPIC}, the name of a topic, or False")


_GROUP = re.compile(r"[%|a-zA-Z0-9_-]{1,120}")


@dataclass(frozen=True, slots=True)
class ProducerConfig(ClientConfig):
    """A producer's settings. Names are RocketMQ's in Python's spelling; times in milliseconds, sizes in bytes.

    ``send_msg_timeout_ms`` applies to one send with all its attempts, at most ``retry_times_when_send_failed`` + 1. A
    body of ``compress_msg_body_over_howmuch`` bytes or more is compressed. ``max_delay_level`` is the number of levels
    of the brokers (messageDelayLevel), which treat a higher level as their highest.

    A send waits while ``back_pressure_for_async_send_num`` messages, or ``back_pressure_for_async_send_size`` bytes of
    bodies, are under way. RocketMQ has these limits only with ``enableBackpressureForAsyncMode``, and a send above them
    fails.

    ``trace`` True traces each message to RMQ_SYS_TRACE_TOPIC; a text is the name of another topic. ``hooks`` are called
    before and after each send (:class:`gantrymq.client.hooks.SendMessageHook`).
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
    # RocketMQ has 100 MiB. On a slow link the last of that many bytes would leave after the time limit of a send.
    back_pressure_for_async_send_size: int = key("backPressureForAsyncSendSize", 16 * 1024 * 1024, least=1)
    trace: bool | str = False
    hooks: Sequence[SendMessageHook | EndTransactionHook] = ()

    def __post_init__(self) -> None:
        # super() without arguments does not work in a dataclass with slots.
        super(ProducerConfig, self).__post_init__()
        if not _GROUP.fullmatch(self.producer_group):
            raise ConfigError("producerGroup", self.producer_group, "1 to 120 of ^[%|a-zA-Z0-9_-]+$")
        trace_topic(self.trace)
        check_hooks(self.hooks, of_producer=True)
