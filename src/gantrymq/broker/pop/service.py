"""The parts of POP of one broker: constructed together, scheduled, and stopped in order.

Source: BrokerController (POP's processors and services).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

from gantrymq.broker.measures import Measures
from gantrymq.broker.pop.buffer import SCAN_MS, PopBuffer, PoppedQueue
from gantrymq.broker.pop.checks import PopChecks
from gantrymq.broker.pop.inflight import InflightMessages
from gantrymq.broker.pop.long_polling import EXPIRE_MS, PopWaiting
from gantrymq.broker.pop.revive import TICK_MS, PopReviveService
from gantrymq.broker.pop.revive_log import ReviveLog
from gantrymq.broker.schedule import Schedule
from gantrymq.broker.sessions.consumers import ConsumerManager
from gantrymq.broker.storage import Storage
from gantrymq.broker.tables.tables import Tables
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.store.message_store import MessageStore

_FLUSH_S, _LOOK_S = 5.0, 0.002
_CLEAN_MS = 60_000


@dataclass(frozen=True, slots=True)
class Pop:
    """What the processors of POP share. Thread rule: the event loop's thread."""

    checks: PopChecks
    revive_log: ReviveLog
    buffer: PopBuffer
    inflight: InflightMessages
    revive: PopReviveService
    waiting: PopWaiting
    tables: Tables
    store: MessageStore

    @classmethod
    def of(
        cls,
        config: LiveConfig,
        clock: Clock,
        storage: Storage,
        tables: Tables,
        consumers: ConsumerManager,
        measures: Measures,
        waiting: PopWaiting,
    ) -> Self:
        """The parts of POP of a broker that starts."""
        revive_log = ReviveLog(config, clock, storage, tables.topics, measures.meter)
        inflight = InflightMessages(clock.now_ms())
        return cls(
            checks=PopChecks(config, clock, tables, consumers),
            revive_log=revive_log,
            buffer=PopBuffer(config, clock, storage.store, tables.offsets, revive_log, measures.meter),
            inflight=inflight,
            revive=PopReviveService(config, clock, storage, tables, measures, revive_log, inflight),
            waiting=waiting,
            tables=tables,
            store=storage.store,
        )

    def schedule(self, schedule: Schedule) -> None:
        """Begin the periodic work."""
        schedule.every("pops, late", lambda: EXPIRE_MS, self.waiting.expire)
        schedule.every("pops, offsets", lambda: SCAN_MS, self.buffer.scan)
        schedule.every("pops, revive", lambda: TICK_MS, self.revive.run_if_due)
        schedule.every("pops, unused orders", lambda: _CLEAN_MS, self._clean_orders)

    def forget(self, topic: str = "", group: str = "") -> None:
        """Forget a deleted topic or group."""
        self.buffer.forget(topic, group)
        self.inflight.forget(topic, group)
        self._clean_orders()
        if topic:
            self.waiting.pops.answer_all(topic)
            self.waiting.notifications.answer_all(topic)

    def reset(self, topic: str, group: str, queue_id: int) -> None:
        """Wake a waiting pop for a queue whose offset was reset. Its popped messages do not count any more."""
        queue = PoppedQueue(topic, group, queue_id)
        self.buffer.clear(queue)
        self.inflight.clear(queue)
        self.waiting.look(topic, group, queue_id)

    def _clean_orders(self) -> None:
        def read_queues(name: str) -> int | None:
            topic = self.tables.topics.get(name)
            return topic.read_queue_nums if topic is not None else None

        self.tables.orders.auto_clean(read_queues, self.tables.groups.__contains__)

    async def drain(self, settle_puts: Callable[[], Awaitable[None]]) -> None:
        """Store what is only in memory, and commit all offsets. Call it after the last request."""
        self.buffer.drain()
        self.revive_log.put_acks()
        await settle_puts()
        deadline_s, end = asyncio.get_running_loop().time() + _FLUSH_S, self.store.max_phy_offset
        if self.buffer.has_uncommitted or self.revive.has_unpublished:
            self.store.ask_for_flush()
            while self.store.flushed_offset < end and asyncio.get_running_loop().time() < deadline_s:
                await asyncio.sleep(_LOOK_S)
        self.buffer.commit_durable()
        self.revive.publish()
