"""The compressed form of a broker's registration: a zlib stream of counted texts.

    length 4 | data version | count 4 | (length 4 | topic)* | length 4 | filter servers | count 4 | (length 4 | info)*

A topic is a list of words (``name readQueues writeQueues perm filterType attributes``), the rest is JSON. It has no
sysFlag and no order. Brokers before 5.0.0 send no mappings.

Source: RegisterBrokerBody, TopicConfig.encode.
"""

import zlib
from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import Raw

from gantrymq.errors import RemotingCommandError
from gantrymq.model import fastjson
from gantrymq.model.java import decode_utf8, encode_utf8
from gantrymq.remoting.bodies.route import TopicQueueMappingInfo
from gantrymq.remoting.bodies.topic import (
    FILTER_TYPES,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from gantrymq.remoting.body import Body, decode_body
from gantrymq.remoting.header import Int

BodyT = TypeVar("BodyT", bound=Body)

MAX_INFLATED_BYTES = 16 << 20
MAX_TOPICS = 100_000
_MAX_QUOTED_BYTES = 1 << 20  # for JSON that differs from the standard only by numbers as keys, as with static topics
_MAX_LENIENT_BYTES = 512 << 10  # for any other JSON: it is decoded in one call, which holds the GIL
_MAX_SMALL_BYTES = 64 << 10  # for a topic, a data version, the list of filter servers
_MAX_MAPPING_BYTES = 1 << 20  # 65,536 queues
_OBJECTS_A_TOPIC = 3  # the topic, its attributes, its mapping
_COUNT_BYTES = 4
_NOT_STANDARD = (msgspec.MsgspecError, ValueError, RecursionError)


def encode_compressed(body: RegisterBrokerBody) -> bytes:
    """Encode a registration as a broker sends it with ``compressed=true``."""
    wrapper = body.topic_config_serialize_wrapper
    topics = [encode_utf8(_topic_text(topic)) for topic in wrapper.topic_config_table.values()]
    mappings = [mapping.encode() for mapping in wrapper.topic_queue_mapping_info_map.values()]
    parts = [_counted(wrapper.data_version.encode())]
    parts += [_number(len(topics)), *map(_counted, topics)]
    parts += [_counted(msgspec.json.encode(body.filter_server_list))]
    parts += [_number(len(mappings)), *map(_counted, mappings)]
    return zlib.compress(b"".join(parts), zlib.Z_BEST_COMPRESSION)


class _AnyObject(msgspec.Struct, gc=False):
    """An object whose content is ignored."""


class _Objects(Body, kw_only=True):
    """Counts the objects in the tables without keeping them.

    Every entry must be an object, so a table has at most as many entries as the text has opening braces.
    """

    topic_config_table: dict[str, _AnyObject] = msgspec.field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, _AnyObject] = msgspec.field(default_factory=dict)


class _Wrapper(Body, kw_only=True):
    """The wrapper with its topics undecoded."""

    topic_config_table: dict[str, Raw] = msgspec.field(default_factory=dict)
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_queue_mapping_info_map: dict[str, Raw] = msgspec.field(default_factory=dict)


class _Registration(Body, kw_only=True):
    """A registration with its wrapper and its list undecoded."""

    topic_config_serialize_wrapper: Raw = Raw(b"{}")
    filter_server_list: Raw = Raw(b"[]")


def decode_registration(raw: bytes) -> RegisterBrokerBody:
    """Decode a registration from JSON, topic by topic.

    Decoding all of it in one call would hold the GIL for half a second at 12 MB, even for truncated JSON, and so block
    an event loop on another thread. Here the longest step holds the GIL for about 40 ms (290,000 empty topics in 16
    MiB), and for about 30 ms with 90,000 usual topics.

    Raises RemotingCommandError, at once for more than ``MAX_TOPICS`` topics.
    """
    return _decode(RegisterBrokerBody, _registration, raw)


def decode_wrapper(raw: bytes) -> TopicConfigAndMappingSerializeWrapper:
    """Decode the topics of a registration from JSON. Raises as :func:`decode_registration` does."""
    return _decode(TopicConfigAndMappingSerializeWrapper, _wrapper, raw)


def _decode(body: type[BodyT], by_topic: Callable[[bytes], BodyT], raw: bytes) -> BodyT:
    """Decode standard JSON, or JSON with numbers as keys, by ``by_topic``.

    Decode a short text in any form of fastjson.
    """
    try:
        return by_topic(raw)
    except _NOT_STANDARD as error:
        if len(raw) > _MAX_QUOTED_BYTES:
            raise RemotingCommandError(
                f"the body of {len(raw)} bytes is no {body.__name__}: {error}; beyond {_MAX_QUOTED_BYTES} bytes only "
                "standard JSON is read, so a broker with static topics needs compressedRegister=true"
            ) from None
    _check_topics(raw.count(b"{") // _OBJECTS_A_TOPIC)
    try:
        return by_topic(_with_quoted_numbers(raw))
    except _NOT_STANDARD as error:
        if len(raw) > _MAX_LENIENT_BYTES:
            raise RemotingCommandError(f"the body of {len(raw)} bytes is no {body.__name__}: {error}") from None
    return decode_body(body, raw)


def _registration(raw: bytes) -> RegisterBrokerBody:
    shallow = msgspec.json.decode(raw, type=_Registration)
    servers = msgspec.json.decode(_check_small("list of filter servers", shallow.filter_server_list), type=list[str])
    wrapper = _wrapper(bytes(shallow.topic_config_serialize_wrapper))
    return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=servers)


