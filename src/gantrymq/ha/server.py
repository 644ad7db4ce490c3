"""The HA server of a master: accepts slaves, counts their acknowledgements, and remembers whom it has closed.

A vote is what a put of a SYNC_MASTER waits for. It counts for a slave of this broker alone: an address that a name
server lists as one (``set_members``), or that haAllowedSlaves names. Each listed slave has one vote, however many
connections come from its address. RocketMQ counts connections, of anyone.

Anyone may copy the log, unless haAllowedSlaves is set. With haAuthenticationEnabled a slave logs in as a user
(``ha/login.py``), and haAllowedSlaves has the addresses that need no login. The number of connections is limited.
Those of known slaves are always accepted.

Source: DefaultHAService.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from ipaddress import IPv6Address, ip_address

from gantrymq.clock import Clock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.ha.login import Credentials, LoginRefusedError, SlaveLogins, receive_login
from gantrymq.ha.slave_connection import SlaveConnection
from gantrymq.ha.slave_state import SlaveState, SlaveView
from gantrymq.ha.tls import TlsRelays
from gantrymq.logs import get_logger
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.slave_acks import SlaveAcks, SlowestSlave

MAX_CONNECTIONS = 1_000
_BACKLOG = 128
_TICK_S = 0.1
_REMEMBERED, _REMEMBERED_S = 64, 60.0
_LOG_AGAIN_S = 60.0  # for one address and state
_LOG_LINES = 10  # for all addresses, in that time

log = get_logger("gantrymq.ha")


class HAServer:
    """Sends ``commit_log`` to slaves, and passes what they acknowledge to ``acks``.

    With ``tls`` slaves must speak it, with ``logins`` they must log in.

    Thread rule: the event loop's thread. ``acks.grown`` and ``acks.slowest_slave`` may be called from any thread.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        acks: SlaveAcks,
        config: Callable[[], MessageStoreConfig],
        clock: Clock,
        tls: TlsRelays | None = None,
        logins: SlaveLogins | None = None,
    ) -> None:
        self._logins = logins
        self._log, self._acks, self._config, self._clock = commit_log, acks, config, clock
        self._tls, self._handshakes = tls, set[asyncio.Task[None]]()
        self._loop = asyncio.get_running_loop()
        self._connections: dict[SlaveConnection, None] = {}
        self._members: Mapping[str, int] = {}  # the number of slaves by address
        self._slaves_at: dict[str, int] = {}  # the number of slaves at each address of a connection
        self._voters: tuple[SlaveConnection, ...] = ()
        self._closed: OrderedDict[tuple[str, SlaveState], tuple[float, SlaveView]] = OrderedDict()
        self._lines: dict[tuple[str, SlaveState], float] = {}
        self._left_out = 0
        self._is_growth_seen = True
        self._seen_end = -1
        self._socket: socket.socket | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.on_unknown: Callable[[], None] = lambda: None  # called when an address connects that is no member

    # Start and stop

    def start(self, bound: socket.socket) -> None:
        """Accept slaves at a bound socket, which belongs to the server from now on. Raises OSError."""
        bound.listen(_BACKLOG)
        bound.setblocking(False)
        self._socket = bound
        self._acks.grown, self._acks.slowest_slave = self._grown, self._slowest
        self._tasks = [self._loop.create_task(self._accept()), self._loop.create_task(self._tick())]

    async def close(self) -> None:
        """Close the port and all connections."""
        tasks = [*self._tasks, *self._handshakes]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        closing = list(self._connections)
        for connection in closing:
            connection.close(SlaveState.LEFT)
        await asyncio.gather(*(connection.closed() for connection in closing))
        if self._tls is not None:
            await self._tls.close()

    # State

    @property
    def slaves(self) -> list[SlaveView]:
        """The connected slaves, in the order of their connections."""
        voters = {voter for voter in self._voters if voter.acknowledges}
        return [connection.view(is_voter=connection in voters) for connection in self._connections]

    @property
    def closed_slaves(self) -> list[SlaveView]:
        """The slaves whose connection was closed for a reason within the last minute, oldest first."""
        now_s = self._clock.monotonic_s()
        return [view for closed_s, view in self._closed.values() if now_s - closed_s < _REMEMBERED_S]

    @property
    def has_connections(self) -> bool:
        """Whether anyone is connected."""
        return bool(self._connections)

    def set_members(self, members: Mapping[str, int]) -> None:
        """Set the addresses of this broker's slaves, each with the number of slaves that it has."""
        if members != self._members:
            self._members = dict(members)
            self._count_voters()

    # Connections

    async def _accept(self) -> None:
        assert self._socket is not None, "start() has set it"
        while True:
            try:
                connected, address = await self._loop.sock_accept(self._socket)
            except OSError as error:
                log.warning("a slave could not be accepted", reason=str(error))
                await asyncio.sleep(1)
                continue
            peer = plain_host(address[0]), address[1]
            if (self._tls is None and self._logins is None) or self._is_closed_to(peer[0]):
                self._add(connected, peer)
            elif len(self._handshakes) >= MAX_CONNECTIONS and not self._votes_of(peer[0]):
                connected.close()
                self._remember_closed(peer[0], _stranger(peer, SlaveState.REFUSED), "")
            else:
                task = self._loop.create_task(self._add_secured(connected, peer))
                self._handshakes.add(task)
                task.add_done_callback(self._handshakes.discard)

    async def _add_secured(self, connected: socket.socket, peer: tuple[str, int]) -> None:
        if self._tls is not None:
            try:
                connected = await self._tls.plain(connected)
            except OSError as error:
                self._remember_closed(peer[0], _stranger(peer, SlaveState.NO_TLS), str(error))
                return
        if self._logins is None:
            self._add(connected, peer)
            return
        connected.setblocking(False)
        try:
            login = await receive_login(connected, peer[0], self._logins)
            if isinstance(login, bytes) and not self._is_allowed(peer[0]):
                raise LoginRefusedError("it does not log in, and haAllowedSlaves has not its address")
        except (LoginRefusedError, OSError) as error:
            connected.close()
            self._remember_closed(peer[0], _stranger(peer, SlaveState.NOT_LOGGED_IN), str(error) or "it is silent")
        except BaseException:
            connected.close()
            raise
        else:
            self._add(connected, peer, login)

    def _add(self, connected: socket.socket, address: tuple[str, int], login: Credentials | bytes = b"") -> None:
        connection = SlaveConnection(
            connected, address, self._log, self._config, self._clock.monotonic_s, changed=self._changed,
            ended=self._ended,
        )  # fmt: skip
        self._connections[connection] = None
        connection.user = login if isinstance(login, Credentials) else None
        if self._is_closed_to(connection.host):
            connection.close(SlaveState.NOT_ALLOWED)
        elif len(self._connections) > MAX_CONNECTIONS and not self._votes_of(connection.host):
            connection.close(SlaveState.REFUSED)
        else:
            with suppress(OSError):  # the peer may be gone; reading says so
                connection.start(login if isinstance(login, bytes) else b"")
            self._count_voters()
            if not self._votes_of(connection.host):
                self.on_unknown()

    def _is_allowed(self, host: str) -> bool | None:
        """Whether haAllowedSlaves has an address; None without the setting."""
        networks = self._config().allowed_slaves
        return any(ip_address(host) in network for network in networks) if networks else None

    def _is_closed_to(self, host: str) -> bool:
        """Whether an address may not connect at all."""
        return self._logins is None and self._is_allowed(host) is False

    def _apply_allowed(self) -> None:
        for connection in list(self._connections):
            if self._is_closed_to(connection.host):
                connection.close(SlaveState.NOT_ALLOWED)
        self._count_voters()

    def _check_users(self, logins: SlaveLogins) -> None:
        """Close the slaves whose user may not copy the log any more, and those that needed none before."""
        for connection in list(self._connections):
            user = connection.user
            if user is not None:
                wrong = logins.slave_refusal(connection.host, user.name, user.password.__eq__)
            else:
                wrong = None if self._is_allowed(connection.host) else "haAllowedSlaves has not its address"
            if wrong is not None:
                connection.reason = wrong
                connection.close(SlaveState.NOT_LOGGED_IN)

    def _changed(self, connection: SlaveConnection) -> None:
        if connection in self._voters:
            self._count_votes()

    def _ended(self, connection: SlaveConnection) -> None:
        self._connections.pop(connection, None)
        was_voter = connection in self._voters
        view = connection.view(is_voter=was_voter)
        if was_voter:
            self._count_voters()
        if connection.state is not SlaveState.LEFT:
            self._remember_closed(connection.host, view, connection.reason)

    def _remember_closed(self, host: str, view: SlaveView, reason: str) -> None:
        key = (host, view.state)
        self._closed.pop(key, None)
        self._closed[key] = self._clock.monotonic_s(), replace(view, is_voter=False)
        if len(self._closed) > _REMEMBERED:
            self._closed.popitem(last=False)
        self._log_closed(key, view, reason)

    def _log_closed(self, key: tuple[str, SlaveState], view: SlaveView, reason: str) -> None:
        """Log why a connection was closed: once a minute for an address and state, and few lines in all."""
        now_s = self._clock.monotonic_s()
        self._lines = {known: at_s for known, at_s in self._lines.items() if now_s - at_s < _LOG_AGAIN_S}
        if key in self._lines or len(self._lines) >= _LOG_LINES:
            self._left_out += 1
            return
        self._lines[key] = now_s
        begin, end, left_out = max(self._log.min_offset, 0), self._log.max_offset, self._left_out
        fields = {"slave": view.address, "state": str(view.state), "offset": view.acked_offset}
        fields |= {"reason": reason} if reason else {}
        log.warning("a slave was disconnected", **fields, log_begin=begin, log_end=end, not_logged=left_out)
        self._left_out = 0

    # Votes

    def _votes_of(self, host: str) -> int:
        """How many slaves of this broker have an address."""
        return max(self._members.get(host, 0), int(bool(self._is_allowed(host))))

    def _count_voters(self) -> None:
        self._slaves_at = {connection.host: self._votes_of(connection.host) for connection in self._connections}
        self._voters = tuple(connection for connection in self._connections if self._slaves_at[connection.host])
        self._count_votes()

    def _count_votes(self) -> None:
        """Pass on what distinct slaves surely have.

        A slave that has connected again may still have its old connections. As many as an address has too many are
        taken for those of the slave that has the most.
        """
        acked: dict[str, list[int]] = {}
        for connection in self._voters:
            if connection.acknowledges:
                acked.setdefault(connection.host, []).append(connection.acked_offset)
        votes = []
        for host, offsets in acked.items():
            offsets.sort(reverse=True)
            votes += [offsets[0], *offsets[1 + max(len(offsets) - self._slaves_at[host], 0) :]]
        self._acks.update(votes)

    def _slowest(self) -> SlowestSlave | None:
        """The known slave that needs the oldest part of the log. Thread rule: any thread."""
        slaves = [SlowestSlave(voter.address, voter.needed_from) for voter in self._voters if voter.retention_waits]
        return min(slaves, key=lambda slave: slave.offset, default=None)

    # The log grows

    def _grown(self) -> None:
        """Wake the slaves that wait for the log to grow. Thread rule: any thread."""
        if self._is_growth_seen and self._connections:
            self._is_growth_seen = False
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        self._is_growth_seen = True
        self._seen_end = self._log.max_offset
        for connection in self._connections:
            connection.wake()

    async def _tick(self) -> None:
        allowed = self._config().ha_allowed_slaves
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                self._look()
                if self._config().ha_allowed_slaves != allowed:
                    self._apply_allowed()
                    allowed = self._config().ha_allowed_slaves
            except Exception:
                log.exception("slaves could not be examined")

    def _look(self) -> None:
        now_s = self._clock.monotonic_s()
        for connection in list(self._connections):
            connection.tick(now_s)
        if self._logins is not None:
            self._check_users(self._logins)
        if self._log.max_offset != self._seen_end:  # a write buffer was committed
            self._wake_all()


def _stranger(peer: tuple[str, int], state: SlaveState) -> SlaveView:
    return SlaveView(f"{peer[0]}:{peer[1]}", state, -1, -1, 0, is_voter=False)


def plain_host(host: str) -> str:
    """The text of an address, without the form of IPv6 for an IPv4 one."""
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
