"""The server's side of one HTTP/2 connection: bytes in, events out, bytes out.

    connection = ServerConnection(Limits(), now_s)
    for event in connection.receive(data, now_s):
        ...                                         # send_header, send_data, send_trailers, reset, open_window
    transport.write(connection.take())

Headers, windows and resets leave with the next :meth:`ServerConnection.take`, in the order of their calls. DATA waits
for the windows of its stream and of the connection; streams take turns by a frame each.

A stream that ended is forgotten. The client may have sent frames for it before it knew. So the last streams are
remembered: those that the server ended early are forgiven such frames, others are not.

| frame of a stream that | is open | was ended by this server | was ended by both | was never opened |
|---|---|---|---|---|
| HEADERS | trailers | ignored | STREAM_CLOSED | a request, or PROTOCOL_ERROR for a lower number |
| DATA | body | ignored | STREAM_CLOSED | PROTOCOL_ERROR |
| WINDOW_UPDATE, RST_STREAM | as they say | ignored | ignored | PROTOCOL_ERROR |

Raises: nothing for any bytes. A client that breaks the protocol gets GOAWAY, and the last event is ConnectionFailed.
Thread rule: one thread.
Source: RFC 9113.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from gantrymq.http2 import frames
from gantrymq.http2.frames import (
    ACK,
    DEFAULT_WINDOW_BYTES,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEAD_BYTES,
    MAX_FRAME_BYTES,
    MAX_WINDOW_BYTES,
    PREFACE,
    PRIORITY,
    STREAM_MASK,
    ConnectionFault,
    ErrorCode,
    FrameType,
    Setting,
    StreamFault,
    read_word,
)
from gantrymq.http2.headers import HeaderReader, Request
from gantrymq.http2.limits import CostBudget, Limits

_REMEMBERED_STREAMS = 1_024
_MAX_SENT_FRAME_BYTES = 64 << 10
_TAKE_BYTES = 256 << 10
_LOW_WATER_BYTES = 32 << 10
_PRIORITY_BYTES = 5
# Frames that only cost the server something: their length, and their name.
_SHORT_FRAMES = {
    int(kind): (length, kind.name)
    for kind, length in (
        (FrameType.PRIORITY, _PRIORITY_BYTES),
        (FrameType.RST_STREAM, 4),
        (FrameType.PING, 8),
        (FrameType.WINDOW_UPDATE, 4),
    )
}


class RequestReceived(NamedTuple):
    """A request has begun. With ``is_ended`` it has no body."""

    stream_id: int
    request: Request
    is_ended: bool


class DataReceived(NamedTuple):
    """A part of a request's body, which may be empty at its end."""

    stream_id: int
    data: bytes
    is_ended: bool


class StreamReset(NamedTuple):
    """A stream has ended early, by the client or because the client broke the protocol."""

    stream_id: int
    code: int


class ConnectionFailed(NamedTuple):
    """The connection is over, because the client broke the protocol or a limit. What :meth:`take` has says so."""

    code: ErrorCode
    reason: str


Event = RequestReceived | DataReceived | StreamReset | ConnectionFailed


class _Stream:
    """An open stream. ``pending`` is DATA that waits for a window, ``trailers`` the frame after it."""

    __slots__ = (
        "expected_bytes", "is_remote_ended", "pending", "pending_bytes", "receive_window", "send_window", "stream_id",
        "trailers",
    )  # fmt: skip

    def __init__(
        self, stream_id: int, send_window: int, receive_window: int, request: Request, *, is_ended: bool
    ) -> None:
        self.stream_id, self.send_window, self.receive_window = stream_id, send_window, receive_window
        self.is_remote_ended, self.expected_bytes = is_ended, request.content_length_bytes
        self.pending: deque[memoryview] = deque()
        self.pending_bytes = 0
        self.trailers: bytes | None = None

    def note_body(self, size_bytes: int, *, is_ended: bool) -> None:
        """Count the body. Raises StreamFault if it is not as long as content-length says."""
        if self.expected_bytes is not None:
            self.expected_bytes -= size_bytes
            if self.expected_bytes < 0 or (is_ended and self.expected_bytes):
                raise StreamFault(ErrorCode.PROTOCOL_ERROR, "the body is not as long as content-length says")
        self.is_remote_ended = is_ended


