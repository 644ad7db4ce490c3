"""The state of a connection without its socket: bytes in, commands out, and the table of pending requests.

    connection = Connection()
    for command in connection.receive(data): ...

A stream that does not begin with a frame is named by its protocol (HTTP, TLS, Kafka, …), for a helpful error when a
client uses the wrong port.

Source: NettyDecoder, NettyRemotingAbstract (responseTable, scanResponseTable).
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from gantrymq.errors import RemotingCommandError
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import FRAME_HEAD, MAX_FRAME_BYTES, CommandRun, RemotingCommand, decode_command

T = TypeVar("T")

MAX_HEADER_KEY = "maxRequestHeaderBytes"
_ALL = 1 << 62
_MAX_OPAQUE = 0x7FFFFFFF
_HEADER_LENGTH_MASK = 0xFFFFFF
_STALE_DEADLINES = 1024  # entries of answered requests that may stay in the heap
_SMALL_CHUNK_BYTES = 16 * 1024  # each chunk has a cost as an object, with asyncio whole pages; copying it is cheap
_LARGE_BYTES = 64 * 1024  # the header of a larger frame is examined before its body has arrived
_SHORTEST = 4  # the smallest value of the length field, which counts the header length word
# A producer's decisions and half messages; most of them are in runs.
_SHORT_WORK = frozenset((int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.END_TRANSACTION)))
_MAX_TOGETHER, _SHORT_BYTES = 8, 16 * 1024
_REMOTING_ONLY = "this port speaks only RocketMQ's remoting protocol"
_HTTP = f"HTTP was spoken; {_REMOTING_ONLY}"
_HTTP_METHODS = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"TRACE ", b"CONNECT ")
_REDIS = f"Redis was spoken; {_REMOTING_ONLY}"
_FIRST_BYTES = (
    (b"PRI * HT", f"HTTP/2 was spoken, as gRPC clients do; they need a RocketMQ proxy: {_REMOTING_ONLY}"),
    *((method, _HTTP) for method in _HTTP_METHODS),
    (b"HTTP/", "an HTTP server answered: this is no RocketMQ address"),
    *((word, _REDIS) for word in (b"*1\r\n$", b"*2\r\n$", b"*3\r\n$", b"PING\r\n", b"INFO\r\n", b"AUTH ")),
    (b"SSH-", f"SSH was spoken; {_REMOTING_ONLY}"),
    (b"AMQP", f"AMQP was spoken; {_REMOTING_ONLY}"),
    (b"STOMP", f"STOMP was spoken; {_REMOTING_ONLY}"),
    (b"PROXY ", "the PROXY protocol was spoken, which is not read here: turn it off at the load balancer"),
    (b"\r\n\r\n\0\r\nQ", "the PROXY protocol was spoken, which is not read here: turn it off at the load balancer"),
    (b"\x16\x03", "TLS was spoken where it is off"),
    (b"\x15\x03", "the peer sent a TLS alert and ended the TLS handshake"),
)
_MQTT = b"\0\4MQTT"
_KAFKA_API_VERSIONS, _KAFKA_NEWEST_VERSION = b"\0\x12\0", 16


class FindRun(Protocol):
    """Finds runs with this ``code``. It is asked behind a request that has one of the codes ``after``."""

    code: int
    after: tuple[int, ...]

    def __call__(self, data: bytes, begin: int) -> CommandRun | None:
        """The run at ``data[begin:]``, which has a whole frame and the head of the next. None if they are no run."""
        ...


FindRuns = Mapping[int, Sequence[FindRun]]  # by the code, in the order in which they are asked


class Connection:
    """Cuts a stream of bytes into commands.

    With ``find_runs``, consecutive requests of one of its codes stay together, from the second such request on.

    A chunk that holds whole frames is decoded in place. The large chunks of an incomplete frame are kept and joined
    once, so that they are copied once. Small chunks are appended to one buffer, so that the memory in use is about
    ``buffered_bytes`` however a client cuts its data. A length is checked as soon as its eight bytes have arrived.

    ``max_body_bytes(code)`` is the limit for a request's body. A longer body of a frame that comes in several chunks is
    dropped: the request is returned without it as soon as its header has arrived, with ``refused_bytes``.

    ``error`` is set by invalid bytes. Frame boundaries are unknown after it, so close the connection. It has no
    traceback, which would keep the frame's bytes and this object alive in a reference cycle until a full garbage
    collection.
    """

    def __init__(
        self,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        find_runs: FindRuns | None = None,
        max_header_bytes: int = MAX_FRAME_BYTES,
        max_body_bytes: Callable[[int], int] | None = None,
    ) -> None:
        self._max_body_bytes = max_body_bytes
        self._skip_bytes = 0  # the rest of a dropped body
        self._max_frame_bytes, self._max_header_bytes = max_frame_bytes, max_header_bytes
        self._find_runs = find_runs or {}
        self._last_code = -1
        self._chunks: list[bytes | bytearray] = []
        self._have = 0
        self._need = FRAME_HEAD.size
        self._left, self._left_at = b"", 0  # whole frames that receive() has not returned yet
        self.error: RemotingCommandError | None = None

    @property
    def buffered_bytes(self) -> int:
        """The size of the incomplete frame, in bytes."""
        return self._have

    @property
    def left_bytes(self) -> int:
        """The size of whole frames that :meth:`receive` has not returned yet, in bytes."""
        return len(self._left) - self._left_at if self._left else 0

    @property
    def next_bytes(self) -> int:
        """The size of the first such frame, or 0."""
        return int(FRAME_HEAD.unpack_from(self._left, self._left_at)[0]) + 4 if self._left else 0

    @property
    def has_more(self) -> bool:
        """Whether ``receive(b"")`` returns further commands, or raises."""
        return bool(self._left)

    def receive(self, data: bytes, max_commands: int = _ALL) -> list[RemotingCommand]:
        """The first ``max_commands`` commands that ``data`` completes; a few more if they are short work of a producer.

        While :attr:`has_more`, ``receive(b"")`` returns the next.

        Raises RemotingCommandError, and sets ``error``, for invalid bytes without a command before them.
        """
        commands: list[RemotingCommand] = []
        reason = self._receive(data, max_commands, commands)
        if reason is not None:
            self.error = RemotingCommandError(reason)
            if not commands:
                raise RemotingCommandError(reason)
        return commands

    def _receive(self, data: bytes, max_commands: int, commands: list[RemotingCommand]) -> str | None:
        """Decode into ``commands``. Returns why the stream is invalid, or None."""
        position = 0
        if self._skip_bytes:
            skipped = min(self._skip_bytes, len(data))
            self._skip_bytes -= skipped
            data = data[skipped:]
        elif self._left:
            data, position = (self._left + data if data else self._left), self._left_at
            self._left = b""
        elif self._chunks:
            self._hold(data)
            if self._have < self._need:
                return None
            data = b"".join(self._chunks)
            self._chunks.clear()
        try:
            self._decode(data, position, max_commands, commands)
        except RemotingCommandError as error:
            self._have = 0
            return str(error)
        return None

    def _decode(self, data: bytes, position: int, max_commands: int, commands: list[RemotingCommand]) -> None:
        size, need = len(data), FRAME_HEAD.size
        while size - position >= FRAME_HEAD.size:
            length, word = FRAME_HEAD.unpack_from(data, position)
            header_length = word & _HEADER_LENGTH_MASK
            if (
                length + 4 > self._max_frame_bytes
                or not _SHORTEST <= header_length + _SHORTEST <= length
                or header_length > self._max_header_bytes
            ):
                raise RemotingCommandError(self._wrong_lengths(data, position))
            end = position + 4 + length
            if end > size:
                need = 4 + length
                if self._max_body_bytes is None or length <= _LARGE_BYTES:
                    break
                body_at = position + FRAME_HEAD.size + header_length
                if body_at > size:
                    need = body_at - position  # examine its header first
                    break
                if len(commands) >= max_commands:
                    self._left, self._left_at, self._have = data, position, 0
                    return
                refused = self._refused(word >> 24, data[position + FRAME_HEAD.size : body_at], end - body_at)
                if refused is None:
                    break
                commands.append(refused)
                self._last_code = refused.code
                self._skip_bytes, self._have, self._need = end - size, 0, FRAME_HEAD.size
                return
            if len(commands) >= max_commands and not self._is_short_work(commands, length):
                self._left, self._left_at, self._have = data, position, 0
                return
            run = self._run_at(data, position, end)
            if run is not None:
                commands.append(run)
                position = run.end
                continue
            body_at = position + FRAME_HEAD.size + header_length
            command = decode_command(word >> 24, data[position + FRAME_HEAD.size : body_at], data[body_at:end])
            commands.append(command)
            self._last_code = command.code
            position = end
        self._keep(data[position:] if position else data, need)

    def _is_short_work(self, commands: list[RemotingCommand], next_bytes: int) -> bool:
        """Whether another command may follow these before the caller looks at the clock. A run is no short work."""
        return (
            0 < len(commands) < _MAX_TOGETHER
            and commands[-1].code in _SHORT_WORK
            and not isinstance(commands[-1], CommandRun)
            and next_bytes <= _SHORT_BYTES
        )

    def _refused(self, serialize_type: int, header: bytes, body_bytes: int) -> RemotingCommand | None:
        """The request without its body, if the body is longer than allowed; otherwise None."""
        command = decode_command(serialize_type, header, b"")
        if command.is_response or self._max_body_bytes is None or body_bytes <= self._max_body_bytes(command.code):
            return None
        command.refused_bytes = body_bytes
        return command

    def _run_at(self, data: bytes, position: int, end: int) -> CommandRun | None:
        """The run that begins with the frame at ``data[position:end]``, or None."""
        finds = self._find_runs.get(self._last_code)
        if finds is not None and end + FRAME_HEAD.size <= len(data):
            for find in finds:
                if (run := find(data, position)) is not None:
                    return run
        return None

    def _wrong_lengths(self, data: bytes, position: int) -> str:
        """An error text: what is wrong with a frame's lengths, and which other protocol its bytes belong to."""
        length, word = FRAME_HEAD.unpack_from(data, position)
        header_length = word & _HEADER_LENGTH_MASK
        if length + 4 > self._max_frame_bytes:
            wrong = f"a frame of {length + 4} bytes is larger than {self._max_frame_bytes}"
        elif header_length > length - _SHORTEST:
            wrong = f"a header of {header_length} bytes in a frame of {length + 4}"
        else:
            wrong = f"a header of {header_length} bytes is larger than {self._max_header_bytes} ({MAX_HEADER_KEY})"
        protocol = other_protocol(data[position : position + FRAME_HEAD.size])
        return f"{protocol} (read as RocketMQ's remoting: {wrong})" if protocol else wrong

    def _hold(self, data: bytes) -> None:
        """Keep another chunk of the incomplete frame."""
        self._have += len(data)
        if len(data) >= _SMALL_CHUNK_BYTES:
            self._chunks.append(data)
        elif isinstance(gathered := self._chunks[-1], bytearray):
            gathered += data
        else:
            self._chunks.append(bytearray(data))

    def _keep(self, rest: bytes, need: int) -> None:
        self._have, self._need = len(rest), need
        if rest:
            self._chunks.append(rest)


