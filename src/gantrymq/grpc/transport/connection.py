"""The connection of one client: its calls over HTTP/2, over TLS or plain text.

A call whose method takes a single request becomes a task once the request has arrived whole, so that an unfinished one
costs only its bytes. What the calls of one iteration of the event loop send leaves in one write.

A client may cost its own connection only. The limits of HTTP/2 are in :mod:`gantrymq.http2.limits`. In addition:

| a client that | meets |
|---|---|
| says nothing, or not HTTP/2 | the end after 10 s |
| has no calls for ``idle_s`` | GOAWAY |
| sends messages without end | the window of the stream, then RESOURCE_EXHAUSTED |
| reads nothing for 60 s while something waits for it | the end |
| cancels calls faster than they can end | REFUSED_STREAM |

Thread rule: the event loop's thread.
Source: doc/PROTOCOL-HTTP2.md of gRPC.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from gantrymq.errors import RemotingError
from gantrymq.grpc.transport.framing import (
    BEGIN,
    ENCODINGS,
    IDENTITY,
    SUCCESS,
    CallAborted,
    Grants,
    GrpcStatus,
    Inbox,
    prefixed,
    refusal,
    timeout_s,
    trailers,
)
from gantrymq.http2.connection import (
    ConnectionFailed,
    DataReceived,
    Event,
    RequestReceived,
    ServerConnection,
    StreamReset,
)
from gantrymq.http2.frames import ErrorCode
from gantrymq.http2.limits import Limits
from gantrymq.logs import get_logger
from gantrymq.remoting.transport.limited_log import LimitedLog
from gantrymq.remoting.transport.tls import TlsSession

_HANDSHAKE_S = 10.0
_STALL_S = 60.0
_LINGER_S = 5.0  # after the end, for the client to read what it was sent
_HIGH_WATER_BYTES = 256 << 10
_IGNORE_S = 1.0
_MAX_UNREAD_BYTES = 4 << 20  # of answers to PING, SETTINGS and the like
_MAX_STREAM_BYTES = 64 << 10  # that a stream's client has not taken, before the stream waits for it
_MIN_GRANTS_BYTES = 64 << 20
_UNFINISHED_BYTES = 32 << 20  # of unfinished messages beyond the grants

log = get_logger("gantrymq.grpc")


class Method(NamedTuple):
    """A method: what answers its calls, and whether a call has one request or a stream of them."""

    answer: Callable[[GrpcCall], Awaitable[None]]
    has_stream: bool = False


@dataclass(frozen=True)
class GrpcService:
    """What a port serves: the methods by their paths, and the limits of each connection."""

    methods: dict[str, Method]
    max_message_bytes: int
    idle_s: float
    limits: Limits = field(default_factory=Limits)


class GrpcCall:
    """One call. ``metadata`` has the texts of its header, ``request`` the only request of a method without a stream."""

    __slots__ = (
        "_drained", "_link", "_received", "deadline_s", "expiry", "has_begun", "inbox", "is_input_ended", "metadata",
        "method", "request", "stream_id", "task",
    )  # fmt: skip

    def __init__(
        self, link: GrpcConnection, stream_id: int, method: Method, metadata: dict[str, str], inbox: Inbox
    ) -> None:
        self._link, self.stream_id, self.method, self.metadata, self.inbox = link, stream_id, method, metadata, inbox
        self.request = b""
        self.deadline_s: float | None = None
        self.expiry: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.has_begun = self.is_input_ended = False
        self._received: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None

    @property
    def address(self) -> str:
        """``ip:port`` of the client."""
        return self._link.address

    def remaining_s(self) -> float | None:
        """The time until the deadline; None without one."""
        return None if self.deadline_s is None else max(self.deadline_s - self._link.loop.time(), 0.0)

    async def next_request(self) -> bytes | None:
        """The next request of a stream, None after the last. Raises CallAborted for a damaged one."""
        while True:
            message = self._link.read_message(self)
            if message is not None:
                return message
            if self.is_input_ended:
                if len(self.inbox):
                    raise CallAborted(GrpcStatus.INTERNAL, "a stream ends within a message")
                return None
            self._received = self._link.loop.create_future()
            await self._received

    async def send(self, message: bytes) -> None:
        """Send a message. Waits while the client has not taken the earlier ones."""
        if self._link.send_message(self, message) > _MAX_STREAM_BYTES:
            self._drained = self._link.loop.create_future()
            await self._drained

    def wake_reader(self) -> None:
        """Let :meth:`next_request` look again."""
        if self._received is not None and not self._received.done():
            self._received.set_result(None)

    def wake_sender(self) -> None:
        """Let :meth:`send` continue."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)


