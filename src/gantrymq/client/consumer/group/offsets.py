"""The offsets of a consumer: in memory, at the broker of each queue, or for broadcasting in a file.

Source: OffsetStore, RemoteBrokerOffsetStore, LocalFileOffsetStore, OffsetSerializeWrapper.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Protocol, TypeVar

from msgspec import Meta, field

from gantrymq.client.consumer.group.member import GroupMember
from gantrymq.client.requests.group_calls import query_offset, update_offset
from gantrymq.client.runtime.logged_once import LoggedOnce
from gantrymq.errors import GantrymqError, MQClientError, RemotingCommandError
from gantrymq.logs import get_logger
from gantrymq.model.java import LONG_MAX
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.body import Body, by_queue, decode_edited, keyed

_LAST_ATTEMPTS = 2

T = TypeVar("T")

log = get_logger("gantrymq.client.consumer")


class OffsetSerializeWrapper(Body, kw_only=True):
    """The file of a broadcasting consumer in RocketMQ's format: offsets by queue."""

    has_queue_keys = True

    offset_table: dict[str, Annotated[int, Meta(le=LONG_MAX)]] = field(default_factory=dict)


class OffsetStore(Protocol):
    """Offsets of the assigned queues. Thread rule: the event loop's thread."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """Note in memory that everything before ``offset`` is consumed. :meth:`persist` writes it."""
        ...

    def read(self, queue: MessageQueue) -> int | None:
        """The offset in memory."""
        ...

    def table(self) -> dict[MessageQueue, int]:
        """All offsets in memory."""
        ...

    def forget(self, queue: MessageQueue) -> None:
        """Drop a queue's offset from memory."""
        ...

    async def read_from_store(self, queue: MessageQueue) -> int | None:
        """The persisted offset, or None if there is none. Raises GantrymqError if it cannot be read."""
        ...

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Write the offsets of these queues. A failure is logged.

        With ``wait`` the offsets are written when the call returns. It raises GantrymqError after all were tried, if
        one failed.
        """
        ...

    async def persist_at_last(self, queues: Iterable[MessageQueue]) -> None:
        """Write the offsets when the consumer closes, and verify that they are stored."""
        ...


class _OffsetsInMemory:
    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """Note that everything before ``offset`` is consumed."""
        if increase_only:
            offset = max(offset, self._offsets.get(queue, -1))
        self._offsets[queue] = offset

    def read(self, queue: MessageQueue) -> int | None:
        """The offset in memory."""
        return self._offsets.get(queue)

    def table(self) -> dict[MessageQueue, int]:
        """All offsets in memory."""
        return dict(self._offsets)

    def forget(self, queue: MessageQueue) -> None:
        """Drop a queue's offset from memory."""
        self._offsets.pop(queue, None)


