"""An embedded broker that can be started, killed and started again, on the same store and the same ports.

Thread rule: the event loop's thread.
"""

from __future__ import annotations

import asyncio
import operator
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gantrymq.auth.files import AccessFiles
from gantrymq.broker.ports import ReservedPorts, bind_port
from gantrymq.clock import ShiftedClock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.config.properties import parse_assignments
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.embedded.grpc_front import OFF
from gantrymq.embedded.standalone import Extras, Standalone
from gantrymq.embedded.users import GivenUsers, Users
from gantrymq.errors import ConfigError, MQBrokerError, RemotingError, StoreClosedError
from gantrymq.format.names import CONFIG
from gantrymq.fs.killable import KillableFileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import TIMER_TOPIC
from gantrymq.model.system_names import AUTO_CREATE_TOPIC
from gantrymq.namesrv.settings import is_known, read_namesrv_config, require_honoured, without_effect
from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from gantrymq.remoting.bodies.route import PERM_READ, PERM_WRITE
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.namesrv import GetRouteInfoRequestHeader
from gantrymq.remoting.headers.topic import CreateTopicRequestHeader
from gantrymq.remoting.transport.client import RemotingClient
from gantrymq.store.message_store import MessageStore

if TYPE_CHECKING:
    from gantrymq.console.server import ConsoleServer

Setting = str | int | bool
Settings = Mapping[str, Setting]

# Small files, which are created fast, a broker that accepts sends even if a busy test has delayed them, and free ports
# for metrics and for slaves, of which an embedded broker has none unless it is told so.
DEFAULTS: Settings = {
    "mappedFileSizeCommitLog": 16 << 20,
    "mappedFileSizeConsumeQueue": 60_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    "waitTimeMillsInSendQueue": 60_000,
    "osPageCacheBusyTimeOutMills": 60_000,
    "metricsPromExporterPort": 0,
    "haEnable": False,
    "haListenPort": 0,
}
_TIMEOUT_MS = 10_000
_ASK_AGAIN_S = 0.005
_SETTLED_WITHIN_S = 5.0
_RENEWED_WITHIN_S = 60.0  # far above the seconds that thousands of messages take


class BrokerClock(ShiftedClock):
    """The broker's clock. Before it is moved forward, ``settle`` waits until the broker has taken in what it has.

    Without that a recall that was acknowledged could come too late: the timers would read it after its message is due.

    A long way is several moves. ``renew`` is called before and after each: it renews the messages in work of gRPC's
    push consumers, which the server otherwise does every 5 s of real time. It returns how far the clock may move until
    the next renewal is due, None for any way.
    """

    def __init__(self, settle: Callable[[], None], renew: Callable[[], int | None]) -> None:
        super().__init__()
        self._settle, self._renew = settle, renew

    def advance(self, by_ms: int) -> None:
        """Move the clock forward by ``by_ms`` milliseconds, or back.

        A move forward first waits, for at most 5 s, until all stored messages are dispatched and all timer messages
        and recalls are scheduled. Messages that a push consumer over gRPC is working on are renewed as often as they
        would be in that time. Raises TypeError unless it is an integer, ValueError if the time would be before 1970 or
        after 9986.
        """
        self._ahead_after(by_ms)
        if operator.index(by_ms) <= 0:
            super().advance(by_ms)
            return
        self._settle()
        left_ms, until_due_ms = operator.index(by_ms), self._renew()
        while left_ms > 0:
            move_ms = left_ms if until_due_ms is None else min(until_due_ms, left_ms)
            super().advance(move_ms)
            left_ms, until_due_ms = left_ms - move_ms, self._renew()


