"""The broker: constructs all its parts, and starts and stops them in order.

    server = BrokerServer("/data/store", LiveConfig(BrokerConfig(namesrv_addr="127.0.0.1:9876"), store_config))
    await server.start()     # recovered, listening and registered
    print(server.address)
    await server.shutdown()  # unregistered, everything on the disk

Source: BrokerController.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from gantrymq.broker import names
from gantrymq.broker.acl.access_control import AccessControl, AccessGuard
from gantrymq.broker.acl.user_access import UserAccess
from gantrymq.broker.answers import Answers, DispatchCatchUp
from gantrymq.broker.appends.put_queue import PutQueue
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.measures import Measures
from gantrymq.broker.metrics.service import BrokerMetrics
from gantrymq.broker.new_topics import NewTopics
from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.periodic_work import PeriodicWork
from gantrymq.broker.pop.long_polling import PopWaiting
from gantrymq.broker.pop.offset_recovery import recover_offsets
from gantrymq.broker.pop.service import Pop
from gantrymq.broker.ports import ReservedPorts
from gantrymq.broker.processors.at_slave import refusals_of_slave
from gantrymq.broker.processors.table import dispatcher, routes
from gantrymq.broker.reads.stored_records import StoredRecords
from gantrymq.broker.replication import Replication
from gantrymq.broker.sessions.sessions import Sessions
from gantrymq.broker.slave.master import MasterClient
from gantrymq.broker.slave.role import SlaveRole
from gantrymq.broker.slave.tables import TableSynchronization
from gantrymq.broker.start_warnings import warn_of_lost_routes, warn_of_replication, warn_of_unsupported_attributes
from gantrymq.broker.statistics import BrokerStatsManager, StoreStatsService
from gantrymq.broker.storage import Storage
from gantrymq.broker.store_log import log_cut, log_failure, log_opening
from gantrymq.broker.tables.persistence import TOPICS
from gantrymq.broker.tables.tables import Tables
from gantrymq.broker.takeover import decided_halves, take_offsets_of_slaves, take_promotion
from gantrymq.broker.topic_deletion import TopicDeletion
from gantrymq.broker.transactions.check import TransactionalMessageCheckService
from gantrymq.broker.transactions.decisions import Decisions
from gantrymq.broker.transactions.op_batches import OpBatches
from gantrymq.broker.transactions.producer_check import ProducerCheck
from gantrymq.clock import Clock, SystemClock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.config.replication_settings import NEXT_TO_LISTEN_PORT
from gantrymq.errors import ConfigError
from gantrymq.format.names import CONFIG
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.ha.divergence import DivergenceFile
from gantrymq.ha.log_cut import cut, finish_cut
from gantrymq.ha.login import Credentials, login_connect
from gantrymq.ha.master_link import Connect
from gantrymq.ha.tls import tls_connect
from gantrymq.kernels.loader import library
from gantrymq.logs import get_logger
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.client import RemotingClient, signing
from gantrymq.remoting.transport.dispatcher import RequestHook
from gantrymq.remoting.transport.server import RemotingServer
from gantrymq.remoting.transport.shared import ServerLimits
from gantrymq.remoting.transport.tls import TlsMode, TlsServer
from gantrymq.remoting.transport.turns import FairTurns
from gantrymq.store.message_store import MessageStore
from gantrymq.store.recovery.recovery import Progress

_ANSWER_S = 0.05  # the answer to a promotion leaves before the connections are closed

log = get_logger("gantrymq.broker")


async def _nothing() -> None:
    """Nothing holds parts of the broker."""


class BrokerServer:
    """A broker with its store at ``path``. Construct it, ``start`` it, ``shutdown`` it, all on one event loop.

    ``config.broker.listen_port`` 0 takes a free port. ``address`` (brokerIP1:port) is the address for clients, known
    after the start. ``given`` are the keys of the store's settings that must hold (see MessageStore.open).

    Raises NotHonouredError for a key of ``config`` that cannot be honoured, unless acceptWithoutEffect names it.
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
        progress: Progress | None = None,
    ) -> None:
        self.config = config or LiveConfig()
        self.config.require_honoured()
        if self.config.broker.broker_id < 0:  # accepted: in RocketMQ a controller would give the id
            self.config.broker = replace(self.config.broker, broker_id=0)
        self._path, self._given, self._progress = Path(path), frozenset(given), progress
        self._clock, self._fs, self._tls = clock or SystemClock(), fs or RealFileSystem(), tls
        self._client_tls = client_tls
        self._stopping = self._is_shut_down = False
        self._reopening: asyncio.Task[None] | None = None
        self._is_to_cut = False
        self._failure, self._has_failed = Exception(), asyncio.Event()
        # Called around a start in place, by which the parts of the broker are replaced: for what holds some of them.
        self.before_reopening: Callable[[], Awaitable[None]] = _nothing
        self.after_reopening: Callable[[], Awaitable[None]] = _nothing
        self.port = 0

    @property
    def address(self) -> str:
        """``brokerIP1:port``, the address under which the broker registers. Known after the start."""
        return f"{self.config.broker.broker_ip1}:{self.port}"

    @property
    def access(self) -> AccessGuard | None:
        """Access control by accounts or by users; None if it is off. Known after the start."""
        return self._guard

    # Start

    async def start(self) -> None:
        """Recover the store, listen, register at the name servers.

        Raises what MessageStore.open raises, and RemotingError if the port is in use. After an error nothing stays
        open.
        """
        take_promotion(self.config, self._fs, self._path)
        broker = self.config.broker
        self._require_tls_of_copies()
        for warning in self.config.warnings():
            log.warning(warning)
        for reason in self.config.accepted:
            log.warning(f"accepted without effect: {reason.text}")
        with ReservedPorts(broker.bind_address, broker.listen_port) as reserved:
            self.port = reserved.port
            ip2 = broker.broker_ip2 or broker.broker_ip1
            self.config.broker = replace(broker, listen_port=self.port, broker_ip2=ip2)
            self._make_state()
            self._require_users_of_copies()
            self.replication.reserve_port(broker.listen_port)
            try:
                self.metrics.bind()
                if not self.config.is_slave:
                    await self.outer.require_no_other_master()
                self.store = await asyncio.get_running_loop().run_in_executor(None, self._open_store)
            except BaseException:
                self.replication.release_port()
                await self.metrics.close()
                await self._client.close()
                raise
            self.config.store = self.store.config
            try:
                self._make_context()
                await self._server.start(broker.bind_address, self.port)
                if reserved.vip is not None:
                    await self._server.listen_too(reserved.vip)
                self.replication.start(self.store)
            except BaseException:
                await self.replication.close()
                await self.metrics.close()
                await asyncio.get_running_loop().run_in_executor(None, self.store.close)
                raise
        self.sessions.holds.start(asyncio.get_running_loop())
        self.pop_waiting.start(asyncio.get_running_loop())
        self._schedule = self._periodic.begin()
        try:
            self.metrics.start(self._context, lambda: len(self._server.channels))
            if self.config.broker.enable_slave_acting_master and not self.config.is_slave:
                await take_offsets_of_slaves(self._context, self._client, self._acl)
            await self.outer.register()
            if self.replication.slave is not None:
                self.replication.slave.start()
        except BaseException:
            await self._stop()
            raise

    def _require_tls_of_copies(self) -> None:
        """Raise ConfigError if haTlsEnable has no TLS to use."""
        store = self.config.store
        if not store.ha_tls_enable:
            return
        if store.ha_enable and (self._tls is None or self._tls.mode is TlsMode.DISABLED):
            raise ConfigError("haTlsEnable", True, "false without tls.server.certPath and tls.server.keyPath")
        if store.is_slave and self._client_tls is None:
            raise ConfigError("haTlsEnable", True, "false at a slave without tls.enable=true")

    def _require_users_of_copies(self) -> None:
        """Raise ConfigError if haAuthenticationEnabled has no users to ask for, or a slave has none to be."""
        store = self.config.store
        if not store.ha_authentication_enabled:
            return
        if store.ha_enable and self._guard is None:
            raise ConfigError(
                "haAuthenticationEnabled", True, "false without authenticationEnabled=true, or aclEnable=true"
            )
        if store.is_slave:
            self._slave_user()

    def _make_state(self) -> None:
        """Construct what exists before the store is open."""
        config, clock = self.config, self._clock
        self._users = UserAccess.of_broker(config.broker, self._fs, self._path / "config", clock)
        self._acl = None if self._users is not None else AccessControl.of_broker(config.broker, self._path)
        self._guard: AccessGuard | None = self._users or self._acl
        self.pop_waiting = PopWaiting(config, clock)
        blocked = self.pop_waiting.locks.note
        self.tables = Tables.load(config, clock, self._fs, self._path / "config", self._topics_changed, blocked)
        topics, persistence = self.tables.topics, self.tables.persistence
        self._client = RemotingClient(tls=self._client_tls, hooks=signing(config.broker.inner_client))
        self.outer = BrokerOuterAPI(config, topics, self.address, self._client)
        self.replication = Replication(config, clock, self.outer, self._tls, self._guard)
        self._new_topics = NewTopics(
            partial(persistence.is_saved, TOPICS), partial(persistence.save, TOPICS), self.outer
        )
        self.sessions = Sessions.of(config, clock, lambda: self.store, self.tables.filters.unregister)
        self._turns = FairTurns()
        self.metrics = BrokerMetrics(config, clock, topics, self.tables.groups)
        stats = BrokerStatsManager(config.broker.broker_cluster_name)
        self.measures = Measures(stats, StoreStatsService(clock.now_ms()), self.metrics.meter)

    def _open_store(self) -> MessageStore:
        library()  # outdated kernels are compiled now, and not during the first client's request
        broker = self.config.broker
        accepted = ",".join(sorted(self.config.accepted_names))
        config = replace(
            self.config.store,
            listen_port=self.port,
            ha_listen_port=self.replication.port or NEXT_TO_LISTEN_PORT,
            broker_ip1=broker.broker_ip1,
            accept_without_effect=accepted,
        )
        finish_cut(self._path, config, self._fs)
        if self._is_to_cut:
            self._is_to_cut = False
            log_cut(cut(self._path, config, self._fs))
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
            slaves=self.replication.acks,
        )
        self.config.accepted += store.accepted_contents
        log_opening(store)
        for name in self.config.unused_acceptances():
            log.warning("acceptWithoutEffect names what nothing refuses", name=name)
        for group_ahead in store.recovery.groups_ahead:
            group, topic, queue_id, _ = group_ahead.at
            self.tables.offsets.set_back(group, topic, queue_id, group_ahead.back_to)
        is_behind_log = not store.recovery.last_exit_ok or store.was_slave
        if is_behind_log and not self.config.is_slave:
            recover_offsets(store, self.tables.offsets, names.REVIVE_TOPIC_PREFIX + broker.broker_cluster_name)
        if not self.config.is_slave:  # its topics come from the master
            warn_of_lost_routes(self.tables.topics, self._fs, self._path)
            DivergenceFile(self._fs, self._path / CONFIG).clear()  # this log is right now, and a cut would lose it
        warn_of_unsupported_attributes(self.tables)
        warn_of_replication(self.config)
        return store

    def _arrived(self, topic: str, queue_id: int, max_offset: int) -> None:
        """A queue has grown. Thread rule: the dispatcher's thread."""
        self.sessions.holds.arrived(topic, queue_id, max_offset)
        self.pop_waiting.arrived(topic, queue_id)

    def _make_context(self) -> None:
        """Construct what needs the open store."""
        config, clock, tables, sessions = self.config, self._clock, self.tables, self.sessions
        self.puts = PutQueue(self.store, config, self.measures.store)
        storage = Storage(self.store, StoredRecords(self.store), self.puts)
        self._ops = OpBatches(config, clock, storage)
        decisions = Decisions(self._ops)
        self.pop = Pop.of(config, clock, storage, tables, sessions.consumers, self.measures, self.pop_waiting)
        ask = ProducerCheck(config, sessions.producers).ask
        self._transaction_check = TransactionalMessageCheckService(
            config, clock, storage, tables, decisions, ask, self.measures.meter
        )
        self._context = context = BrokerContext(
            config=config,
            clock=clock,
            storage=storage,
            tables=tables,
            sessions=sessions,
            pop=self.pop,
            measures=self.measures,
            decisions=decisions,
            outer=self.outer,
            replication=self.replication,
            answers=Answers(DispatchCatchUp(self.store), self._new_topics.respond, self._guard),
            users=self._users,
            address=self.address,
        )
        if self.store.was_slave:
            for queue_id, offset in decided_halves(self.store, tables):
                self._ops.add(queue_id, offset)
        self._periodic = PeriodicWork(context, self._transaction_check)
        if config.is_slave:
            self.replication.slave = self._make_slave(context)
        self.routes = routes(context)
        if self._guard is not None:
            self._guard.require({code: route.permission for code, route in self.routes.items()})
        hooks: list[RequestHook] = [] if self._guard is None else [self._guard.refusal]
        if config.is_slave:
            hooks.append(self._slave_refusals())
        run_hook = self._users.admits if self._users is not None and len(hooks) == 1 else None
        self.dispatcher = dispatcher(context, self.routes, hooks, run_hook, self._channel_closed)
        broker = self.config.broker
        self._server = RemotingServer(
            self.dispatcher,
            tls=self._tls,
            find_runs=self.dispatcher.find_runs,
            idle_seconds=broker.idle_seconds,
            limits=ServerLimits(
                broker.max_connections,
                broker.max_request_header_bytes,
                broker.max_partial_request_bytes,
                broker.max_unread_response_bytes,
                max_body_bytes=self.dispatcher.max_body_bytes,
            ),
            meter=self.metrics.request_meter,
        )

    def _slave_refusals(self) -> RequestHook:
        outer, slave = self.outer, self.replication.slave
        assert slave is not None, "a slave has its role"
        return refusals_of_slave(
            self.config, lambda: outer.master.address if outer.master else "", lambda: slave.is_alone
        )

    def _make_slave(self, context: BrokerContext) -> SlaveRole:
        master = MasterClient(self.config, self.outer, self._client, self._acl)
        deletion = TopicDeletion(
            context.config, context.storage, context.tables, context.sessions, context.pop, context.measures
        )
        tables = TableSynchronization(master, context.tables, context.storage, deletion, context.pop, context.clock)
        connect = self._connect_to_master()
        return SlaveRole(self.store, master, self.outer, tables, self._clock, self._reopen_soon, connect)

    def _connect_to_master(self) -> Connect:
        connect: Connect = socket.create_connection
        if self.config.store.ha_tls_enable:
            assert self._client_tls is not None, "the start has refused it"
            connect = tls_connect(self._client_tls)
        return login_connect(connect, self._slave_user) if self.config.store.ha_authentication_enabled else connect

    def _slave_user(self) -> Credentials:
        """The user with which a slave logs in at its master. Raises ConfigError if there is none."""
        own = self.config.broker.inner_client
        admin = self._acl.administrator if self._acl is not None else None
        if admin is not None:
            own = admin.access_key, admin.secret_key
        if own is None:
            needed = (
                "innerClientAuthenticationCredentials" if self._acl is None else "an administrator in plain_acl.yml"
            )
            raise ConfigError("haAuthenticationEnabled", True, f"false at a slave without {needed}")
        return Credentials(*own)

    # A slave that must cut, or that is promoted

    def _reopen_soon(self, cuts: bool) -> None:
        if self._reopening is None and not self._stopping:
            self._reopening = asyncio.ensure_future(self._reopen(cuts))

    async def _reopen(self, cuts: bool) -> None:
        """Close the store, and start again on the same ports: as a master, or cut what the master does not have."""
        await asyncio.sleep(_ANSWER_S)
        try:
            await self.before_reopening()
            await self._stop()
            self._is_to_cut = cuts
            if not self._is_shut_down:
                await self._start_again()
                await self.after_reopening()
        except Exception as error:
            log.exception("the broker could not start again in place")
            self._failure = error
            self._has_failed.set()
        finally:
            self._reopening = None

    async def _start_again(self) -> None:
        self._stopping = False
        try:
            await self.start()
        except BaseException:
            self._stopping = True  # nothing is open
            raise

    async def failed(self) -> NoReturn:
        """Wait for ever, or until the broker could not start again in place. Raises what that start has raised.

        After that the broker does not run, unless gRPC alone could not start. Another process may start on its store.
        """
        await self._has_failed.wait()
        raise self._failure

    # Stop

    async def shutdown(self) -> None:
        """Unregister, close all connections, then write everything to disk. A second call has no effect."""
        self._is_shut_down = True
        if self._reopening is not None:
            await asyncio.gather(self._reopening, return_exceptions=True)
        await self._stop()

    async def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        await self._schedule.stop()
        if self.replication.slave is not None:
            await self.replication.slave.stop()
        await self.metrics.close()
        await self.outer.unregister()
        self.sessions.holds.stop()
        self.pop_waiting.stop()
        await self._server.close()
        await self.dispatcher.drain()
        await self._settle_puts()
        await self._write_ops()
        await self.pop.drain(self._settle_puts)
        await self._new_topics.drain()
        await self.tables.persistence.save_all()
        self.tables.persistence.close()
        await self.replication.close()
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
        self._new_topics.cancel()
        await self._schedule.stop()
        await self.metrics.close(is_last_exported=False)
        self.sessions.holds.stop()
        self.pop_waiting.stop()
        await self._server.close()
        await self.replication.close()
        await self._client.close()
        self.tables.persistence.close()
        with suppress(Exception):
            await asyncio.get_running_loop().run_in_executor(None, self.store.close)

    # Callbacks between the parts

    def _topics_changed(self, made: list[str]) -> None:
        self._new_topics.changed(made)

    def _channel_closed(self, channel: Channel) -> None:
        self.sessions.holds.forget(channel)
        self.pop_waiting.forget(channel)
        self._turns.work_through(self.sessions.leave(channel))