class ServerConnection:
    """One connection, from the preface on.

    ``drained`` has the streams whose DATA has nearly all left. ``has_settings``: whether the client has spoken HTTP/2.
    """

    def __init__(self, limits: Limits, now_s: float) -> None:
        self._limits, self._budget = limits, CostBudget(limits, now_s)
        self._headers = HeaderReader(limits.max_header_bytes)
        self._input, self._needed_bytes = bytearray(), len(PREFACE)
        self.has_settings = self._has_preface = self._is_ending = False
        self._block: tuple[int, bool, bytearray] | None = None  # one that CONTINUATION frames continue
        self._streams: dict[int, _Stream] = {}
        self._closed: dict[int, bool] = {}  # the last streams that ended; whether frames for them are forgiven
        self._last_stream_id = self._served_stream_id = 0
        self._send_window = self._initial_window = DEFAULT_WINDOW_BYTES
        self._receive_window, self._uncredited_bytes = limits.connection_window_bytes, 0
        self._sent_frame_bytes = MAX_FRAME_BYTES
        self._ready: dict[int, _Stream] = {}  # with DATA or trailers, and a window of their own
        self.pending_bytes = 0
        self.drained: list[int] = []
        self.is_failed = False
        self._out = [
            frames.settings(
                {
                    Setting.MAX_CONCURRENT_STREAMS: limits.max_streams,
                    Setting.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
                    Setting.MAX_HEADER_LIST_SIZE: limits.max_header_bytes,
                }
            ),
            frames.window_update(0, limits.connection_window_bytes - DEFAULT_WINDOW_BYTES),
        ]

    # What the transport asks

    @property
    def is_finished(self) -> bool:
        """Whether the transport may be closed after :meth:`take`: the connection failed, or was closed and is idle."""
        return self.is_failed or (self._is_ending and not self._streams)

    @property
    def open_streams(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    @property
    def has_output(self) -> bool:
        """Whether :meth:`take` has something to write."""
        return bool(self._out) or (bool(self._ready) and (self._send_window > 0 or self._has_only_trailers()))

    def take(self, *, with_data: bool = True) -> bytes:
        """The bytes to write now, of DATA 256 KiB at most. Without data: what does not wait for a slow reader."""
        if with_data and self._ready:
            size_bytes = 0
            while self._ready and size_bytes < _TAKE_BYTES:
                stream = self._ready.pop(next(iter(self._ready)))
                size_bytes += self._send_frame(stream)
                if self._send_window <= 0 and not self._has_only_trailers():
                    break
        out, self._out = self._out, []
        return b"".join(out)

    # What the caller sends

    def send_header(self, stream_id: int, block: bytes) -> None:
        """Begin the response. A stream that has ended meanwhile is ignored, here and below."""
        if stream_id in self._streams:
            self._out.append(frames.frame(FrameType.HEADERS, END_HEADERS, stream_id, block))

    def send_data(self, stream_id: int, data: bytes) -> int:
        """Queue a part of the body. Returns how much of the stream waits, in bytes."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return 0
        if data:
            stream.pending.append(memoryview(data))
            stream.pending_bytes += len(data)
            self.pending_bytes += len(data)
            self._note_ready(stream)
        return stream.pending_bytes

    def send_trailers(self, stream_id: int, block: bytes) -> None:
        """End the response after its body."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            flags = END_HEADERS | END_STREAM
            stream.trailers = frames.frame(FrameType.HEADERS, flags, stream_id, block)
            self._note_ready(stream)

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        """End a stream early."""
        if stream_id in self._streams:
            self._forget(stream_id, is_forgiven=True)
            self._out.append(frames.rst_stream(stream_id, code))

    def receive_window(self, stream_id: int) -> int:
        """How much the client may send of a stream, in bytes; 0 if it has ended."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None or stream.is_remote_ended else stream.receive_window

    def open_window(self, stream_id: int, increment_bytes: int) -> None:
        """Let the client send more of a stream. The connection's window opens by itself."""
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.is_remote_ended:
            stream.receive_window += increment_bytes
            self._out.append(frames.window_update(stream_id, increment_bytes))

    def close(self) -> None:
        """Take no more requests. Those that have begun are served to their end."""
        if not self._is_ending and not self.is_failed:
            self._is_ending = True
            self._out.append(frames.goaway(self._served_stream_id, ErrorCode.NO_ERROR, "the server is closing"))

    def fail(self, code: ErrorCode, reason: str) -> None:
        """End the connection and all of its streams."""
        if not self.is_failed:
            self.is_failed = True
            self._streams.clear()
            self._ready.clear()
            self._input.clear()
            self.pending_bytes = 0
            self._out.append(frames.goaway(self._served_stream_id, code, reason))

    # What is received

    def receive(self, data: bytes, now_s: float) -> list[Event]:
        """The events of received bytes."""
        events: list[Event] = []
        if self.is_failed:
            return events
        self._budget.pass_time(now_s)
        if self._input:
            self._input += data
            if len(self._input) < self._needed_bytes and self._has_preface:
                return events
            data = bytes(self._input)
            self._input.clear()
        try:
            consumed = self._read(data, events)
        except ConnectionFault as fault:
            self.fail(fault.code, fault.reason)
            events.append(ConnectionFailed(fault.code, fault.reason))
        else:
            self._input += data[consumed:]
        return events

    def _read(self, data: bytes, events: list[Event]) -> int:
        """Read whole frames. Returns how many bytes they have, and notes how many the next one needs."""
        position, end = 0, len(data)
        if not self._has_preface:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "no preface of HTTP/2")
            if end < len(PREFACE):
                return 0
            self._has_preface, position = True, len(PREFACE)
        self._needed_bytes = HEAD_BYTES
        while end - position >= HEAD_BYTES:
            high, low, kind, flags, stream_id = HEAD.unpack_from(data, position)
            length = high << 8 | low
            if length > MAX_FRAME_BYTES:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of more than {MAX_FRAME_BYTES} bytes")
            begin = position + HEAD_BYTES
            if end - begin < length:
                self._needed_bytes = HEAD_BYTES + length
                break
            position = begin + length
            self._read_frame(kind, flags, stream_id & STREAM_MASK, data[begin:position], events)
        return position

    def _read_frame(self, kind: int, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if not self.has_settings:
            if kind != FrameType.SETTINGS or flags & ACK:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self.has_settings = True
        if self._block is not None and (kind != FrameType.CONTINUATION or stream_id != self._block[0]):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a header block is interrupted")
        if kind in _SHORT_FRAMES:
            length, name = _SHORT_FRAMES[kind]
            self._budget.charge(1, name)
            if len(payload) != length:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"{name} has {length} bytes")
        try:
            if kind == FrameType.DATA:
                self._read_data(flags, stream_id, payload, events)
            elif kind == FrameType.HEADERS:
                self._read_headers(flags, stream_id, payload, events)
            elif kind == FrameType.CONTINUATION:
                self._read_continuation(flags, payload, events)
            elif kind == FrameType.WINDOW_UPDATE:
                self._read_window_update(stream_id, payload)
            elif kind == FrameType.RST_STREAM:
                self._read_reset(stream_id, payload, events)
            elif kind == FrameType.PRIORITY:
                _check_priority(stream_id, payload)
            elif kind == FrameType.PUSH_PROMISE:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE of a client")
            else:
                self._read_connection_frame(kind, flags, stream_id, payload)
        except StreamFault as fault:
            self._budget.charge(2, "streams with faults")
            self._out.append(frames.rst_stream(stream_id, fault.code))
            if stream_id in self._streams:
                self._forget(stream_id, is_forgiven=True)
                events.append(StreamReset(stream_id, fault.code))
            elif stream_id not in self._closed:
                self._remember(stream_id, is_forgiven=True)

    # Requests

    def _read_headers(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if not stream_id & 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a request on a stream that no client opens")
        block = frames.without_padding(payload, flags)
        if flags & PRIORITY:
            _check_priority(stream_id, block[:_PRIORITY_BYTES])
            block = block[_PRIORITY_BYTES:]
        is_ended = bool(flags & END_STREAM)
        if flags & END_HEADERS:
            self._read_block(stream_id, block, events, is_ended=is_ended)
        else:
            self._block = stream_id, is_ended, bytearray(block)

    def _read_continuation(self, flags: int, payload: bytes, events: list[Event]) -> None:
        if self._block is None:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of no header block")
        self._budget.charge(1, "CONTINUATION")
        stream_id, is_ended, fragments = self._block
        fragments += payload
        if len(fragments) > self._limits.max_header_bytes:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "the header block is too long")
        if flags & END_HEADERS:
            self._block = None
            self._read_block(stream_id, bytes(fragments), events, is_ended=is_ended)

    def _read_block(self, stream_id: int, block: bytes, events: list[Event], *, is_ended: bool) -> None:
        if stream_id in self._streams:
            self._read_trailers(self._streams[stream_id], block, events, is_ended=is_ended)
            return
        if stream_id <= self._last_stream_id:
            self._headers.skip(block)
            self._check_old(stream_id)
            return
        self._last_stream_id = stream_id
        if self._is_ending:  # the client makes the call on its next connection
            self._headers.skip(block)
            self._remember(stream_id, is_forgiven=True)
            return
        self._served_stream_id = stream_id
        request = self._headers.read_request(block)
        if len(self._streams) >= self._limits.max_streams or self.pending_bytes > self._limits.max_pending_bytes:
            raise StreamFault(ErrorCode.REFUSED_STREAM, "too many streams, or too much that the client does not read")
        window = self._initial_window, self._limits.stream_window_bytes
        stream = self._streams[stream_id] = _Stream(stream_id, *window, request, is_ended=is_ended)
        stream.note_body(0, is_ended=is_ended)
        events.append(RequestReceived(stream_id, request, is_ended))

    def _read_trailers(self, stream: _Stream, block: bytes, events: list[Event], *, is_ended: bool) -> None:
        if stream.is_remote_ended:
            self._headers.skip(block)
            raise StreamFault(ErrorCode.STREAM_CLOSED, "HEADERS after the end of the request")
        self._headers.read_trailers(block)
        if not is_ended:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "trailers without END_STREAM")
        stream.note_body(0, is_ended=True)
        events.append(DataReceived(stream.stream_id, b"", True))

    def _read_data(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        self._receive_window -= len(payload)
        if self._receive_window < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window")
        self._uncredited_bytes += len(payload)
        if self._uncredited_bytes * 2 >= self._limits.connection_window_bytes:
            self._out.append(frames.window_update(0, self._uncredited_bytes))
            self._receive_window += self._uncredited_bytes
            self._uncredited_bytes = 0
        data, is_ended = frames.without_padding(payload, flags), bool(flags & END_STREAM)
        stream = self._streams.get(stream_id)
        if stream is None:
            self._require_opened(stream_id)
            if not self._closed.get(stream_id):
                raise StreamFault(ErrorCode.STREAM_CLOSED, "DATA of a stream that has ended")
            self._budget.charge(1, "DATA of ended streams")
            return
        if stream.is_remote_ended:
            raise StreamFault(ErrorCode.STREAM_CLOSED, "DATA after the end of the request")
        stream.receive_window -= len(payload)
        if stream.receive_window < 0:
            raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the stream's window")
        if not data and not is_ended:
            self._budget.charge(1, "empty DATA")
        stream.note_body(len(data), is_ended=is_ended)
        events.append(DataReceived(stream_id, data, is_ended))

    def _check_old(self, stream_id: int) -> None:
        """Forgive a header block of a stream that this server has ended. Raises ConnectionFault for others."""
        is_forgiven = self._closed.get(stream_id)
        if is_forgiven is None:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the number of a stream is lower than the last one")
        if not is_forgiven:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, "HEADERS of a stream that has ended")
        self._budget.charge(1, "HEADERS of ended streams")

    def _require_opened(self, stream_id: int) -> None:
        if stream_id == 0 or stream_id > self._last_stream_id or not stream_id & 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a frame of a stream that was never opened")

    # Other frames

    def _read_connection_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """SETTINGS, PING, GOAWAY, and frames of unknown types."""
        if kind not in (FrameType.SETTINGS, FrameType.PING, FrameType.GOAWAY):
            self._budget.charge(1, "frames of unknown types")
            return
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{FrameType(kind).name} of a stream")
        if kind == FrameType.SETTINGS:
            self._read_settings(flags, payload)
        elif kind == FrameType.PING:
            if not flags & ACK:
                self._out.append(frames.frame(FrameType.PING, ACK, 0, payload))
        else:
            self._budget.charge(1, "GOAWAY")
            if len(payload) < 8:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY has 8 bytes or more")

    def _read_settings(self, flags: int, payload: bytes) -> None:
        self._budget.charge(10 + len(self._streams) // 100, "SETTINGS")
        if flags & ACK:
            if payload:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS is empty")
            return
        initial_window = self._initial_window
        for setting, value in frames.read_settings(payload):
            if setting == Setting.INITIAL_WINDOW_SIZE:
                if value > MAX_WINDOW_BYTES:
                    raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large")
                initial_window = value
            elif setting == Setting.MAX_FRAME_SIZE:
                if not MAX_FRAME_BYTES <= value < 1 << 24:
                    raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of range")
                self._sent_frame_bytes = min(value, _MAX_SENT_FRAME_BYTES)
            elif setting == Setting.ENABLE_PUSH and value > 1:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
        grown, self._initial_window = initial_window - self._initial_window, initial_window
        if grown:
            for stream in self._streams.values():
                self._open_send_window(stream, grown, ConnectionFault)
        self._out.append(frames.frame(FrameType.SETTINGS, ACK, 0))

    def _read_window_update(self, stream_id: int, payload: bytes) -> None:
        increment = read_word(payload) & STREAM_MASK
        if stream_id:
            self._require_opened(stream_id)
            stream = self._streams.get(stream_id)
            if not increment:
                raise StreamFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
            if stream is not None:
                self._open_send_window(stream, increment, StreamFault)
            return
        if not increment:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
        self._send_window += increment
        if self._send_window > MAX_WINDOW_BYTES:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is too large")

    def _open_send_window(self, stream: _Stream, increment: int, fault: type[ConnectionFault | StreamFault]) -> None:
        stream.send_window += increment
        if stream.send_window > MAX_WINDOW_BYTES:
            raise fault(ErrorCode.FLOW_CONTROL_ERROR, "the window of a stream is too large")
        if stream.pending:
            self._note_ready(stream)

    def _read_reset(self, stream_id: int, payload: bytes, events: list[Event]) -> None:
        self._require_opened(stream_id)
        if stream_id in self._streams:
            self._forget(stream_id, is_forgiven=False)
            events.append(StreamReset(stream_id, read_word(payload)))

    # Streams

    def _note_ready(self, stream: _Stream) -> None:
        """Let a stream take its turn, if its own window lets it send."""
        if stream.send_window > 0 or not stream.pending:
            self._ready[stream.stream_id] = stream

    def _has_only_trailers(self) -> bool:
        """Whether the next stream in turn needs no window."""
        return bool(self._ready) and not next(iter(self._ready.values())).pending

    def _send_frame(self, stream: _Stream) -> int:
        """Send one frame of a stream that may send, and put it behind the others. Returns the size of the DATA."""
        size, limit = 0, min(self._sent_frame_bytes, stream.send_window, self._send_window)
        if stream.pending:
            pieces = []
            while stream.pending and size < limit:
                piece = stream.pending.popleft()
                if len(piece) > limit - size:
                    stream.pending.appendleft(piece[limit - size :])
                    piece = piece[: limit - size]
                pieces.append(piece)
                size += len(piece)
            if size:
                self._out.append(frames.frame(FrameType.DATA, 0, stream.stream_id, b"".join(pieces)))
            self._note_sent(stream, size)
        if stream.pending:
            self._note_ready(stream)
        elif stream.trailers is not None:
            self._end_stream(stream, stream.trailers)
        return size

    def _note_sent(self, stream: _Stream, size_bytes: int) -> None:
        stream.send_window -= size_bytes
        self._send_window -= size_bytes
        was_high = stream.pending_bytes > _LOW_WATER_BYTES
        stream.pending_bytes -= size_bytes
        self.pending_bytes -= size_bytes
        if was_high and stream.pending_bytes <= _LOW_WATER_BYTES:
            self.drained.append(stream.stream_id)
        self._budget.deposit(size_bytes / 1024)

    def _end_stream(self, stream: _Stream, trailers: bytes) -> None:
        self._out.append(trailers)
        if not stream.is_remote_ended:  # a request that is not needed to its end (RFC 9113, 8.1)
            self._out.append(frames.rst_stream(stream.stream_id, ErrorCode.NO_ERROR))
        self._forget(stream.stream_id, is_forgiven=not stream.is_remote_ended)
        self._budget.deposit(4)

    def _forget(self, stream_id: int, *, is_forgiven: bool) -> None:
        stream = self._streams.pop(stream_id)
        self._ready.pop(stream_id, None)
        self.pending_bytes -= stream.pending_bytes
        self._remember(stream_id, is_forgiven=is_forgiven)

    def _remember(self, stream_id: int, *, is_forgiven: bool) -> None:
        self._closed[stream_id] = is_forgiven
        if len(self._closed) > _REMEMBERED_STREAMS:
            del self._closed[next(iter(self._closed))]


def _check_priority(stream_id: int, payload: bytes) -> None:
    """Raise for a priority that is none. Valid ones are ignored (RFC 9113, 5.3)."""
    if len(payload) != _PRIORITY_BYTES:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS with a part of a priority")
    if not stream_id or read_word(payload) & STREAM_MASK == stream_id:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a priority of no stream, or of one that depends on itself")
