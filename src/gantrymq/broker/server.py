"""The broker: constructs all its parts, and starts and stops them in order.

    server = BrokerServer("/data/store", LiveConfig(BrokerConfig(namesrv_addr="127.0.0.1:9876"), store_config))
    await server.start()     # recovered, listening and registered
    print(server.address)
    await server.shutdown()  # unregistered, everything on the disk

Source: BrokerController.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from gantrymq.broker import names
from gantrymq.broker.acl.access_control import WATCH_INTERVAL_MS, AccessControl
from gantrymq.broker.appends.put_queue import PutQueue
from gantrymq.broker.appends.wire_messages import FindSendRun
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.metrics.service import BrokerMetrics
from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.pop.offset_recovery import recover_offsets
from gantrymq.broker.pop.service import PopService, PopWaiting
from gantrymq.broker.ports import ReservedPorts
from gantrymq.broker.processors.table import dispatcher, routes, send_processor
from gantrymq.broker.reads.stored_records import StoredRecords
from gantrymq.broker.schedule import Schedule
from gantrymq.broker.sessions.consumers import ConsumerManager, MemberNotices
from gantrymq.broker.sessions.long_polling import CHECK_INTERVAL_MS, PullRequestHoldService
from gantrymq.broker.sessions.producers import Connected, ProducerManager
from gantrymq.broker.sessions.queue_locks import RebalanceLockManager
from gantrymq.broker.statistics import SAMPLE_MS, BrokerStatsManager, StoreStatsService
from gantrymq.broker.store_log import log_failure, log_opening
from gantrymq.broker.tables.attributes import GROUP_ATTRIBUTES, TOPIC_ATTRIBUTES, unsupported
from gantrymq.broker.tables.consumer_filters import ConsumerFilterManager
from gantrymq.broker.tables.consumer_order_info import ConsumerOrderInfo
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.persistence import (
    CONSUMER_FILTER,
    CONSUMER_ORDER_INFO,
    MESSAGE_REQUEST_MODE,
    SUBSCRIPTION_GROUP,
    TOPICS,
    TRANSACTION_METRICS,
    ConfigPersistence,
    KeptTable,
)
from gantrymq.broker.tables.request_modes import MessageRequestModeManager
from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.broker.transactions.check import TICK_MS, TransactionalMessageCheckService
from gantrymq.broker.transactions.decisions import Decisions
from gantrymq.broker.transactions.metrics import TransactionMetrics
from gantrymq.broker.transactions.op_batches import OpBatches
from gantrymq.broker.transactions.producer_check import ProducerCheck
from gantrymq.clock import Clock, SystemClock, monotonic_ms
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import GantrymqError
from gantrymq.format.names import CONSUMER_OFFSET
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.kernels.loader import library
from gantrymq.logs import get_logger
from gantrymq.model.host import Host
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.client import RemotingClient
from gantrymq.remoting.transport.dispatcher import RequestHook
from gantrymq.remoting.transport.limited_log import LimitedLog
from gantrymq.remoting.transport.server import RemotingServer
from gantrymq.remoting.transport.shared import ServerLimits
from gantrymq.remoting.transport.tls import TlsServer
from gantrymq.remoting.transport.turns import FairTurns, in_slices
from gantrymq.store.lost_routes import describe, user_topics
from gantrymq.store.message_store import MessageStore
from gantrymq.store.paths import StorePaths
from gantrymq.store.recovery.recovery import Progress

_EXPIRE_INTERVAL_MS = 1_000
_RATE_SAMPLE_MS = 1_000
_SCAN_INTERVAL_MS = 10_000  # ClientHousekeepingService
# The longest wait of an answer for name servers: a client gives up after 3 s and sends the message again.
_ANNOUNCED_S = 1.0


log = get_logger("gantrymq.broker")


class BrokerServer:
    """A broker with its store at ``path``. Construct it, ``start`` it, ``shutdown`` it, all on one event loop.

    ``config.broker.listen_port`` 0 takes a free port. ``address`` (brokerIP1:port) is the address for clients, known
    after the start. ``given`` are the keys of the store's settings that must hold (see MessageStore.open). ``hooks``
    are called before the processor of every request, in addition to access control.
    """

    def __init__(
        self,
        path: str | Path,
        config: LiveConfig | None = None,
        *,
        given: Collection[str] = (),
        clock: Clock | None = None,
        fs: FileSystem | None = None,
        tls: TlsServer | None = None,
        client_tls: ssl.SSLContext | None = None,
        hooks: Iterable[RequestHook] = (),
        progress: Progress | None = None,
    ) -> None:
        self.config = config or LiveConfig()
        self._path, self._given, self._progress = Path(path), frozenset(given), progress
        self._clock, self._fs, self._tls = clock or SystemClock(), fs or RealFileSystem(), tls
        self._client_tls = client_tls
        self._hooks: tuple[RequestHook, ...] = tuple(hooks)
        self._stopping = False
        self._answers: set[asyncio.Task[None]] = set()
        self._unsettled: set[str] = set()  # new topics that may not be durable or registered yet
        self.port = 0

    @property
    def address(self) -> str:
        """``brokerIP1:port``, the address under which the broker registers. Known after the start."""
        return f"{self.config.broker.broker_ip1}:{self.port}"

    @property
    def access(self) -> AccessControl | None:
        """Access control; None if it is off. Known after the start."""
        return self._acl

    # Start

    async def start(self) -> None:
        """Recover the store, listen, register at the name servers.

        Raises what MessageStore.open raises, and RemotingError if the port is in use. After an error nothing stays
        open.
        """
        broker = self.config.broker
        for warning in self.config.warnings():
            log.warning(warning)
        with ReservedPorts(broker.bind_address, broker.listen_port) as reserved:
            self.port = reserved.port
            self.config.broker = replace(broker, listen_port=self.port)
            self._make_tables()
            self.metrics.bind()
            try:
                self.store = await asyncio.get_running_loop().run_in_executor(None, self._open_store)
            except BaseException:
                await self.metrics.close()
                raise
            self.config.store = self.store.config
            try:
                self._make_context()
                await self._server.start(broker.bind_address, self.port)
                if reserved.vip is not None:
                    await self._server.listen_too(reserved.vip)
            except BaseException:
                await self.metrics.close()
                await asyncio.get_running_loop().run_in_executor(None, self.store.close)
                raise
        self.holds.start(asyncio.get_running_loop())
        self.pop_waiting.start(asyncio.get_running_loop())
        self._schedule_all()
        try:
            self.metrics.start(self._context, lambda: len(self._server.channels))
            await self.outer.register()
        except BaseException:
            await self.shutdown()
            raise

    def _make_tables(self) -> None:
        config, clock = self.config, self._clock
        self._acl: AccessControl | None = None
        if config.broker.acl_enable:
            given = config.broker.acl_plain_file
            path = Path(given) if given else self._path / "config" / "plain_acl.yml"
            self._acl = AccessControl(path, frozenset({config.broker.msg_trace_topic_name}))
        self.topics = TopicConfigManager(config, clock, self._topics_changed)
        self.groups = SubscriptionGroupManager(config, clock)
        self.offsets = ConsumerOffsetManager(config, clock)
        self.transaction_metrics = TransactionMetrics(clock)
        self.filters = ConsumerFilterManager(config, clock)
        self.request_modes = MessageRequestModeManager()
        self.pop_waiting = PopWaiting(config, clock)
        self.orders = ConsumerOrderInfo(clock, self.pop_waiting.locks.note)
        self.kept = ConfigPersistence(
            self._fs,
            self._path / "config",
            [
                KeptTable(TOPICS, self.topics),
                KeptTable(SUBSCRIPTION_GROUP, self.groups),
                KeptTable(CONSUMER_OFFSET, self.offsets),
                KeptTable(TRANSACTION_METRICS, self.transaction_metrics, is_dispensable=True),
                KeptTable(CONSUMER_FILTER, self.filters),
                KeptTable(MESSAGE_REQUEST_MODE, self.request_modes),
                KeptTable(CONSUMER_ORDER_INFO, self.orders),
            ],
        )
        self.kept.load()
        self.consumers = ConsumerManager(self._members_changed, self._cut_off, self.filters.unregister)
        self._notices = MemberNotices(lambda name: group.clients if (group := self.consumers.group(name)) else [])
        self.producers = ProducerManager(self._cut_off)
        self.locks = RebalanceLockManager()
        self._began_ms = monotonic_ms(clock)
        self._turns, self._log = FairTurns(), LimitedLog(asyncio.get_running_loop().time)
        self.stats = BrokerStatsManager(config.broker.broker_cluster_name)
        self.store_stats = StoreStatsService(clock.now_ms())
        self.metrics = BrokerMetrics(config, clock, self.topics, self.groups)
        self.holds = PullRequestHoldService(lambda: self.store, clock)
        self._client = RemotingClient(tls=self._client_tls)
        self.outer = BrokerOuterAPI(config, self.topics, self.address, self._client)

    def _open_store(self) -> MessageStore:
        library()  # outdated kernels are compiled now, and not during the first client's request
        broker = self.config.broker
        config = replace(self.config.store, listen_port=self.port, broker_ip1=broker.broker_ip1)
        store = MessageStore.open(
            self._path,
            config,
            given=self._given,
            fs=self._fs,
            clock=self._clock,
            progress=self._progress,
            on_arrival=self._arrived,
            on_failure=log_failure,
            meter=self.metrics.store_meter,
        )
        log_opening(store)
        for one in store.recovery.groups_ahead:
            group, topic, queue_id, _ = one.at
            self.offsets.set_back(group, topic, queue_id, one.back_to)
        if not store.recovery.last_exit_ok:
            recover_offsets(store, self.offsets, names.REVIVE_TOPIC_PREFIX + broker.broker_cluster_name)
        self._warn_of_lost_routes()
        self._warn_of_unsupported_attributes()
        return store

    def _arrived(self, topic: str, queue_id: int, max_offset: int) -> None:
        """A queue has grown. Thread rule: the dispatcher's thread."""
        self.holds.arrived(topic, queue_id, max_offset)
        self.pop_waiting.arrived(topic, queue_id)

    def _warn_of_lost_routes(self) -> None:
        """Warn if the store has queues of user topics but ``config/`` has no topics: clients would find none of them.

        RocketMQ starts without a message.
        """
        if all(self.topics.is_system_topic(topic) for topic in self.topics.table):
            paths = StorePaths(self._path)
            topics = {topic for topic in user_topics(self._fs, paths.consume_queue) if topic not in self.topics}
            if topics:
                log.warning("the table of topics is lost", path=str(paths.config), reason=describe(topics))

    def _warn_of_unsupported_attributes(self) -> None:
        """Warn of attributes in RocketMQ's tables that this broker does not act on, for example COMPACTION."""
        topics = {name: topic.attributes for name, topic in self.topics.table.items()}
        groups = {name: group.attributes for name, group in self.groups.table.items()}
        found = {"topics": unsupported(TOPIC_ATTRIBUTES, topics), "groups": unsupported(GROUP_ATTRIBUTES, groups)}
        for kind, by_value in found.items():
            for attribute, owners in by_value.items():
                shown = ", ".join(sorted(owners)[:3]) + (", …" if len(owners) > 3 else "")
                log.warning(
                    f"an attribute of {kind} has no effect here", attribute=attribute, count=len(owners), of=shown
                )

    def _make_context(self) -> None:
        self.puts = PutQueue(self.store, self.config, self.store_stats)
        host = Host.parse(self.address)
        self._ops = OpBatches(self.config, self._clock, self.puts, host)
        self.pop = PopService(
            self.config, self._clock, self.store, self.topics, self.groups, self.offsets, self.consumers, self.filters,
            self.stats, self.metrics.meter, self.puts, self.orders, self.pop_waiting, host, self._log,
        )  # fmt: skip
        decisions = Decisions(self._ops)
        self._transaction_check = TransactionalMessageCheckService(
            self.config,
            self._clock,
            self.store,
            self.topics,
            self.offsets,
            self.puts,
            self._ops,
            decisions,
            self.transaction_metrics,
            ProducerCheck(self.config, self.producers, self._log).ask,
            self._log,
            self.metrics.meter,
        )
        self._context = context = BrokerContext(
            config=self.config,
            clock=self._clock,
            store=self.store,
            records=StoredRecords(self.store),
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
            filters=self.filters,
            request_modes=self.request_modes,
            producers=self.producers,
            locks=self.locks,
            stats=self.stats,
            store_stats=self.store_stats,
            meter=self.metrics.meter,
            holds=self.holds,
            puts=self.puts,
            decisions=decisions,
            transaction_metrics=self.transaction_metrics,
            pop=self.pop,
            kept=self.kept,
            outer=self.outer,
            access=self._acl,
            address=self.address,
            answer=self._answer,
        )
        send = send_processor(context)
        self.routes = routes(context, send)
        hooks = self._hooks
        if self._acl is not None:
            self._acl.require({code: route.permission for code, route in self.routes.items()})
            hooks = (*hooks, self._acl.refusal)
        self.dispatcher = dispatcher(context, self.routes, send, hooks, self._channel_closed)
        broker = self.config.broker
        self._server = RemotingServer(
            self.dispatcher,
            tls=self._tls,
            find_run=FindSendRun(),
            idle_seconds=broker.idle_seconds,
            limits=ServerLimits(
                broker.max_connections, broker.max_request_header_bytes, broker.max_partial_request_bytes,
                broker.max_unread_response_bytes, max_body_bytes=self.dispatcher.max_body_bytes,
            ),
            meter=self.metrics.request_meter,
        )  # fmt: skip

    def _schedule_all(self) -> None:
        config = self.config
        self._schedule = schedule = Schedule()
        schedule.every("long polling, late", lambda: _EXPIRE_INTERVAL_MS, self.holds.expire)
        schedule.every("long polling, all", lambda: CHECK_INTERVAL_MS, self.holds.check)
        schedule.every("configuration", lambda: config.broker.flush_consumer_offset_interval_ms, self.kept.save_all)
        schedule.every("silent clients", lambda: _SCAN_INTERVAL_MS, self._expire_clients)
        schedule.every("statistics", lambda: SAMPLE_MS, self._sample_stats)
        schedule.every("op messages", lambda: config.broker.transaction_op_batch_interval_ms, self._ops.write_all)
        schedule.every("transactions", lambda: TICK_MS, self._transaction_check.run_if_due)
        self.pop.schedule(schedule)
        if self._acl is not None:
            schedule.every("access control", lambda: WATCH_INTERVAL_MS, self._acl.reload)
        schedule.every("rates", lambda: _RATE_SAMPLE_MS, self._sample_rates)
        schedule.every(
            "registration",
            lambda: max(10_000, min(config.broker.register_name_server_period_ms, 60_000)),
            self._register_again,
        )
        if config.broker.enable_slave_acting_master:
            schedule.every("heart-beat", lambda: config.broker.broker_heartbeat_interval_ms, self.outer.heart_beat)

    async def _sample_stats(self) -> None:
        async for _ in in_slices(self.stats.samples(monotonic_ms(self._clock))):
            pass

    def _sample_rates(self) -> None:
        self.store_stats.sample(self._clock.now_ms(), self.stats.put_total, self.stats.get_total)

    async def _register_again(self) -> None:
        if self.config.broker.force_register or await self.outer.needs_register():
            await self.outer.register()

    def _expire_clients(self) -> None:
        now_ms, broker = monotonic_ms(self._clock), self.config.broker
        self.producers.expire(now_ms)
        self.locks.expire(now_ms)
        self.filters.expire()
        self.consumers.expire(now_ms, broker.channel_expired_timeout_ms, broker.subscription_expired_timeout_ms)
        # By now all connected clients have sent a heartbeat.
        if now_ms - self._began_ms > broker.channel_expired_timeout_ms:
            self.offsets.forget_resets(
                lambda topic, group: topic in self.topics or self.consumers.group(group) is not None
            )

    # Stop

    async def shutdown(self) -> None:
        """Unregister, close all connections, then write everything to disk. A second call has no effect."""
        if self._stopping:
            return
        self._stopping = True
        await self._schedule.stop()
        await self.metrics.close()
        await self.outer.unregister()
        self.holds.stop()
        self.pop_waiting.stop()
        await self._server.close()
        await self.dispatcher.drain()
        await self._settle_puts()
        await self._write_ops()
        await self.pop.drain(self._settle_puts)
        if self._answers:
            await asyncio.wait(self._answers)
        await self.kept.save_all()
        self.kept.close()
        await self._client.close()
        await asyncio.get_running_loop().run_in_executor(None, self.store.close)

    async def _settle_puts(self) -> None:
        while not self.puts.is_idle:
            await asyncio.sleep(0.001)

    async def _write_ops(self) -> None:
        """Name all decided half messages in op messages, or the next start checks them again."""
        left = 0
        while self._ops.count not in (0, left):  # the same number: the store takes nothing more
            left = self._ops.count
            self._ops.write_all()
            await self._settle_puts()

    async def abandon(self) -> None:
        """End as a killed process ends: connections break, no peer is notified, no table is saved.

        The file system must refuse what the store would still write at its close; see gantrymq.fs.killable.
        """
        if self._stopping:
            return
        self._stopping = True
        for channel in list(self._server.channels):
            channel.abort()
        for answer in self._answers:
            answer.cancel()
        await self._schedule.stop()
        await self.metrics.close(is_last_exported=False)
        self.holds.stop()
        self.pop_waiting.stop()
        await self._server.close()
        await self._client.close()
        self.kept.close()
        with suppress(Exception):
            await asyncio.get_running_loop().run_in_executor(None, self.store.close)

    # Callbacks between the parts

    def _topics_changed(self, made: list[str]) -> None:
        self._unsettled.update(made)
        self.outer.register_soon()

    def _members_changed(self, group: str) -> None:
        if self.config.broker.notify_consumer_ids_changed_enable:
            self._notices.changed(group)

    def _channel_closed(self, channel: Channel) -> None:
        self.holds.forget(channel)
        self.pop_waiting.forget(channel)
        self._turns.work_through(chain(self.producers.leave(channel), self.consumers.leave(channel)))

    def _cut_off(self, channel: Connected, reason: str) -> None:
        """Close a connection that uses resources which others need."""
        self._log.warning("connection closed", address=channel.address, reason=reason)
        channel.abort()

    def _answer(
        self, channel: Channel, request: RemotingCommand, code: int, pieces: Sequence[bytes], topic: str
    ) -> None:
        """Send an answer. If it depends on a new topic, it first waits until the topic is durable and registered."""
        if topic not in self._unsettled or self._are_settled():
            channel.respond_bytes(request, code, pieces)
        else:
            send = partial(channel.respond_bytes, request, code, pieces)
            task = asyncio.ensure_future(self._answer_when_settled(send, topic))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    def _are_settled(self) -> bool:
        """Whether all topics are durable and registered, so that no answer has to wait."""
        if not (self.kept.is_saved(TOPICS) and self.outer.is_current):
            return False
        self._unsettled.clear()
        return True

    async def _answer_when_settled(self, send: Callable[[], None], topic: str) -> None:
        with suppress(OSError, GantrymqError):  # saving the table is retried later; the message itself is stored
            await self.kept.save(TOPICS)
        with suppress(TimeoutError, GantrymqError):
            await asyncio.wait_for(self.outer.settled(), _ANNOUNCED_S)
        if not self._are_settled():
            self._unsettled.discard(topic)  # this answer has waited for the failure, so no other send has to
        send()
