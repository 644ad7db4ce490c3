"""Commands (requests, one-way requests and responses) and their frames.

A frame is ``length 4 | serialize type 1, header length 3 | header | body``; the length does not count itself. The
extFields of a received command are decoded only on access, as texts (:attr:`RemotingCommand.ext_fields`) or as a typed
header (:meth:`RemotingCommand.read`).

A broker's most frequent requests are small and arrive by the dozen. Decoding each one costs more than executing it, so
a processor may take a :class:`CommandRun`: the frames of requests of one kind, not decoded into commands.

Source: RemotingCommand.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from msgspec import Raw

from gantrymq.errors import RemotingCommandError
from gantrymq.remoting.codes import VERSION_5_5_0, LanguageCode, SerializeType
from gantrymq.remoting.frame_header import (
    LANGUAGES,
    MAX_CODE,
    decode_binary_header,
    decode_ext_fields,
    decode_json_ext_fields,
    decode_json_header,
    encode_binary_header,
    encode_json_header,
)
from gantrymq.remoting.header import CommandHeader, header_from_json, header_from_texts

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2
MAX_FRAME_BYTES = 16 * 1024 * 1024  # com.rocketmq.remoting.frameMaxLength, the length field included
FRAME_HEAD = struct.Struct(">II")

_JSON, _ROCKETMQ = int(SerializeType.JSON), int(SerializeType.ROCKETMQ)
_PYTHON = int(LanguageCode.PYTHON)
_OTHER = int(LanguageCode.OTHER)

HeaderT = TypeVar("HeaderT", bound=CommandHeader)


class RemotingCommand:
    """One command.

    ``opaque`` matches a response to its request. ``header`` is the typed header of a command to be sent; its fields
    take precedence over ``ext_fields`` of the same name. ``serialize_type`` is the encoding of the header.
    ``refused_bytes`` is the size of a body that was too long and is therefore missing, or 0. ``received_s`` is when a
    request arrived, on the clock of the server's meter, and 0 without a meter. ``is_suspended`` is set for a request
    that waits for a message.

    Thread rule: one thread at a time.
    """

    __slots__ = (
        "_ext_fields",
        "_raw",
        "body",
        "code",
        "flag",
        "header",
        "is_suspended",
        "language",
        "opaque",
        "received_s",
        "refused_bytes",
        "remark",
        "serialize_type",
        "version",
    )

    def __init__(
        self,
        code: int,
        *,
        header: CommandHeader | None = None,
        body: bytes = b"",
        ext_fields: dict[str, str] | None = None,
        remark: str | None = None,
        flag: int = 0,
        opaque: int = 0,
        language: int = _PYTHON,
        version: int = VERSION_5_5_0,
        serialize_type: int = _JSON,
    ) -> None:
        self.code, self.header, self.body, self.remark = code, header, body, remark
        self.flag, self.opaque, self.language, self.version = flag, opaque, language, version
        self.serialize_type = serialize_type
        self._ext_fields = ext_fields
        self._raw: Raw | bytes = b""
        self.refused_bytes = 0
        self.received_s, self.is_suspended = 0.0, False

    @classmethod
    def request(
        cls, header: CommandHeader | int, body: bytes = b"", *, code: int | None = None, oneway: bool = False
    ) -> RemotingCommand:
        """A request from a header, whose class has its request code unless ``code`` is given; or from a code alone."""
        if isinstance(header, int):
            return cls(header, body=body, flag=ONEWAY_FLAG if oneway else 0)
        known: int = header.code if code is None else code  # type: ignore[attr-defined]
        return cls(known, header=header, body=body, flag=ONEWAY_FLAG if oneway else 0)

    def response(
        self, code: int, remark: str | None = None, *, header: CommandHeader | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """The response to this request: same opaque, same header encoding."""
        return RemotingCommand(
            code,
            header=header,
            body=body,
            remark=remark,
            flag=RESPONSE_FLAG,
            opaque=self.opaque,
            serialize_type=self.serialize_type,
        )

    @property
    def is_response(self) -> bool:
        """Whether this is a response."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Whether this is a one-way request, which has no response."""
        return self.flag & ONEWAY_FLAG != 0

    @property
    def content_bytes(self) -> int:
        """The size of the undecoded fields, the remark and the body of a received command, in bytes."""
        raw = self._raw
        return len(self.body) + len(self.remark or "") + (len(memoryview(raw)) if raw else 0)

    @property
    def ext_fields(self) -> dict[str, str]:
        """The header's fields as texts. A change of the dictionary changes the command.

        Raises RemotingCommandError if the received bytes are invalid.
        """
        if self._ext_fields is None:
            if not self._raw:
                self._ext_fields = {}
            elif isinstance(self._raw, Raw):
                self._ext_fields = decode_json_ext_fields(self._raw)
            else:
                self._ext_fields = decode_ext_fields(self._raw)
        return self._ext_fields

    def fields(self) -> dict[str, str]:
        """The extFields to be sent: ``ext_fields``, overridden by the fields of ``header``."""
        if self.header is None:
            return self.ext_fields
        if not self._ext_fields and not self._raw:
            return self.header.to_ext_fields()
        return self.ext_fields | self.header.to_ext_fields()

    def read(self, header: type[HeaderT]) -> HeaderT:
        """Decode the typed header.

        Raises RemotingCommandError, which names the field that is missing or not a number.
        """
        if isinstance(self.header, header):
            return self.header
        if self._ext_fields is None and isinstance(self._raw, Raw):
            return header_from_json(header, self._raw) or header_from_texts(header, self.fields())
        return header_from_texts(header, self.fields())

    @property
    def json_fields(self) -> Raw | None:
        """The received fields in JSON; None if they came in another form, or :attr:`ext_fields` was used."""
        raw = self._raw
        return raw if self._ext_fields is None and isinstance(raw, Raw) else None

    def drop_content(self) -> None:
        """Free the fields and the body of a request that has been processed but not answered yet."""
        self.body, self._raw, self._ext_fields, self.remark = b"", b"", {}, None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotingCommand) and self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]

    def _key(self) -> tuple[object, ...]:
        return (self.code, self.language, self.version, self.opaque, self.flag, self.remark, self.fields(), self.body)

    def __repr__(self) -> str:
        kind = "response" if self.is_response else ("oneway" if self.is_oneway else "request")
        return f"<{kind} {self.code} opaque={self.opaque} remark={self.remark!r} {len(self.body)} bytes>"


