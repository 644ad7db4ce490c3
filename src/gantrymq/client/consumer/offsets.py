"""How far a consumer is: in memory, at the broker of each queue, or for broadcasting in a file.

Source: OffsetStore, RemoteBrokerOffsetStore, LocalFileOffsetStore, OffsetSerializeWrapper.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from msgspec import field

from gantrymq.client.consumer.group_calls import query_offset, update_offset
from gantrymq.client.consumer.member import GroupMember
from gantrymq.errors import GantrymqError, MQClientError, RemotingCommandError
from gantrymq.logs import get_logger
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.body import Body, by_queue, decode_body, keyed

_LAST_ATTEMPTS = 2

log = get_logger()


class OffsetSerializeWrapper(Body, kw_only=True):
    """The file of a broadcasting consumer, as RocketMQ writes it: offsets by queue."""

    has_queue_keys = True

    offset_table: dict[str, int] = field(default_factory=dict)


class OffsetStore(Protocol):
    """Offsets of the queues that are ours. Thread rule: the event loop's thread."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """All before ``offset`` is consumed; kept in memory until it is persisted."""
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
        """The offset that was persisted, None where there is none; raises GantrymqError where it cannot be known."""
        ...

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Write the offsets of these queues; what fails is logged.

        With ``wait`` they are written when it returns; where one was not, GantrymqError is raised once all were tried.
        """
        ...

    async def persist_at_last(self, queues: Iterable[MessageQueue]) -> None:
        """At a goodbye: write them, and see that they are what is kept."""
        ...


class _OffsetsInMemory:
    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """All before ``offset`` is consumed."""
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
    """Offsets at the brokers: those of a group that shares its messages."""

    def __init__(self, member: GroupMember) -> None:
        super().__init__()
        self._member = member

    async def read_from_store(self, queue: MessageQueue) -> int | None:
        """What the broker knows."""
        return await self._member.ask(queue, query_offset(self._member.group, queue))

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Tell the brokers; they write it down within five seconds."""
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
                await self._member.client.tell(address, update_offset(self._member.group, queue, offset).request())
        except GantrymqError as error:
            log.warning("an offset was not persisted", queue=str(queue), offset=offset, reason=str(error))
            return error
        return None

    async def persist_at_last(self, queues: Iterable[MessageQueue]) -> None:
        """Tell them and ask back: nobody tells them later.

        A busy broker may not answer in time; or its threads let an older offset, which was told without waiting a
        moment before, overtake this one.
        """
        await asyncio.gather(*(self._persist_at_last(queue) for queue in queues if queue in self._offsets))

    async def _persist_at_last(self, queue: MessageQueue) -> None:
        for _ in range(_LAST_ATTEMPTS):
            await self._persist(queue, self._offsets[queue], wait=True)
            with suppress(GantrymqError):
                if await self.read_from_store(queue) == self._offsets[queue]:
                    return


class LocalFileOffsetStore(_OffsetsInMemory):
    """Offsets in ``path``, replaced as a whole, with what it held before in ``path`` + ``.bak``: broadcasting."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._writing = asyncio.Lock()

    async def read_from_store(self, queue: MessageQueue) -> int | None:
        """What the file says."""
        return (await asyncio.to_thread(self._read)).get(queue)

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Write the file; queues it holds and we do not have keep their offsets."""
        ours = {queue: self._offsets[queue] for queue in queues if queue in self._offsets}
        if not ours:
            return
        async with self._writing:
            try:
                await asyncio.to_thread(self._write, ours)
            except (OSError, GantrymqError) as error:
                log.error("offsets were not persisted", path=str(self._path), reason=str(error))
                if wait:
                    raise MQClientError(f"{self._path}: {error}") from error

    async def persist_at_last(self, queues: Iterable[MessageQueue]) -> None:
        """Write the file."""
        await self.persist(queues)

    def _read(self) -> dict[MessageQueue, int]:
        for path in (self._path, self._backup):
            try:
                raw = path.read_bytes()
                if raw.strip():
                    return by_queue(decode_body(OffsetSerializeWrapper, raw).offset_table)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise MQClientError(f"{path}: {error.strerror or error}") from error
            except RemotingCommandError as error:
                log.warning("a file of offsets cannot be read", path=str(path), reason=str(error))
                if path == self._backup:
                    raise MQClientError(f"{path}: {error}") from error
        return {}

    def _write(self, ours: dict[MessageQueue, int]) -> None:
        held = self._read()
        if ours.items() <= held.items() and self._path.exists():
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if held:  # what was read, and not the file: where that is torn, the backup is all there is
            _replace(self._backup, OffsetSerializeWrapper(offset_table=keyed(held)).encode())
        _replace(self._path, OffsetSerializeWrapper(offset_table=keyed(held | ours)).encode())

    @property
    def _backup(self) -> Path:
        return self._path.with_name(self._path.name + ".bak")


def _replace(path: Path, raw: bytes) -> None:
    half = path.with_name(path.name + ".tmp")
    with half.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)


def offset_store(member: GroupMember) -> OffsetStore:
    """The store that a member's message model wants."""
    if member.is_clustering:
        return RemoteBrokerOffsetStore(member)
    root = Path(member.config.local_offset_store_dir).expanduser()
    return LocalFileOffsetStore(root / member.client_id / member.group / "offsets.json")
