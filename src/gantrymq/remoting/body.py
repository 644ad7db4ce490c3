"""The base of all JSON bodies: RocketMQ's field names, and fastjson's deviations from standard JSON.

fastjson writes the keys of a map without quotes: numbers (``{0:"10.0.0.1:10911"}``) and, for a map by queue, objects
(``{{"brokerName":"a","queueId":0,"topic":"t"}:{…}}``). Both are read. Here a table by queue has the queue's JSON text
as its key; :func:`by_queue` and :func:`keyed` convert it.

Source: RemotingSerializable, and the classes of org.apache.rocketmq.remoting.protocol.body, .route, .heartbeat, .admin.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Struct

from gantrymq.errors import RemotingCommandError
from gantrymq.model import fastjson
from gantrymq.model.java import decode_utf8, encode_utf8
from gantrymq.model.message_queue import MessageQueue

BodyT = TypeVar("BodyT", bound=Struct)
V = TypeVar("V")
_STRING = re.compile(r'"(?>(?:[^"\\]++|\\.)*)"(\s*:)?', re.DOTALL)
_NUMBER = re.compile(r'"-?\d+"\s*:')
_OBJECT_KEY = fastjson.key_pattern(r"\{[^{}]*+\}")  # a queue as a key
_ANY_SIZE = 1 << 62
# Nonstandard JSON needs a slow decoder. Clients that write it send small requests.
LENIENT_REQUEST_BYTES = 64 * 1024


class Body(Struct, kw_only=True, rename="camel"):
    """The base class of all bodies. ``has_queue_keys`` means that a table of it is by queue."""

    has_queue_keys: ClassVar[bool] = False

    @classmethod
    def named(cls, value: Any) -> Any:
        """The value with enum numbers replaced by names, as fastjson reads them."""
        return value

    def encode(self, *, standard: bool = True) -> bytes:
        """The JSON text; fields that are None are left out.

        Without ``standard`` numeric keys are written without quotes.
        """
        raw = _encoded(self)
        if standard and not self.has_queue_keys:
            return raw
        return _STRING.sub(lambda match: _unquoted(match, numbers=not standard), raw.decode()).encode()

    def pieces(self) -> Iterator[bytes]:
        """The text of :meth:`encode` in pieces, one for each entry of a table or list.

        A long body can so be encoded in turns of the event loop.
        """
        return _pieces(self)


def decode_body(body: type[BodyT], raw: bytes, lenient_bytes: int = _ANY_SIZE) -> BodyT:
    """Decode a body from JSON as fastjson does: null means not given. Raises RemotingCommandError.

    ``lenient_bytes`` limits the size of JSON that deviates from the standard or from the body's types.
    """
    try:
        decoded: BodyT = _decoder(body).decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        if len(raw) > lenient_bytes:
            raise RemotingCommandError(f"the body of {len(raw)} bytes is no {body.__name__}: {error}") from None
        return _decode_leniently(body, raw)
    return decoded


def decode_request(body: type[BodyT], raw: bytes) -> BodyT:
    """Decode the body of a request from an untrusted client. Raises RemotingCommandError."""
    return decode_body(body, raw, LENIENT_REQUEST_BYTES)


def decode_edited(body: type[BodyT], raw: bytes) -> BodyT:
    """Decode a body from a file that a person may have edited. It accepts whatever fastjson2 accepts.

    Raises RemotingCommandError.
    """
    try:
        return decode_body(body, raw)
    except RemotingCommandError:
        return _decode_leniently(body, raw, fastjson.loads_edited)


def queue_key(queue: MessageQueue) -> str:
    """The key of a queue in a table: its JSON text."""
    return msgspec.json.encode(queue, order="sorted").decode()


def by_queue(table: Mapping[str, V]) -> dict[MessageQueue, V]:
    """Convert a table to MessageQueue keys. Raises RemotingCommandError if a key is not a queue."""
    return {decode_body(MessageQueue, encode_utf8(key)): value for key, value in table.items()}


def keyed(table: Mapping[MessageQueue, V]) -> dict[str, V]:
    """The inverse of :func:`by_queue`."""
    return {queue_key(queue): value for queue, value in table.items()}


@cache
def _decoder(body: type[Struct]) -> Any:
    return msgspec.json.Decoder(body, strict=False)


def _decode_leniently(body: type[BodyT], raw: bytes, loads: Callable[[str], Any] = fastjson.loads) -> BodyT:
    try:
        value = loads(fastjson.quote_keys(_OBJECT_KEY, decode_utf8(raw)))
        value = _without_nulls(value)
        return msgspec.convert(body.named(value) if issubclass(body, Body) else value, body, strict=False)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RemotingCommandError(f"the body is no {body.__name__}: {error}") from error


def _unquoted(match: re.Match[str], *, numbers: bool) -> str:
    text = match.group()
    if match.group(1) is None:
        return text
    if text.startswith('"{'):
        key: str = json.loads(text[: -len(match.group(1))], strict=False)
        return key + match.group(1)
    return text.replace('"', "") if numbers and _NUMBER.fullmatch(text) else text


def _pieces(value: Any, *, has_queue_keys: bool = False) -> Iterator[bytes]:
    before = b""
    if isinstance(value, Struct):
        has_queue_keys |= isinstance(value, Body) and value.has_queue_keys
        yield b"{"
        for name, attribute in zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True):
            field_value = getattr(value, attribute)
            if field_value is not None:
                yield b'%s"%s":' % (before, name.encode())
                yield from _pieces(field_value, has_queue_keys=has_queue_keys)
                before = b","
        yield b"}"
    elif isinstance(value, dict):
        yield b"{"
        for key, field_value in value.items():
            if field_value is not None:
                is_raw = has_queue_keys and isinstance(key, str) and key.startswith("{")
                yield b"%s%s:" % (before, key.encode() if is_raw else _encoded(str(key)))
                yield from (
                    _pieces(field_value, has_queue_keys=has_queue_keys)
                    if _is_table(field_value)
                    else (_encoded(field_value),)
                )
                before = b","
        yield b"}"
    elif isinstance(value, list):
        yield b"["
        for field_value in value:
            yield before
            yield from (
                _pieces(field_value, has_queue_keys=has_queue_keys)
                if _is_table(field_value)
                else (_encoded(field_value),)
            )
            before = b","
        yield b"]"
    else:
        yield _encoded(value)


def _is_table(value: Any) -> bool:
    """Whether a value may have many entries, or is by queue."""
    return isinstance(value, dict | list) or (isinstance(value, Body) and value.has_queue_keys)


def _encoded(value: Any) -> bytes:
    """The JSON text of a value, without fields that are None."""
    try:
        raw = msgspec.json.encode(value)
        return raw if b"null" not in raw else msgspec.json.encode(_without_nulls(msgspec.to_builtins(value)))
    except UnicodeEncodeError:  # an unpaired surrogate, which Java writes as a question mark
        builtins = _without_nulls(msgspec.to_builtins(value))
        return encode_utf8(json.dumps(builtins, ensure_ascii=False, separators=(",", ":")))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple | set):
        return [_without_nulls(item) for item in value]
    return value