def encode_head(command: RemotingCommand, body_bytes: int | None = None) -> bytes:
    """Encode a frame up to its body. ``body_bytes`` is the size of a body that is sent separately, from a file.

    A code that does not fit into the ROCKETMQ form is sent as JSON. Raises RemotingCommandError if the frame is larger
    than the receiver accepts.
    """
    compact = command.serialize_type == _ROCKETMQ and -MAX_CODE - 1 <= command.code <= MAX_CODE
    header = (encode_binary_header if compact else encode_json_header)(
        int(command.code),
        command.language,
        command.version,
        command.opaque,
        command.flag,
        command.remark,
        command.fields(),
    )
    length = 4 + len(header) + (len(command.body) if body_bytes is None else body_bytes)
    if length + 4 > MAX_FRAME_BYTES:
        raise RemotingCommandError(f"a frame of {length + 4} bytes is larger than {MAX_FRAME_BYTES}")
    return FRAME_HEAD.pack(length, len(header) | (_ROCKETMQ << 24 if compact else 0)) + header


def encode_command(command: RemotingCommand) -> bytes:
    """Encode a whole frame. Raises as :func:`encode_head` does."""
    return encode_head(command) + command.body


def decode_command(serialize_type: int, header: bytes, body: bytes) -> RemotingCommand:
    """Decode a command from the parts of its frame. Raises RemotingCommandError."""
    command = RemotingCommand.__new__(RemotingCommand)
    command.body, command.serialize_type = body, serialize_type
    command.header, command._ext_fields, command.refused_bytes = None, None, 0
    command.received_s, command.is_suspended = 0.0, False
    if serialize_type == _JSON:
        parsed = decode_json_header(header)
        command.code, command.version, command.opaque = parsed.code, parsed.version, parsed.opaque
        command.flag, command.remark, command._raw = parsed.flag, parsed.remark, parsed.ext_fields
        command.language = LANGUAGES.get(parsed.language or "", _OTHER)
    elif serialize_type == _ROCKETMQ:
        (
            command.code,
            command.language,
            command.version,
            command.opaque,
            command.flag,
            command.remark,
            command._raw,
        ) = decode_binary_header(header)
    else:
        raise RemotingCommandError(f"no serialize type has the number {serialize_type}")
    return command


class CommandRun(RemotingCommand):
    """The requests whose frames are ``data[begin:end]``, all with this code.

    :func:`gantrymq.remoting.connection.split_run` decodes them one by one.
    """

    __slots__ = ("begin", "data", "end")

    def __init__(self, code: int, data: bytes, begin: int, end: int) -> None:
        super().__init__(code)
        self.data, self.begin, self.end = data, begin, end

    def __len__(self) -> int:
        """The number of requests."""
        raise NotImplementedError

    @property
    def oneway_count(self) -> int:
        """How many of them are one-way."""
        raise NotImplementedError
