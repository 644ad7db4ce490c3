"""A slave's tables follow its master's: topics, committed offsets, groups, modes, and the progress of deliveries.

=========================  =====================================================================================
table                      how it follows
=========================  =====================================================================================
topics (21), groups (201)  replaced when the version differs; what the master lacks is deleted, a topic with its
                           queues and offsets
committed offsets (43)     each queue's larger offset counts, so that none goes back. An offset that the master
                           has set back, or deleted, since the last look is a reset, unless it was restarted
request modes (402)        replaced
delay offsets (45),        taken once the log here is durable up to where the master's ended after its answer: what
timer checkpoint (60)      they count as delivered must be here, or a promoted slave would never deliver it
timer metrics (61)         replaced
=========================  =====================================================================================

A deleted topic goes when all that was in the master's log at the answer is here, and nothing of the topic is younger
than the question: otherwise the messages of a topic that was created again would go with it.

Thread rule: the event loop's thread.

Source: SlaveSynchronize, which asks each minute, and stops with the offsets at the first name without quotes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from gantrymq.broker.pop.service import Pop
from gantrymq.broker.slave.master import MasterClient, MasterExtent
from gantrymq.broker.storage import Storage
from gantrymq.broker.tables.tables import Tables
from gantrymq.broker.tables.versioned_table import persisted
from gantrymq.broker.topic_deletion import TopicDeletion
from gantrymq.clock import Clock
from gantrymq.errors import GantrymqError, RemotingCommandError
from gantrymq.format.timer import TIMER_CHECKPOINT_BYTES, decode_timer_checkpoint
from gantrymq.logs import get_logger
from gantrymq.model import fastjson
from gantrymq.model.java import decode_utf8
from gantrymq.remoting.bodies.client import MessageRequestModes
from gantrymq.remoting.bodies.group import ConsumerOffsetSerializeWrapper, SubscriptionGroupWrapper
from gantrymq.remoting.bodies.topic import (
    DataVersion,
    DelayOffsetSerializeWrapper,
    TopicConfigAndMappingSerializeWrapper,
)
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.store.copied_progress import CopiedProgress

_INTERVAL_MS, _MOST_INTERVAL_MS = 3_000, 10_000
_SHARE = 4  # large tables are asked for less often, but each 10 s

log = get_logger("gantrymq.broker")


class _Waiting(NamedTuple):
    """What the master has delivered. ``take`` may be called once the log here is durable up to ``log_end``."""

    log_end: int
    take: Callable[[CopiedProgress], None]


class TableSynchronization:
    """Lets ``tables`` and the progress of deliveries in the store follow the master."""

    def __init__(
        self, client: MasterClient, tables: Tables, storage: Storage, deletion: TopicDeletion, pop: Pop, clock: Clock
    ) -> None:
        self._client, self._tables, self._store, self._clock = client, tables, storage.store, clock
        self._deletion, self._pop = deletion, pop
        self._waiting: dict[str, _Waiting] = {}
        self._boot_ms = 0
        self._told: dict[str, str] = {}  # the reason of each failure that is logged
        self.is_fresh = False
        self.followed_ms = 0  # when all tables had followed last
        self.interval_ms = _INTERVAL_MS // 3  # the first look is soon

    async def follow(self) -> None:
        """Ask for all tables once. What fails is logged once, and asked again next time."""
        began_s = self._clock.monotonic_s()
        await self._try("deliveries", self._take_deliveries)
        if self._client.address:
            before = await self._try("extent", self._client.extent)
            if isinstance(before, MasterExtent):
                await self._follow(before)
        took_ms = int((self._clock.monotonic_s() - began_s) * 1000)
        self.interval_ms = min(max(_INTERVAL_MS, took_ms * _SHARE), _MOST_INTERVAL_MS)

    async def _follow(self, before: MasterExtent) -> None:
        is_same_run = before.boot_ms == self._boot_ms
        self._boot_ms = before.boot_ms
        steps: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
            ("topics", lambda: self._topics(before)),
            ("groups", self._groups),
            ("offsets", lambda: self._offsets(is_same_run=is_same_run)),
            ("request modes", self._request_modes),
            ("delay offsets", self._delays),
            ("timers", self._timers),
        ]
        for name, step in steps:
            await self._try(name, step)
        self.is_fresh = not self._told
        if self.is_fresh:
            self.followed_ms = self._clock.now_ms()
        await self._tables.persistence.save_all()

    async def _try(self, name: str, step: Callable[[], Awaitable[Any]]) -> Any:
        try:
            result = await step()
        except (GantrymqError, OSError) as error:
            reason = str(error) or type(error).__name__
            if self._told.get(name) != reason:
                log.warning("a table does not follow the master's", table=name, reason=reason)
            self._told[name] = reason
            return None
        self._told.pop(name, None)
        return result

    async def _ask(self, code: RequestCode) -> bytes:
        return (await self._client.ask(RemotingCommand(code=code))).body

    # Topics and groups

    async def _topics(self, before: MasterExtent) -> None:
        topics = self._tables.topics
        body = decode_body(TopicConfigAndMappingSerializeWrapper, await self._ask(RequestCode.GET_ALL_TOPIC_CONFIG))
        if body.data_version == topics.version:
            return
        table = body.topic_config_table
        missing = [name for name in topics.table if name not in table and not topics.is_system_topic(name)]
        is_complete = True
        if missing:
            after = await self._client.extent()
            is_here = self._store.dispatched_offset >= after.max_offset
            newest = self._newest_of(missing)
            for name in missing:
                if is_here and newest.get(name, -1) <= before.max_offset:
                    await self._deletion.delete(name)
                else:
                    is_complete = False
        staying = {} if is_complete else {name: topics.table[name] for name in missing if name in topics.table}
        topics.follow(table | staying, body.data_version if is_complete else None)

    def _newest_of(self, topics: list[str]) -> dict[str, int]:
        """The physical offset after the newest message of each topic that has messages."""
        newest: dict[str, int] = {}
        wanted = set(topics)
        for queue in self._store.lookup.queues:
            if queue.topic in wanted:
                newest[queue.topic] = max(newest.get(queue.topic, -1), queue.max_physic_offset)
        return newest

    async def _groups(self) -> None:
        raw = await self._ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        for group in self._tables.groups.follow(decode_body(SubscriptionGroupWrapper, raw)):
            self._pop.forget(group=group)

    async def _offsets(self, *, is_same_run: bool) -> None:
        raw = await self._ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        self._tables.offsets.follow(decode_body(ConsumerOffsetSerializeWrapper, raw), is_same_run=is_same_run)

    async def _request_modes(self) -> None:
        raw = await self._ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        self._tables.request_modes.follow(decode_body(MessageRequestModes, raw))

    # Deliveries

    async def _delays(self) -> None:
        body = decode_body(DelayOffsetSerializeWrapper, await self._ask(RequestCode.GET_ALL_DELAY_OFFSET))
        version = persisted(body.data_version or DataVersion())
        await self._wait_with("delays", lambda progress: progress.take_delays(body.offset_table, version))

    async def _timers(self) -> None:
        progress = self._store.copied_progress
        if not self._store.config.timer_wheel_enable or progress is None:
            return
        command = RemotingCommand(code=RequestCode.GET_TIMER_CHECK_POINT)
        response = await self._client.ask(command, may_refuse=True)
        if response.code != ResponseCode.SUCCESS:
            return  # the master has no timers
        if len(response.body) < TIMER_CHECKPOINT_BYTES:
            raise RemotingCommandError(f"a timer checkpoint of {len(response.body)} bytes")
        page, now_ms = decode_timer_checkpoint(response.body), self._clock.now_ms()
        await self._wait_with("timers", lambda progress: progress.take_timers(page, now_ms))
        metrics = _object(await self._ask(RequestCode.GET_TIMER_METRICS))
        await _in_thread(partial(progress.take_timer_metrics, metrics))

    async def _wait_with(self, name: str, take: Callable[[CopiedProgress], None]) -> None:
        """Let ``take`` wait for the log, unless an older one waits, which may be taken first."""
        if name not in self._waiting:
            self._waiting[name] = _Waiting((await self._client.extent()).max_offset, take)
            self._store.flush_soon(self._store.max_phy_offset)

    async def _take_deliveries(self) -> None:
        """Take the deliveries that wait, if what they count is durable here."""
        progress, durable = self._store.copied_progress, self._store.flushed_offset
        for name, waiting in list(self._waiting.items()):
            if progress is not None and waiting.log_end <= durable:
                del self._waiting[name]
                await _in_thread(partial(waiting.take, progress))
        if self._waiting:
            self._store.flush_soon(self._store.max_phy_offset)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = fastjson.loads(decode_utf8(raw))
    except ValueError as error:
        raise RemotingCommandError(f"the answer is no JSON: {error}") from error
    return value if isinstance(value, dict) else {}


async def _in_thread(work: Callable[[], None]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, work)