class RestartableBroker:
    """The broker of the store at ``store``. ``settings`` override :data:`DEFAULTS`.

    Port 0 means a free one. Both ports stay reserved from the first start to :meth:`close`, so that no other process
    gets them between a stop and the next start.

    With ``console`` the web console is served from the first start to :meth:`close`, also while the broker is stopped.
    ``users`` are created if they are missing (see :mod:`gantrymq.embedded.users`), and turn on authentication and
    authorization.

    Raises ConfigError for an unknown key, an invalid value, or a key of TLS, which the embedded broker does not
    support, and NotHonouredError for a key that cannot be honoured, unless acceptWithoutEffect names it.
    """

    def __init__(
        self,
        store: Path,
        settings: Settings,
        *,
        namesrv_port: int = 0,
        listen_port: int = 0,
        console: bool = False,
        grpc: bool = False,
        users: Users | None = None,
    ) -> None:
        self.store_path, self.clock = store, BrokerClock(self._settle, self._renew)
        self._given = _texts(settings)
        self._ports = (namesrv_port, listen_port or int(self._given.get("listenPort", 0)))
        if grpc:
            self._given.setdefault("grpcServerPort", "0")
        self._grpc_port = int(self._given.get("grpcServerPort", OFF))
        self._users = GivenUsers(users or {})
        if users is not None:
            self._given = {"authenticationEnabled": "true", "authorizationEnabled": "true"} | self._given
        self._entries = _texts(DEFAULTS) | self._given
        self._config().require_honoured()
        require_honoured(read_namesrv_config(self._entries, of_broker=True), without_effect(self._entries))
        self._reserved: list[ReservedPorts | socket.socket] = []
        self._pair: Standalone | None = None
        self._has_console = console
        self._console: ConsoleServer | None = None
        self._fs = KillableFileSystem(RealFileSystem())
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_running(self) -> bool:
        """Whether the broker runs."""
        return self._pair is not None

    @property
    def pair(self) -> Standalone:
        """The running servers. Raises RemotingError if there are none."""
        if self._pair is None:
            raise RemotingError("the embedded broker does not run")
        return self._pair

    @property
    def console_url(self) -> str:
        """The address of the console. Raises RemotingError if there is none."""
        if self._console is None:
            raise RemotingError("the embedded broker has no console: start it with console=True")
        return self._console.url

    @property
    def max_decompressed_body_size(self) -> int:
        """The largest decompressed body, in bytes."""
        return self._config().store.max_decompressed_body_size_bytes

    @property
    def store(self) -> MessageStore | None:
        """The open store; None while the broker is stopped."""
        return self._pair.broker.store if self._pair is not None else None

    def _settle(self) -> None:
        """Wait until the store is dispatched and its timers have read all, at most 5 s. Thread rule: any thread."""
        deadline = time.monotonic() + _SETTLED_WITHIN_S
        with suppress(StoreClosedError):
            while (store := self.store) is not None and is_behind(store) and time.monotonic() < deadline:
                time.sleep(_ASK_AGAIN_S)

    def _renew(self) -> int | None:
        """Renew the messages in work of gRPC's consumers (Standalone.renew). Thread rule: any but the event loop's."""
        pair, loop = self._pair, self._loop
        if pair is None or loop is None or pair.grpc_address is None:
            return None
        renewal = asyncio.run_coroutine_threadsafe(pair.renew(), loop)
        try:
            return renewal.result(_RENEWED_WITHIN_S)
        except (TimeoutError, CancelledError):  # the broker is being stopped
            renewal.cancel()
            return None

    @property
    def store_config(self) -> MessageStoreConfig:
        """The settings of the store."""
        return self._config().store

    async def start(self) -> None:
        """Start the servers. Returns when the broker has a route. Has no effect if they run."""
        if self._pair is not None:
            return
        self._reserve_ports()
        config, namesrv_port = self._config(), self._ports[0]
        entries = {key: text for key, text in self._entries.items() if key != "listenPort"}
        namesrv = replace(read_namesrv_config(entries, of_broker=True), listen_port=namesrv_port)
        self._fs = KillableFileSystem(RealFileSystem())
        others = without_effect(entries)
        extras = Extras(given=frozenset(self._given), others=others, clock=self.clock, fs=self._fs)
        self._add_users()
        pair = Standalone(self.store_path, config, namesrv, extras)
        self._loop = asyncio.get_running_loop()
        await pair.start()
        self._pair = pair
        if self._has_console and self._console is None:
            await self._start_console()

    def _add_users(self) -> None:
        if self._users.is_empty:
            return
        files = AccessFiles(self._fs, self.store_path / CONFIG)
        files.save(self._users.added_to(files.load()))

    def _client(self) -> RemotingClient:
        """A client that signs as a super user, if one is known."""
        credentials = self._credentials
        if credentials is None:
            return RemotingClient()
        return RemotingClient(hooks=[lambda address, command: credentials.sign(command)])

    @property
    def _credentials(self) -> SessionCredentials | None:
        user = self._users.super_user
        known = [(user.name, user.password)] if user is not None else self._config().broker.initial_users
        return SessionCredentials(*known[0]) if known else None

    async def _start_console(self) -> None:
        from gantrymq.client.settings import ClientConfig

        try:
            from gantrymq.console.cluster.site import cluster_site
            from gantrymq.console.security import Access
            from gantrymq.console.server import ConsoleServer
        except ModuleNotFoundError as error:
            raise ImportError(f"console=True needs {error.name}: pip install 'gantrymq[console]'") from error
        credentials = self._credentials
        config = ClientConfig(self.pair.namesrv_address)
        if credentials is not None:
            config = replace(config, access_key=credentials.access_key, secret_key=credentials.secret_key)
        console = ConsoleServer(cluster_site(config), Access())
        await console.start()
        self._console = console

    async def stop(self) -> None:
        """Shut down cleanly. Has no effect if the broker is stopped."""
        pair, self._pair = self._pair, None
        if pair is not None:
            await pair.shutdown()

    async def kill(self) -> None:
        """End the broker as SIGKILL ends a process. Has no effect if it is stopped."""
        pair, self._pair = self._pair, None
        if pair is not None:
            self._fs.kill()
            await pair.abandon()

    async def restart(self) -> None:
        """Stop the broker if it runs, and start it again."""
        await self.stop()
        await self.start()

    async def close(self) -> None:
        """Stop the broker and the console, and release the ports. Has no effect if that is done."""
        console, self._console = self._console, None
        try:
            if console is not None:
                await console.shutdown()
        finally:
            await self._close_broker()

    async def _close_broker(self) -> None:
        try:
            await self.stop()
        finally:
            while self._reserved:
                self._reserved.pop().close()

    async def create_topic(
        self, topic: str, queues: int, *, order: bool = False, message_type: str | None = None
    ) -> None:
        """Create or change a topic. Returns when it has a route. Raises MQBrokerError if the broker refuses."""
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=PERM_READ | PERM_WRITE,
            topic_filter_type="SINGLE_TAG",
            order=order,
            attributes=f"+message.type={message_type}" if message_type else None,
        )
        client, pair = self._client(), self.pair
        try:
            await _accepted(client, pair.broker_address, RemotingCommand.request(header))
            route = GetRouteInfoRequestHeader(topic=topic)
            while (await client.invoke(pair.namesrv_address, RemotingCommand.request(route), _TIMEOUT_MS)).code:
                await asyncio.sleep(_ASK_AGAIN_S)
        finally:
            await client.close()

    async def create_group(self, group: str, *, order: bool, max_retries: int) -> None:
        """Create or change a consumer group. Raises MQBrokerError if the broker refuses."""
        config = SubscriptionGroupConfig(group_name=group, consume_message_orderly=order, retry_max_times=max_retries)
        request = RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())
        client = self._client()
        try:
            await _accepted(client, self.pair.broker_address, request)
        finally:
            await client.close()

    async def consumer_offsets(self, group: str, topic: str) -> dict[int, int]:
        """The committed offsets of a group on a topic, by queue number."""
        return dict(self.pair.broker.tables.offsets.of(group, topic) or {})

    def _reserve_ports(self) -> None:
        if self._reserved:
            return
        namesrv_port, listen_port = self._ports
        address = self._config().broker.bind_address
        broker = ReservedPorts(address, listen_port)
        try:
            namesrv = bind_port(address, namesrv_port, shared=True)
        except RemotingError:
            broker.close()
            raise
        self._reserved = [broker, namesrv]
        self._ports = (namesrv.getsockname()[1], broker.port)
        if self._grpc_port != OFF:
            try:
                grpc = bind_port(address, self._grpc_port, shared=True)
            except RemotingError:
                while self._reserved:
                    self._reserved.pop().close()
                raise
            self._reserved.append(grpc)
            self._grpc_port = grpc.getsockname()[1]

    def _config(self) -> LiveConfig:
        config = LiveConfig()
        config.update(self._entries)
        config.broker = replace(config.broker, listen_port=self._ports[1], grpc_server_port=self._grpc_port)
        return config


async def _accepted(client: RemotingClient, address: str, request: RemotingCommand) -> None:
    """Send a request. Raises MQBrokerError if the broker refuses it."""
    answer = await client.invoke(address, request, _TIMEOUT_MS)
    if answer.code != ResponseCode.SUCCESS:
        raise MQBrokerError(address, answer.code, ResponseCode(answer.code).name, str(answer.remark))


def _texts(settings: Settings) -> dict[str, str]:
    for key in settings:
        if key.startswith("tls."):
            raise ConfigError(key, settings[key], "here, in a process of yours; gantrymq serve speaks TLS")
    words = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()}
    return parse_assignments((f"{key}={text}" for key, text in words.items()), is_known)


def is_behind(store: MessageStore) -> bool:
    """Whether a store has messages that are not dispatched, or timer messages that are not in the wheel."""
    if store.dispatch_behind_bytes:
        return True
    if store.timers is None or not store.max_offset_in_queue(TIMER_TOPIC, 0):
        return False
    progress = store.timers.progress
    return progress is None or progress.behind_messages > 0
