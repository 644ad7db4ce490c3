"""One end of a connection without its socket: bytes in, commands out; and the table of those who wait for an answer.

    connection = Connection()
    for command in connection.receive(data): ...

Source: NettyDecoder, NettyRemotingAbstract (responseTable, scanResponseTable).
"""

import heapq
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from gantrymq.errors import RemotingCommandError
from gantrymq.remoting.command import FRAME_HEAD, MAX_FRAME_BYTES, RemotingCommand, decode_command
from gantrymq.remoting.command_run import CommandRun
from gantrymq.remoting.other_protocols import other_protocol

T = TypeVar("T")

MAX_HEADER_KEY = "maxRequestHeaderBytes"
_ALL = 1 << 62
_MAX_OPAQUE = 0x7FFFFFFF
_HEADER_LENGTH_MASK = 0xFFFFFF
_STALE_DEADLINES = 1024  # so many of requests that were answered may lie about
_SMALL_CHUNK_BYTES = 16 * 1024  # each costs its object, with asyncio whole pages, and next to no time to copy
_LARGE_BYTES = 64 * 1024  # of a larger frame the header is looked at before its body is there
_SHORTEST = 4  # what the length field counts at least: the word that holds the header's length


class FindRun(Protocol):
    """Finds requests that are answered together, all with this ``code``."""

    code: int

    def __call__(self, data: bytes, begin: int) -> CommandRun | None:
        """Those at ``data[begin:]``, where a whole frame stands and another begins; None where it is no run."""
        ...


class Connection:
    """Cuts a stream of bytes into commands.

    With ``find_run`` requests of its code that come together stay together, from the second of a connection on.

    A chunk that holds whole frames is decoded where it lies. Of a frame that is not complete large chunks are kept
    apart and joined once, so that it costs one copy; small ones are gathered as they come, so that it takes about what
    ``buffered_bytes`` says, however a stranger cuts it. A length is checked as soon as its eight bytes are there.

    ``max_body_bytes(code)`` is how long the body of a request may be. A longer one, of a frame that comes in several
    chunks, is not kept: the request is given without it as soon as its header is there, with ``refused_bytes``.

    ``error`` is set by what can be no frame. The stream has lost its frames then: close it. The error has no traceback:
    one would hold the frame's bytes and this object in a cycle, until a full garbage collection.
    """

    def __init__(
        self,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        find_run: FindRun | None = None,
        max_header_bytes: int = MAX_FRAME_BYTES,
        max_body_bytes: Callable[[int], int] | None = None,
    ) -> None:
        self._max_body_bytes = max_body_bytes
        self._skip_bytes = 0  # that are to come of a body that is not kept
        self._max_frame_bytes, self._max_header_bytes, self._find_run = max_frame_bytes, max_header_bytes, find_run
        self._last_code = -1
        self._chunks: list[bytes | bytearray] = []
        self._have = 0
        self._need = FRAME_HEAD.size
        self._left, self._left_at = b"", 0  # whole frames that were not asked for yet
        self.error: RemotingCommandError | None = None

    @property
    def buffered_bytes(self) -> int:
        """How many bytes of a frame that is not complete are held."""
        return self._have

    @property
    def left_bytes(self) -> int:
        """How many bytes of whole frames are held that were not asked for yet."""
        return len(self._left) - self._left_at if self._left else 0

    @property
    def next_bytes(self) -> int:
        """How long the first frame is that was not asked for yet; 0 where there is none."""
        return int(FRAME_HEAD.unpack_from(self._left, self._left_at)[0]) + 4 if self._left else 0

    @property
    def has_more(self) -> bool:
        """Whether ``receive(b"")`` gives further commands, or an error."""
        return bool(self._left)

    def receive(self, data: bytes, most: int = _ALL) -> list[RemotingCommand]:
        """The first ``most`` commands that ``data`` completes; while :attr:`has_more`, ``receive(b"")`` gives the next.

        Raises RemotingCommandError, and sets ``error``, where there are no commands in front of what can be no frame.
        """
        commands: list[RemotingCommand] = []
        reason = self._receive(data, most, commands)
        if reason is not None:
            self.error = RemotingCommandError(reason)
            if not commands:
                raise RemotingCommandError(reason)
        return commands

    def _receive(self, data: bytes, most: int, commands: list[RemotingCommand]) -> str | None:
        """Decode into ``commands``; why the stream goes no further, or None."""
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
            self._decode(data, position, most, commands)
        except RemotingCommandError as error:
            self._have = 0
            return str(error)
        return None

    def _decode(self, data: bytes, position: int, most: int, commands: list[RemotingCommand]) -> None:
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
                    need = body_at - position  # to look at its header first
                    break
                if len(commands) >= most:
                    self._left, self._left_at, self._have = data, position, 0
                    return
                refused = self._refused(word >> 24, data[position + FRAME_HEAD.size : body_at], end - body_at)
                if refused is None:
                    break
                commands.append(refused)
                self._last_code = refused.code
                self._skip_bytes, self._have, self._need = end - size, 0, FRAME_HEAD.size
                return
            if len(commands) >= most:
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

    def _refused(self, serialize_type: int, header: bytes, body_bytes: int) -> RemotingCommand | None:
        """The request without its body, where that is too long; None where all of it is wanted."""
        command = decode_command(serialize_type, header, b"")
        if command.is_response or self._max_body_bytes is None or body_bytes <= self._max_body_bytes(command.code):
            return None
        command.refused_bytes = body_bytes
        return command

    def _run_at(self, data: bytes, position: int, end: int) -> CommandRun | None:
        """A run that begins with the frame at ``data[position:end]``, where there is hope for one."""
        find = self._find_run
        if find is None or find.code != self._last_code or end + FRAME_HEAD.size > len(data):
            return None
        return find(data, position)

    def _wrong_lengths(self, data: bytes, position: int) -> str:
        """What is wrong with the lengths of a frame, and which other protocol its bytes belong to."""
        length, word = FRAME_HEAD.unpack_from(data, position)
        header_length = word & _HEADER_LENGTH_MASK
        if length + 4 > self._max_frame_bytes:
            wrong = f"a frame of {length + 4} bytes is larger than {self._max_frame_bytes}"
        elif header_length > length - _SHORTEST:
            wrong = f"a header of {header_length} bytes in a frame of {length + 4}"
        else:
            wrong = f"a header of {header_length} bytes is larger than {self._max_header_bytes} ({MAX_HEADER_KEY})"
        spoken = other_protocol(data[position : position + FRAME_HEAD.size])
        return f"{spoken} (read as RocketMQ's remoting: {wrong})" if spoken else wrong

    def _hold(self, data: bytes) -> None:
        """One more chunk of the frame that is not complete."""
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
    """The requests of a run, one by one."""
    return Connection().receive(run.data[run.begin : run.end])


