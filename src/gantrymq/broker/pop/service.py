"""The parts of POP of one broker: constructed together, scheduled, and stopped in order.

Source: BrokerController (POP's processors and services).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gantrymq.broker.appends.put_queue import PutQueue
from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.pop.buffer import SCAN_MS, PopBuffer, PoppedQueue
from gantrymq.broker.pop.checks import PopChecks
from gantrymq.broker.pop.inflight import InflightMessages
from gantrymq.broker.pop.long_polling import EXPIRE_MS, PollKey, PopLongPolling
from gantrymq.broker.pop.order_locks import OrderLocks
from gantrymq.broker.pop.revive import TICK_MS, PopReviveService
from gantrymq.broker.pop.revive_log import ReviveLog
from gantrymq.broker.schedule import Schedule
from gantrymq.broker.sessions.consumers import ConsumerManager
from gantrymq.broker.statistics import BrokerStatsManager
from gantrymq.broker.tables.consumer_filters import ConsumerFilterManager
from gantrymq.broker.tables.consumer_order_info import ConsumerOrderInfo
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.model.host import Host
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.limited_log import LimitedLog
from gantrymq.store.message_store import MessageStore

_FLUSH_S, _LOOK_S = 5.0, 0.002
_CLEAN_MS = 60_000


class PopWaiting:
    """Waiting pops and waiting notifications. They exist before the store, which reports arrivals to them.

    ``locks`` are the queues that ordered pops have blocked.
    """

    def __init__(self, config: LiveConfig, clock: Clock) -> None:
        self._clock = clock
        self.locks = OrderLocks()
        self.pops = PopLongPolling(config, clock)
        self.notifications = PopLongPolling(config, clock, newest_first=True)

    def arrived(self, topic: str, queue_id: int) -> None:
        """Report that a queue has grown. Thread rule: any thread."""
        self.pops.arrived(topic, queue_id)
        self.notifications.arrived(topic, queue_id)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to wake this event loop for arrivals."""
        self.pops.start(loop)
        self.notifications.start(loop)

    def stop(self) -> None:
        """Stop. Waiting requests get no answer."""
        self.pops.stop()
        self.notifications.stop()

    def forget(self, channel: Channel) -> None:
        """Drop the requests of a closed connection."""
        self.pops.forget(channel)
        self.notifications.forget(channel)

    def expire(self) -> None:
        """Answer the requests whose time is over, and look at queues that are free again."""
        self.pops.expire()
        self.notifications.expire()
        for topic, group, queue_id in self.locks.freed(self._clock.now_ms()):
            self.look(topic, group, queue_id)

    def look(self, topic: str, group: str, queue_id: int) -> None:
        """Let one pop and one notification look at a queue that may have a message for them."""
        for polling in (self.pops, self.notifications):
            polling.look(PollKey(topic, group, queue_id))


class PopService:
    """What the processors of POP share. Thread rule: the event loop's thread."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager,
        filters: ConsumerFilterManager,
        stats: BrokerStatsManager,
        meter: BrokerMeter,
        puts: PutQueue,
        orders: ConsumerOrderInfo,
        waiting: PopWaiting,
        host: Host,
        log: LimitedLog,
    ) -> None:
        self._store, self._topics, self._groups = store, topics, groups
        self.waiting, self.orders = waiting, orders
        self.checks = PopChecks(config, clock, topics, groups, consumers, filters)
        self.revive_log = ReviveLog(config, clock, topics, puts, store.timers, host, meter)
        self.buffer = PopBuffer(config, clock, store, offsets, self.revive_log, log, meter)
        self.inflight = InflightMessages(clock.now_ms())
        self.revive = PopReviveService(
            config, clock, store, topics, groups, offsets, stats, puts, self.revive_log, self.inflight, log, meter
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
        """Let a waiting pop look at a queue whose offset was reset. Its popped messages do not count any more."""
        queue = PoppedQueue(topic, group, queue_id)
        self.buffer.clear(queue)
        self.inflight.clear(queue)
        self.waiting.look(topic, group, queue_id)

    def _clean_orders(self) -> None:
        def read_queues(name: str) -> int | None:
            topic = self._topics.get(name)
            return topic.read_queue_nums if topic is not None else None

        self.orders.auto_clean(read_queues, self._groups.__contains__)

    async def drain(self, settle_puts: Callable[[], Awaitable[None]]) -> None:
        """Store what is only in memory, and commit all offsets. Call it after the last request."""
        self.buffer.drain()
        self.revive_log.put_acks()
        await settle_puts()
        deadline_s, end = asyncio.get_running_loop().time() + _FLUSH_S, self._store.max_phy_offset
        if self.buffer.has_uncommitted or self.revive.has_unpublished:
            self._store.ask_for_flush()
            while self._store.flushed_offset < end and asyncio.get_running_loop().time() < deadline_s:
                await asyncio.sleep(_LOOK_S)
        self.buffer.commit_durable()
        self.revive.publish()