def split_run(run: CommandRun) -> list[RemotingCommand]:
    """Decode the requests of a run one by one."""
    requests = Connection().receive(run.data[run.begin : run.end])
    for request in requests:
        request.received_s = run.received_s
    return requests


class PendingRequests(Generic[T]):
    """The pending requests and their deadlines. Times are in any monotonic unit.

    ``T`` is the object that gets the answer: a future, a callback. Thread rule: one thread at a time.
    """

    def __init__(self, first_opaque: int = 0) -> None:
        self._next = first_opaque
        self._waiting: dict[int, T] = {}
        self._deadlines: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def new_opaque(self) -> int:
        """An opaque that no pending request has."""
        while True:
            opaque = self._next
            self._next = (opaque + 1) & _MAX_OPAQUE
            if opaque not in self._waiting:
                return opaque

    def add(self, waiter: T, deadline: float) -> int:
        """Add a pending request with its deadline. Returns the opaque to send."""
        opaque = self.new_opaque()
        self._waiting[opaque] = waiter
        if len(self._deadlines) > 2 * len(self._waiting) + _STALE_DEADLINES:
            self._deadlines = [deadline for deadline in self._deadlines if deadline[1] in self._waiting]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (deadline, opaque))
        return opaque

    def take(self, opaque: int) -> T | None:
        """Remove and return the request with this opaque. None if it is unknown or has expired."""
        waiter = self._waiting.pop(opaque, None)
        if not self._waiting:
            self._deadlines.clear()
        return waiter

    def next_deadline(self) -> float | None:
        """The earliest deadline; None if no request is pending."""
        while self._deadlines and self._deadlines[0][1] not in self._waiting:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expired(self, now: float) -> list[T]:
        """Remove and return the requests whose deadline has passed."""
        late = []
        while self._deadlines and self._deadlines[0][0] <= now:
            waiter = self._waiting.pop(heapq.heappop(self._deadlines)[1], None)
            if waiter is not None:
                late.append(waiter)
        return late

    def take_all(self) -> list[T]:
        """Remove and return all requests, because the connection is closed."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        self._deadlines.clear()
        return waiting


def other_protocol(begin: bytes) -> str | None:
    """A sentence that names the protocol of a stream with these first bytes; None for an unknown one."""
    for first_bytes, reason in _FIRST_BYTES:
        if begin.startswith(first_bytes):
            return reason
    if begin[:1] == b"\x10" and begin[2:8] == _MQTT:
        return f"MQTT was spoken; {_REMOTING_ONLY}"
    if begin[:2] == b"\0\0" and begin[4:7] == _KAFKA_API_VERSIONS and begin[7:8] < bytes([_KAFKA_NEWEST_VERSION]):
        return f"Kafka was spoken; {_REMOTING_ONLY}"
    return None