class PendingRequests(Generic[T]):
    """Who waits for which answer until when. Time is given, in any unit that only grows.

    ``T`` is whatever is to be told of the answer: a future, a callback. Thread rule: one thread at a time.
    """

    def __init__(self, first_opaque: int = 0) -> None:
        self._next = first_opaque
        self._waiting: dict[int, T] = {}
        self._deadlines: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def new_opaque(self) -> int:
        """A number that nobody waits for."""
        while True:
            opaque = self._next
            self._next = (opaque + 1) & _MAX_OPAQUE
            if opaque not in self._waiting:
                return opaque

    def add(self, waiter: T, deadline: float) -> int:
        """Wait for an answer until ``deadline``; the opaque to send."""
        opaque = self.new_opaque()
        self._waiting[opaque] = waiter
        if len(self._deadlines) > 2 * len(self._waiting) + _STALE_DEADLINES:
            self._deadlines = [one for one in self._deadlines if one[1] in self._waiting]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (deadline, opaque))
        return opaque

    def take(self, opaque: int) -> T | None:
        """Who waits for the answer with this opaque, no longer waiting now; None if nobody does (any more)."""
        waiter = self._waiting.pop(opaque, None)
        if not self._waiting:
            self._deadlines.clear()
        return waiter

    def next_deadline(self) -> float | None:
        """The deadline of the one who waits least long; None if nobody waits."""
        while self._deadlines and self._deadlines[0][1] not in self._waiting:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expired(self, now: float) -> list[T]:
        """Those whose deadline is past, no longer waiting now."""
        late = []
        while self._deadlines and self._deadlines[0][0] <= now:
            waiter = self._waiting.pop(heapq.heappop(self._deadlines)[1], None)
            if waiter is not None:
                late.append(waiter)
        return late

    def take_all(self) -> list[T]:
        """All who wait, no longer waiting now: the connection is gone."""
        everybody = list(self._waiting.values())
        self._waiting.clear()
        self._deadlines.clear()
        return everybody
