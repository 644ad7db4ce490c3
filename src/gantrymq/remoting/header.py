"""The base of all typed headers. Their fields are sent as texts in a command's extFields.

A header class has field names in Python's spelling; on the wire they have RocketMQ's. A field without a default is
required (RocketMQ's ``@CFNotNull``): without it the command is refused with RocketMQ's text. RocketMQ 5.5.0 itself only
logs the missing field and continues with null.

Source: RemotingCommand.decodeCommandCustomHeader and makeCustomHeaderToNet, RpcRequestHeader, TopicRequestHeader.
"""

from functools import cache
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Raw, Struct

from gantrymq.errors import RemotingCommandError
from gantrymq.model.java import parse_number

Int = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Long = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class CommandHeader(Struct, kw_only=True, rename="camel", omit_defaults=False):
    """The base class of all typed headers (CommandCustomHeader)."""

    def to_ext_fields(self) -> dict[str, str]:
        """The fields as texts by their names on the wire. Fields that are None are left out."""
        return {
            name: value if type(value) is str else _text(value)
            for name, value in zip(self.__struct_encode_fields__, msgspec.structs.astuple(self), strict=True)
            if value is not None
        }


class RpcHeader(CommandHeader):
    """Fields that a proxy adds to a request: namespace, whether it is applied, the target broker, one-way."""

    ns: str | None = None
    nsd: bool | None = None
    bname: str | None = None
    oway: bool | None = None


class TopicHeader(RpcHeader):
    """A request about a topic. ``lo`` says that its queue ids are logical ones (static topics)."""

    lo: bool | None = None


HeaderT = TypeVar("HeaderT", bound=CommandHeader)


class _Field(NamedTuple):
    attribute: str
    name: str
    kind: type
    limit: int
    required: bool


def header_from_json(header: type[HeaderT], ext_fields: Raw) -> HeaderT | None:
    """Decode a header from extFields in JSON. None if only Java's more lenient parsers can read it."""
    try:
        decoded: HeaderT = _json_decoder(header).decode(ext_fields)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return decoded


@cache
def _json_decoder(header: type[HeaderT]) -> Any:
    return msgspec.json.Decoder(header, strict=False)


def header_from_texts(header: type[HeaderT], fields: dict[str, str]) -> HeaderT:
    """Make a header from texts. Raises RemotingCommandError, which names the field that is missing or not a number."""
    try:
        return msgspec.convert(fields, header, strict=False)
    except msgspec.ValidationError:
        return _as_java_parses(header, fields)


def _as_java_parses(header: type[HeaderT], fields: dict[str, str]) -> HeaderT:
    """As :func:`header_from_texts`, with Java's parseInt, parseLong and parseBoolean, which accept a little more."""
    values: dict[str, Any] = {}
    for field in _fields(header):
        text = fields.get(field.name)
        if text is not None:
            values[field.attribute] = _parse(field, text)
        elif field.required:
            raise RemotingCommandError(f"the custom field <{field.name}> is null")
    return header(**values)


@cache
def _fields(header: type[CommandHeader]) -> tuple[_Field, ...]:
    header_fields = []
    for field in msgspec.structs.fields(header):
        # `X | None` is types.UnionType, but Union if X is Annotated.
        options = (
            [part for part in get_args(field.type) if part is not NoneType] if _is_union(field.type) else [field.type]
        )
        kind, limit = options[0], 0
        if get_origin(kind) is Annotated:
            kind, meta = get_args(kind)
            limit = meta.le
        header_fields.append(_Field(field.name, field.encode_name, kind, limit, field.required))
    return tuple(header_fields)


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) is Union or type(annotation).__name__ == "UnionType"


def _parse(field: _Field, text: str) -> str | int | bool:
    if field.kind is str:
        return text
    if field.kind is bool:
        return text.lower() == "true"
    try:
        return parse_number(text, field.limit)
    except ValueError:
        raise RemotingCommandError(f"the custom field <{field.name}> is not a valid number: {text[:64]!r}") from None


def _text(value: Any) -> str:
    if value is True:
        return "true"
    return "false" if value is False else str(value)