class GrpcConnection(asyncio.Protocol):
    """The connection of a client. It is in ``connections`` from its begin to its end.

    ``session`` returns the TLS session of a connection that begins with a byte, None for plain text; it raises
    RemotingError for what is not answered. ``tasks`` has the calls under way.
    """

    def __init__(
        self,
        service: GrpcService,
        connections: set[GrpcConnection],
        session: Callable[[int], TlsSession | None],
        limited_log: LimitedLog,
    ) -> None:
        self._service, self._connections, self._session, self._log = service, connections, session, limited_log
        self.loop = asyncio.get_running_loop()
        self.address = "unknown"
        self.tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None
        self._tls: TlsSession | None = None
        self._has_spoken = self._is_over = self._is_paused = self._is_flush_due = False
        self._idle_since_s = self.loop.time()
        self._stalled_since_s: float | None = None
        self._http = ServerConnection(service.limits, self._idle_since_s)
        self._calls: dict[int, GrpcCall] = {}
        self._refused: set[int] = set()  # open streams that are no calls
        self._grants = Grants(max(service.max_message_bytes, _MIN_GRANTS_BYTES))
        self._unfinished_bytes = 0
        self._max_unfinished_bytes = max(service.max_message_bytes, _MIN_GRANTS_BYTES) + _UNFINISHED_BYTES

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        host, peer_port = transport.get_extra_info("peername")[:2]
        self.address = f"[{host}]:{peer_port}" if ":" in host else f"{host}:{peer_port}"
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio with bytes of the client."""
        if self._is_over:
            return
        try:
            if not self._has_spoken:
                self._tls = self._session(data[0])
                self._has_spoken = True
            if self._tls is not None:
                data = self._tls.receive(data)
                self._write(self._tls.take())
        except (RemotingError, ssl.SSLError) as error:
            self._log.warning("gRPC connection closed", address=self.address, reason=str(error))
            self.end()
            return
        if data:
            for event in self._http.receive(data, self.loop.time()):
                self._handle(event)
            if self._http.has_output:
                self.schedule_flush()
        if self._tls is not None and (self._tls.error is not None or self._tls.is_over):
            self.end()

    def pause_writing(self) -> None:
        """Called by asyncio when the client reads too slowly."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Called by asyncio when the client has caught up."""
        self._is_paused, self._stalled_since_s = False, None
        self.schedule_flush()

    def eof_received(self) -> bool:
        """Called by asyncio when the client sends no more. Its connection ends."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio when the connection is closed."""
        self._is_over = True
        self._connections.discard(self)
        for call in list(self._calls.values()):
            self._drop(call)

    # The connection

    def check(self, now_s: float) -> None:
        """End the connection if the client is silent, idle, or does not read. The port calls it every few seconds."""
        if self._is_paused or self._http.pending_bytes:
            self._stalled_since_s = now_s if self._stalled_since_s is None else self._stalled_since_s
            if now_s - self._stalled_since_s >= _STALL_S:
                self._log.warning("gRPC connection closed", address=self.address, reason="the client does not read")
                self.abort()
        elif not self._http.has_settings and now_s - self._idle_since_s >= _HANDSHAKE_S:
            self.end()
        elif not self._http.open_streams and now_s - self._idle_since_s >= self._service.idle_s:
            self.begin_close()

    def begin_close(self) -> None:
        """Take no more calls. The connection ends with those that are under way."""
        self._http.close()
        self.schedule_flush()

    def end(self) -> None:
        """End the calls that are under way, and the connection once the client has read what it was sent."""
        if self._is_over or self._transport is None:
            return
        for call in list(self._calls.values()):
            self._abort(call, GrpcStatus.UNAVAILABLE, "the server is closing")
        self._write_output(self._transport)
        self._is_over = True
        if self._http.is_failed:
            # A socket that is closed with unread bytes takes back what was sent, and the client never sees GOAWAY. So
            # what is on its way is read and ignored for a second.
            self._transport.write_eof()
            self.loop.call_later(_IGNORE_S, self._transport.abort)
            return
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self.loop.call_later(_LINGER_S, self._transport.abort)

    def abort(self) -> None:
        """Break the connection."""
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()

    def schedule_flush(self) -> None:
        """Write what is to be sent at the end of this iteration of the event loop."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._is_over or self._transport is None:
            return
        self._write_output(self._transport)
        drained, self._http.drained = self._http.drained, []
        for stream_id in drained:
            if stream_id in self._calls:
                self._calls[stream_id].wake_sender()
        if self._http.is_finished:
            self.end()

    def _write_output(self, transport: asyncio.Transport) -> None:
        while out := self._http.take(with_data=not self._is_paused):
            if not self._is_paused:
                self._stalled_since_s = None
            if self._tls is not None:
                self._tls.send(out)
                out = self._tls.take()
            self._write(out)
            if self._is_paused and transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
                self._log.warning("gRPC connection closed", address=self.address, reason="the client does not read")
                self.abort()
                return

    def _write(self, data: bytes) -> None:
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # Events

    def _handle(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            call = self._calls.get(event.stream_id)
            if call is None:
                if event.is_ended:
                    self._end_refused(event.stream_id)
                return
            try:
                self._receive_body(call, event)
            except CallAborted as error:
                self._abort(call, error.status, error.text)
        elif isinstance(event, RequestReceived):
            self._begin(event)
        elif isinstance(event, StreamReset):
            self._refused.discard(event.stream_id)
            call = self._calls.get(event.stream_id)
            if call is not None:
                self._drop(call)
        elif isinstance(event, ConnectionFailed):
            reason = f"{event.code.name}: {event.reason}"
            self._log.warning("gRPC connection closed", address=self.address, reason=reason)
            for call in list(self._calls.values()):
                self._drop(call)

    def _begin(self, event: RequestReceived) -> None:
        stream_id, request, fields = event.stream_id, event.request, event.request.fields
        if request.method != "POST":
            self._refuse(event, 405, "a call is a POST")
            return
        if not fields.get("content-type", "").startswith("application/grpc"):
            self._refuse(event, 415, "the content-type of a call is application/grpc")
            return
        method, encoding = self._service.methods.get(request.path), fields.get("grpc-encoding", IDENTITY)
        if method is None:
            self._answer_at_once(stream_id, GrpcStatus.UNIMPLEMENTED, f"Method not found: {request.path[1:]}")
        elif encoding not in ENCODINGS:
            self._answer_at_once(stream_id, GrpcStatus.UNIMPLEMENTED, f"Can't find decompressor for {encoding}")
        elif len(self.tasks) >= self._service.limits.max_streams:
            self._http.reset(stream_id, ErrorCode.REFUSED_STREAM)  # cancelled calls that have not ended yet
        else:
            call = GrpcCall(self, stream_id, method, fields, Inbox(encoding, self._service.max_message_bytes))
            self._calls[stream_id] = call
            timeout = fields.get("grpc-timeout")
            wait_s = None if timeout is None else timeout_s(timeout)
            if wait_s is not None:
                call.deadline_s = self.loop.time() + wait_s
                text = "the deadline is exceeded"
                call.expiry = self.loop.call_later(wait_s, self._abort, call, GrpcStatus.DEADLINE_EXCEEDED, text)
            if method.has_stream:
                self._start(call)
            if event.is_ended:
                self._end_input(call)

    def _refuse(self, event: RequestReceived, http_status: int, text: str) -> None:
        """Answer a request of HTTP that is no call. The answer ends after the request, whose body is not read."""
        self._http.send_header(event.stream_id, refusal(http_status))
        self._http.send_data(event.stream_id, f"{text}\n".encode())
        self._refused.add(event.stream_id)
        if event.is_ended:
            self._end_refused(event.stream_id)

    def _end_refused(self, stream_id: int) -> None:
        if stream_id in self._refused:
            self._refused.discard(stream_id)
            self._http.send_trailers(stream_id, trailers(GrpcStatus.INTERNAL, "not a call", is_only=False))

    def _answer_at_once(self, stream_id: int, status: GrpcStatus, text: str) -> None:
        self._http.send_trailers(stream_id, trailers(status, text, is_only=True))

    def _receive_body(self, call: GrpcCall, event: DataReceived) -> None:
        call.inbox.add(event.data)
        self._unfinished_bytes += len(event.data)
        if self._unfinished_bytes > self._max_unfinished_bytes:
            raise CallAborted(GrpcStatus.RESOURCE_EXHAUSTED, "too many unfinished messages on this connection")
        self._let_arrive(call)
        if event.is_ended:
            self._end_input(call)
        else:
            call.wake_reader()

    def _let_arrive(self, call: GrpcCall) -> None:
        """Open the window of a stream to the end of its next message. Raises CallAborted if that is too long."""
        beyond_bytes = call.inbox.missing_bytes() - self._http.receive_window(call.stream_id)
        if beyond_bytes > 0:
            for granted in self._grants.request(call.stream_id, beyond_bytes):
                self._http.open_window(*granted)

    def _end_input(self, call: GrpcCall) -> None:
        call.is_input_ended = True
        if call.method.has_stream:
            call.wake_reader()
            return
        try:
            request = self.read_message(call)
            if request is None:
                raise CallAborted(GrpcStatus.INTERNAL, "Half-closed without a request")
            if len(call.inbox):
                raise CallAborted(GrpcStatus.INTERNAL, "Too many requests")
        except CallAborted as error:
            self._abort(call, error.status, error.text)
            return
        call.request = request
        self._start(call)

    def _start(self, call: GrpcCall) -> None:
        call.task = self.loop.create_task(self._answer(call))
        self.tasks.add(call.task)
        call.task.add_done_callback(self.tasks.discard)

    async def _answer(self, call: GrpcCall) -> None:
        try:
            await call.method.answer(call)
        except CallAborted as error:
            self._finish(call, error.status, error.text)
        except Exception as error:
            log.exception("a gRPC call failed", exc_info=error)
            self._finish(call, GrpcStatus.UNKNOWN, type(error).__name__)
        else:
            self._finish(call, GrpcStatus.OK, "")

    # Calls

    def read_message(self, call: GrpcCall) -> bytes | None:
        """The next message of a call, None if it has not come. Raises CallAborted for a damaged one."""
        before_bytes = len(call.inbox)
        message = call.inbox.next()
        self._unfinished_bytes -= before_bytes - len(call.inbox)
        if call.method.has_stream and message is not None and not call.is_input_ended:
            self._release(call)
            spent_bytes = self._service.limits.stream_window_bytes - self._http.receive_window(call.stream_id)
            if spent_bytes * 2 > self._service.limits.stream_window_bytes:
                self._http.open_window(call.stream_id, spent_bytes)
            self._let_arrive(call)
            self.schedule_flush()
        return message

    def send_message(self, call: GrpcCall, message: bytes) -> int:
        """Send a message of a call. Returns how much of the call waits to be sent, in bytes."""
        if not call.has_begun:
            call.has_begun = True
            self._http.send_header(call.stream_id, BEGIN)
        self.schedule_flush()
        return self._http.send_data(call.stream_id, prefixed(message))

    def _finish(self, call: GrpcCall, status: GrpcStatus, text: str) -> None:
        if self._calls.pop(call.stream_id, None) is None:
            return
        self._forget(call)
        is_success = status is GrpcStatus.OK and call.has_begun
        block = SUCCESS if is_success else trailers(status, text, is_only=not call.has_begun)
        self._http.send_trailers(call.stream_id, block)
        self.schedule_flush()

    def _abort(self, call: GrpcCall, status: GrpcStatus, text: str) -> None:
        """End a call from outside of its task."""
        self._finish(call, status, text)
        if call.task is not None:
            call.task.cancel()

    def _drop(self, call: GrpcCall) -> None:
        """End a call that has no client any more."""
        del self._calls[call.stream_id]
        self._forget(call)
        if call.task is not None:
            call.task.cancel()

    def _forget(self, call: GrpcCall) -> None:
        if call.expiry is not None:
            call.expiry.cancel()
        self._unfinished_bytes -= len(call.inbox)
        self._release(call)
        if not self._calls:
            self._idle_since_s = self.loop.time()

    def _release(self, call: GrpcCall) -> None:
        for granted in self._grants.release(call.stream_id):
            self._http.open_window(*granted)
