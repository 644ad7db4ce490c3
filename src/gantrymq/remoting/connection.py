"""One end of a connection without its socket: bytes in, commands out; and the table of those who wait for an answer.

    connection = Connection()
    for command in connection.receive(data): ...

Source: NettyDecoder, NettyRemotingAbstract (responseTable, scanResponseTable).
"""

import heapq
from typing import Generic, Protocol, TypeVar

from gantrymq.errors import RemotingCommandError
from gantrymq.remoting.command import FRAME_HEAD, MAX_FRAME_BYTES, RemotingCommand, decode_command
from gantrymq.remoting.command_run import CommandRun

T = TypeVar("T")

_MAX_OPAQUE = 0x7FFFFFFF
_HEADER_LENGTH_MASK = 0xFFFFFF
_STALE_DEADLINES = 1024  # so many of requests that were answered may lie about
_SMALL_CHUNK_BYTES = 16 * 1024  # each costs its object, with asyncio whole pages, and next to no time to copy
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
    ``buffered_bytes`` says, however a stranger cuts it.

    ``error`` is set by what can be no frame. The stream has lost its frames then: close it.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES, find_run: FindRun | None = None) -> None:
        self._max_frame_bytes, self._find_run = max_frame_bytes, find_run
        self._last_code = -1
        self._chunks: list[bytes | bytearray] = []
        self._have = 0
        self._need = FRAME_HEAD.size
        self.error: RemotingCommandError | None = None

    @property
    def buffered_bytes(self) -> int:
        """How many bytes of a frame that is not complete are held."""
        return self._have

    def receive(self, data: bytes) -> list[RemotingCommand]:
        """The commands that ``data`` completes, those in front of what can be no frame among them.

        Raises ``error`` where there are none in front of it.
        """
        if self._chunks:
            self._hold(data)
            if self._have < self._need:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        commands: list[RemotingCommand] = []
        try:
            self._decode(data, commands)
        except RemotingCommandError as error:
            self.error = error
            if not commands:
                raise
        return commands

    def _decode(self, data: bytes, commands: list[RemotingCommand]) -> None:
        position, size = 0, len(data)
        need = FRAME_HEAD.size
        while size - position >= FRAME_HEAD.size:
            length, word = FRAME_HEAD.unpack_from(data, position)
            header_length = word & _HEADER_LENGTH_MASK
            self._check(length, header_length)
            end = position + 4 + length
            if end > size:
                need = 4 + length
                break
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

    def _run_at(self, data: bytes, position: int, end: int) -> CommandRun | None:
        """A run that begins with the frame at ``data[position:end]``, where there is hope for one."""
        find = self._find_run
        if find is None or find.code != self._last_code or end + FRAME_HEAD.size > len(data):
            return None
        return find(data, position)

    def _check(self, length: int, header_length: int) -> None:
        if length + 4 > self._max_frame_bytes:
            raise RemotingCommandError(f"a frame of {length + 4} bytes is larger than {self._max_frame_bytes}")
        if length < _SHORTEST or header_length > length - _SHORTEST:
            raise RemotingCommandError(f"a header of {header_length} bytes in a frame of {length + 4}")

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