class RemoteBrokerOffsetStore(_OffsetsInMemory):
    """Offsets at the brokers, for a group in clustering mode."""

    def __init__(self, member: GroupMember) -> None:
        super().__init__()
        self._member = member
        self._told = LoggedOnce()

    async def read_from_store(self, queue: MessageQueue) -> int | None:
        """The offset at the broker."""
        return await self._member.ask(queue, query_offset(self._member.group, queue))

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Send the offsets to the brokers, which write them to disk within five seconds."""
        wanted = [queue for queue in queues if queue in self._offsets]
        failed = await asyncio.gather(*(self._persist(queue, self._offsets[queue], wait) for queue in wanted))
        for error in failed:
            if wait and error is not None:
                raise error

    async def _persist(self, queue: MessageQueue, offset: int, wait: bool) -> GantrymqError | None:
        try:
            if wait:
                await self._member.ask(queue, update_offset(self._member.group, queue, offset))
            else:
                address = (await self._member.needed_route(queue)).address(queue)
                await self._member.client.invoke_oneway(
                    address, update_offset(self._member.group, queue, offset).request()
                )
        except GantrymqError as error:
            if self._told.is_due(queue, str(error)):
                log.warning("an offset was not persisted", queue=str(queue), offset=offset, reason=str(error))
            return error
        self._told.is_over(queue)
        return None

    async def persist_at_last(self, queues: Iterable[MessageQueue]) -> None:
        """Send the offsets and read them back, because no later update follows.

        A busy broker may not answer in time. Or its threads may handle an older one-way update after this one.
        """
        await asyncio.gather(*(self._persist_at_last(queue) for queue in queues if queue in self._offsets))

    async def _persist_at_last(self, queue: MessageQueue) -> None:
        for _ in range(_LAST_ATTEMPTS):
            await self._persist(queue, self._offsets[queue], wait=True)
            with suppress(GantrymqError):
                if await self.read_from_store(queue) == self._offsets[queue]:
                    return


class LocalFileOffsetStore(_OffsetsInMemory):
    """Offsets of broadcasting in the file ``path``, which is replaced as a whole.

    ``path.bak`` has the previous content.

    Several processes may share the file, as clients without an instance name on one host do. Each writes its own
    queues, and the file is always complete.

    If the file cannot be read or written, this process keeps its offsets in memory, so that a queue that is taken over
    again continues at the right offset; a warning is logged once in ``interval_ms``. Content in another format is moved
    to ``path.unreadable`` before the file is replaced.
    """

    def __init__(self, path: Path, interval_ms: int = 5000) -> None:
        super().__init__()
        self._path = path
        self._progress: dict[MessageQueue, int] = {}  # all offsets to be written, or already written
        self._unwritten: dict[MessageQueue, int] = {}
        self._in_use = asyncio.Lock()
        self._told, self._told_of_reading = LoggedOnce(interval_ms / 1000), LoggedOnce()
        self._is_foreign = False

    async def read_from_store(self, queue: MessageQueue) -> int | None:
        """The offset that this process persisted, else the one in the file."""
        known = self._progress.get(queue)
        if known is not None:
            return known
        async with self._in_use:
            return (await _aside(self._read)).get(queue)

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Write the file. Queues in it that are not ours keep their offsets."""
        ours = {queue: self._offsets[queue] for queue in queues if queue in self._offsets}
        if not ours:
            return
        self._progress |= ours
        self._unwritten |= ours
        async with self._in_use:
            try:
                written = dict(self._unwritten)
                await _aside(lambda: self._write(written))
            except (OSError, ValueError, GantrymqError) as error:
                if self._told.is_due("write"):
                    log.warning(
                        "offsets of broadcasting are only in memory", path=str(self._path), reason=_reason(error)
                    )
                if wait:
                    raise MQClientError(f"{self._path}: {_reason(error)}") from error
            else:
                self._unwritten = dict(self._unwritten.items() - written.items())
                if self._told.is_over("write"):
                    log.info("offsets of broadcasting are written again", path=str(self._path))

    async def persist_at_last(self, queues: Iterable[MessageQueue]) -> None:
        """Write the file."""
        await self.persist(queues)

    def _read(self) -> dict[MessageQueue, int]:
        """The offsets in the file or its backup; empty if neither exists or can be opened.

        Raises MQClientError if the file cannot be used and the backup has another format: starting over would lose or
        repeat messages.
        """
        for path in (self._path, self._backup):
            try:
                raw = _content(path)
                if raw.strip():
                    return by_queue(decode_edited(OffsetSerializeWrapper, raw).offset_table)
                self._warn_unreadable(path, "it is empty")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._warn_unreadable(path, _reason(error))
            except RemotingCommandError as error:
                self._is_foreign = self._is_foreign or path == self._path
                self._warn_unreadable(path, str(error))
                if path == self._backup:
                    raise MQClientError(f"{path}: {error}") from error
        return {}

    def _warn_unreadable(self, path: Path, reason: str) -> None:
        if self._told_of_reading.is_due(path, reason):
            log.warning("a file of offsets cannot be read", path=str(path), reason=reason)

    def _write(self, offsets: dict[MessageQueue, int]) -> None:
        held = self._read()
        if offsets.items() <= held.items() and self._path.exists():
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._is_foreign:
            self._path.replace(self._path.with_name(self._path.name + ".unreadable"))
            self._is_foreign = False
        if held:  # from the parsed offsets and not from the file: if that is torn, the backup is the only copy
            _replace(self._backup, OffsetSerializeWrapper(offset_table=keyed(held)).encode())
        _replace(self._path, OffsetSerializeWrapper(offset_table=keyed(held | offsets)).encode())

    @property
    def _backup(self) -> Path:
        return self._path.with_name(self._path.name + ".bak")


def _content(path: Path) -> bytes:
    """The content of a file. Raises OSError for a pipe or a device, which may have no end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    return path.read_bytes()


def _replace(path: Path, raw: bytes) -> None:
    half = path.with_name(f"{path.name}.{os.getpid()}.tmp")  # each process has its own
    try:
        with half.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except OSError:
        with suppress(OSError):  # on a full disk it takes space
            half.unlink(missing_ok=True)
        raise


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


async def _aside(work: Callable[[], T]) -> T:
    """Run in a thread of the default pool, or in this thread if the pool is closed because the program ends."""
    try:
        working = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:
        return work()
    return await working


def offset_store(member: GroupMember) -> OffsetStore:
    """The offset store of a member: its brokers for clustering, a local file for broadcasting."""
    if member.is_clustering:
        return RemoteBrokerOffsetStore(member)
    path = member.config.local_offset_root / member.client_id / member.group / "offsets.json"
    return LocalFileOffsetStore(path, member.config.persist_consumer_offset_interval_ms)
