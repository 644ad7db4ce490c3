"""The compressed form of a broker's registration: a zlib stream of counted texts.

    length 4 | data version | count 4 | (length 4 | topic)* | length 4 | filter servers | count 4 | (length 4 | info)*

A topic is words (``name readQueues writeQueues perm filterType attributes``), the rest is JSON. A topic's sysFlag and
order are not in it. Before 5.0.0 the mappings are missing.

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

B = TypeVar("B", bound=Body)

MAX_INFLATED_BYTES = 16 << 20
MAX_TOPICS = 100_000
_MAX_QUOTED_BYTES = 1 << 20  # of one whose only departure from JSON is numbers as keys, as with static topics
_MAX_LENIENT_BYTES = 512 << 10  # of any other: it is decoded as a whole, which holds the interpreter's lock
_MAX_SMALL_BYTES = 64 << 10  # of a topic, a data version, the list of filter servers
_MAX_MAPPING_BYTES = 1 << 20  # 65,536 queues
_OBJECTS_A_TOPIC = 3  # itself, its attributes, its mapping
_COUNT_BYTES = 4
_NOT_STANDARD = (msgspec.MsgspecError, ValueError, RecursionError)


def encode_compressed(body: RegisterBrokerBody) -> bytes:
    """The registration as a broker sends it with ``compressed=true``."""
    wrapper = body.topic_config_serialize_wrapper
    topics = [encode_utf8(_topic_text(topic)) for topic in wrapper.topic_config_table.values()]
    mappings = [mapping.encode() for mapping in wrapper.topic_queue_mapping_info_map.values()]
    parts = [_counted(wrapper.data_version.encode())]
    parts += [_number(len(topics)), *map(_counted, topics)]
    parts += [_counted(msgspec.json.encode(body.filter_server_list))]
    parts += [_number(len(mappings)), *map(_counted, mappings)]
    return zlib.compress(b"".join(parts), zlib.Z_BEST_COMPRESSION)


class _AnyObject(msgspec.Struct, gc=False):
    """An object of which nothing is kept."""


class _Objects(Body, kw_only=True):
    """Says that tables hold objects: then there are no more entries in them than opening braces."""

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
    """A registration in JSON, topic by topic; raises RemotingCommandError, and for more than ``MAX_TOPICS`` at once.

    Decoding everything in one call holds the interpreter's lock for half a second at 12 MB, also for JSON that ends
    too early, and so stops an event loop on another thread. Here the longest step holds the lock for about 40 ms
    (290,000 empty topics in 16 MiB); that of 90,000 usual topics for about 30 ms.
    """
    return _decode(RegisterBrokerBody, _registration, raw)


def decode_wrapper(raw: bytes) -> TopicConfigAndMappingSerializeWrapper:
    """The topics of a registration in JSON; raises as :func:`decode_registration` does."""
    return _decode(TopicConfigAndMappingSerializeWrapper, _wrapper, raw)


def _decode(body: type[B], by_topic: Callable[[bytes], B], raw: bytes) -> B:
    """What ``by_topic`` makes of standard JSON, or of JSON with numbers as keys; of a short text in any form."""
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
    """The registration.

    Raises RemotingCommandError for bytes that are none, grow beyond ``MAX_INFLATED_BYTES``, or announce more than
    ``MAX_TOPICS``.
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
    """The mapping of a static topic, whose keys are numbers that fastjson writes without quotes."""
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
    """None where the text is cut at a blank: RocketMQ passes that over."""
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
    """Counted texts, one after the other; no count is believed beyond the bytes there are."""

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
        taken = self._data[self._position : end]
        self._position = end
        return taken