def _wrapper(raw: bytes) -> TopicConfigAndMappingSerializeWrapper:
    _check_topics(raw.count(b"{") // _OBJECTS_A_TOPIC)
    objects = msgspec.json.decode(raw, type=_Objects)
    _check_topics(max(len(objects.topic_config_table), len(objects.topic_queue_mapping_info_map)))
    shallow = msgspec.json.decode(raw, type=_Wrapper)
    wrapper = TopicConfigAndMappingSerializeWrapper(data_version=shallow.data_version)
    for name, topic in shallow.topic_config_table.items():
        wrapper.topic_config_table[name] = decode_body(TopicConfig, _check_small("topic", topic))
    for name, mapping in shallow.topic_queue_mapping_info_map.items():
        wrapper.topic_queue_mapping_info_map[name] = _mapping(bytes(mapping))
    return wrapper


def decode_compressed(raw: bytes) -> RegisterBrokerBody:
    """Decode a compressed registration.

    Raises RemotingCommandError for invalid bytes, if they inflate to more than ``MAX_INFLATED_BYTES``, or if they
    announce more than ``MAX_TOPICS`` topics.
    """
    reader = _Reader(_inflated(raw))
    version = _check_small("DataVersion", reader.text())
    wrapper = TopicConfigAndMappingSerializeWrapper(data_version=decode_body(DataVersion, version))
    for _ in range(_check_topics(reader.number())):
        topic = _topic(decode_utf8(_check_small("topic", reader.text())))
        wrapper.topic_config_table[topic.topic_name or ""] = topic
    servers = _texts(_check_small("list of filter servers", reader.text()))
    for _ in range(0 if reader.at_end else _check_topics(reader.number())):
        mapping = _mapping(reader.text())
        wrapper.topic_queue_mapping_info_map[mapping.topic or ""] = mapping
    return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=servers)


def _check_topics(count: int) -> int:
    if count > MAX_TOPICS:
        raise RemotingCommandError(f"the registration has {count} topics or more, and {MAX_TOPICS} are allowed")
    return count


def _mapping(raw: bytes) -> TopicQueueMappingInfo:
    """Decode the mapping of a static topic. fastjson writes its numeric keys without quotes."""
    if len(raw) > _MAX_MAPPING_BYTES:
        raise RemotingCommandError(f"a mapping of {len(raw)} bytes, more than {_MAX_MAPPING_BYTES}")
    quoted = _with_quoted_numbers(raw) if len(raw) > _MAX_SMALL_BYTES else raw
    return decode_body(TopicQueueMappingInfo, quoted, _MAX_SMALL_BYTES)


def _with_quoted_numbers(raw: bytes) -> bytes:
    return encode_utf8(fastjson.quote_keys(fastjson.NUMBER_KEY, decode_utf8(raw)))


def _check_small(what: str, raw: bytes | Raw) -> bytes:
    size = memoryview(raw).nbytes
    if size > _MAX_SMALL_BYTES:
        raise RemotingCommandError(f"a {what} of {size} bytes in the registration, more than {_MAX_SMALL_BYTES}")
    return bytes(raw)


def _number(value: int) -> bytes:
    return value.to_bytes(_COUNT_BYTES, "big")


def _counted(text: bytes) -> bytes:
    return _number(len(text)) + text


def _topic_text(topic: TopicConfig) -> str:
    attributes = msgspec.json.encode(topic.attributes).decode()
    words = (topic.topic_name, topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_filter_type)
    return " ".join([*map(str, words), attributes])


def _topic(text: str) -> TopicConfig:
    words = text.split(" ")
    if len(words) < 5 or not words[0] or words[4] not in FILTER_TYPES:
        raise RemotingCommandError(f"the body holds no topic: {text[:200]!r}")
    try:
        queues = msgspec.convert(words[1:4], list[Int], strict=False)
    except msgspec.ValidationError as error:
        raise RemotingCommandError(f"the body holds no topic: {text[:200]!r}") from error
    return TopicConfig(
        topic_name=words[0],
        read_queue_nums=queues[0],
        write_queue_nums=queues[1],
        perm=queues[2],
        topic_filter_type=words[4],
        attributes=_attributes(words[5]) if len(words) > 5 else {},
    )


def _attributes(text: str) -> dict[str, str]:
    """The attributes of a topic; empty if the text was cut at a blank, which RocketMQ ignores too."""
    try:
        return msgspec.json.decode(encode_utf8(text), type=dict[str, str])
    except (msgspec.MsgspecError, ValueError):
        return {}


def _texts(raw: bytes) -> list[str]:
    try:
        return msgspec.json.decode(raw, type=list[str] | None) or []
    except (msgspec.MsgspecError, ValueError):
        return []


def _inflated(raw: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(raw, MAX_INFLATED_BYTES)
    except zlib.error as error:
        raise RemotingCommandError(f"the body is not compressed as announced: {error}") from error
    if stream.unconsumed_tail:
        raise RemotingCommandError(f"the body grows beyond {MAX_INFLATED_BYTES} bytes")
    if not stream.eof:
        raise RemotingCommandError("the body is not compressed as announced: it is cut off")
    return inflated


class _Reader:
    """Reads counted texts one after the other. A count is checked against the bytes that are left."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    @property
    def at_end(self) -> bool:
        return self._position >= len(self._data)

    def number(self) -> int:
        value = int.from_bytes(self._take(_COUNT_BYTES), "big", signed=True)
        if value < 0:
            raise RemotingCommandError(f"a count of {value} in the body")
        return value

    def text(self) -> bytes:
        return self._take(self.number())

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise RemotingCommandError("the body ends within a count or a text")
        data = self._data[self._position : end]
        self._position = end
        return data
