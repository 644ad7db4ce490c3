"""A broker's part in replication: its HA server, its slaves according to name servers, and what requests show of both.

A slave has the role of ``broker/slave/``, too, and an HA server for mirrors of it.

Source: BrokerController.syncBrokerMemberGroup, DefaultHAService.getRuntimeInfo.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from contextlib import suppress

from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.ports import bind_port
from gantrymq.broker.slave.role import SlaveRole
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.config.replication_settings import NEXT_TO_LISTEN_PORT
from gantrymq.errors import RemotingError
from gantrymq.ha.login import SlaveLogins
from gantrymq.ha.server import HAServer, plain_host
from gantrymq.ha.slave import SlaveCopyView
from gantrymq.ha.slave_state import SlaveState, SlaveView
from gantrymq.ha.tls import TlsRelays
from gantrymq.logs import get_logger
from gantrymq.model.host import ip_of
from gantrymq.remoting.bodies.broker import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from gantrymq.remoting.headers.broker import ExchangeHAInfoResponseHeader
from gantrymq.remoting.transport.tls import TlsServer
from gantrymq.store.message_store import MessageStore
from gantrymq.store.slave_acks import SlaveAcks

_ASK_INTERVAL_S = 2.0
_ASK_AGAIN_S = 1.0
_MASTER_ID = 0
_MAX_STRANGERS = 64
_MAX_PORT = 65_535

log = get_logger("gantrymq.broker")


class Replication:
    """The replication of one broker. Construct it before the store, ``start`` it after. ``slave`` is a slave's role.

    ``tls`` is for haTlsEnable, ``logins`` for haAuthenticationEnabled. ``port`` is where slaves connect, 0 if haEnable
    is off. ``reserve_port`` binds it, so that a start fails before the store is opened.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        outer: BrokerOuterAPI,
        tls: TlsServer | None = None,
        logins: SlaveLogins | None = None,
    ) -> None:
        self._config, self._clock, self._outer, self._tls, self._logins = config, clock, outer, tls, logins
        self.acks = SlaveAcks(config.store, is_strict=config.broker.enable_slave_acting_master, clock=clock)
        self._reserved: socket.socket | None = None
        self._server: HAServer | None = None
        self._store: MessageStore | None = None
        self._first_end = 0
        self._asking: asyncio.Task[None] | None = None
        self._ask_now = asyncio.Event()
        self._strangers: set[str] = set()  # the addresses that are logged
        self.slave: SlaveRole | None = None
        self.port = 0

    @property
    def address(self) -> str:
        """``brokerIP2:port``, where slaves copy the log; empty if haEnable is off."""
        return f"{self._config.broker.broker_ip2}:{self.port}" if self.port else ""

    # Start and stop

    def reserve_port(self, listen_port: int) -> None:
        """Bind the port of haListenPort: by default one above ``listen_port``, or a free one if listenPort is 0.

        Raises RemotingError if it is taken.
        """
        store, broker = self._config.store, self._config.broker
        if not store.ha_enable:
            return
        port = store.ha_listen_port
        if port == NEXT_TO_LISTEN_PORT:
            port = listen_port + 1 if 0 < listen_port < _MAX_PORT else 0
        try:
            self._reserved = bind_port(broker.bind_address, port, shared=bool(port))
        except RemotingError as error:
            raise RemotingError(f"{error}: set haListenPort, or haEnable=false for a broker without slaves") from error
        self.port = self._reserved.getsockname()[1]

    def release_port(self) -> None:
        """Give the reserved port back, after a start that failed."""
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def start(self, store: MessageStore) -> None:
        """Accept slaves. Raises RemotingError if another process has begun to listen on the port."""
        self._store, self._first_end = store, store.max_phy_offset
        if self._reserved is None:
            return
        relays = TlsRelays(self._tls.answering) if store.config.ha_tls_enable and self._tls is not None else None
        logins = self._logins if store.config.ha_authentication_enabled else None
        server = HAServer(store.commit_log, self.acks, lambda: store.config, self._clock, relays, logins)
        try:
            server.start(self._reserved)
        except OSError as error:
            raise RemotingError(f"cannot listen for slaves on port {self.port}: {error.strerror}") from error
        self._server, self._reserved = server, None
        server.on_unknown = self._ask_now.set
        self._outer.ha_server_addr = self.address
        self._asking = asyncio.ensure_future(self._ask_for_members())

    async def close(self) -> None:
        """Stop copying, and close the HA server and its connections."""
        if self.slave is not None:
            await self.slave.stop()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        if self._server is not None:
            await self._server.close()
        self.release_port()

    # Which addresses are slaves

    async def _ask_for_members(self) -> None:
        is_strict = self._config.broker.enable_slave_acting_master
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ask_now.wait(), _ASK_INTERVAL_S)
            self._ask_now.clear()
            assert self._server is not None, "it runs as long as this task"
            if is_strict or self._server.has_connections:
                try:
                    await self._ask(self._server)
                except Exception:
                    log.exception("the slaves of this broker are not known")
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _ask(self, server: HAServer) -> None:
        members = await self._outer.members()
        if members is None:
            return
        broker_id = self._config.broker.broker_id
        self.acks.alive_replicas = len(members) + (broker_id not in members)
        slaves: Counter[str] = Counter()
        for number, address in members.items():
            if number != _MASTER_ID:
                slaves.update(await _hosts(address))
        server.set_members(slaves)
        if self.acks.waits:
            self._name_strangers(server)

    def _name_strangers(self, server: HAServer) -> None:
        """Log slaves that copy the log and are no copies that sends wait for, once for each address."""
        for slave in server.slaves:
            host = slave.address.rpartition(":")[0]
            is_stranger = slave.acked_offset > 0 and not slave.is_voter  # a mirror acknowledges 0
            if is_stranger and host not in self._strangers and len(self._strangers) < _MAX_STRANGERS:
                self._strangers.add(host)
                reason = "no name server lists its address for this broker, and haAllowedSlaves has it not"
                log.warning("sends do not wait for a slave", slave=slave.address, reason=reason)

    # What requests show

    @property
    def slaves(self) -> list[SlaveView]:
        """The connected slaves."""
        return self._server.slaves if self._server is not None else []

    @property
    def closed_slaves(self) -> list[SlaveView]:
        """The slaves whose connection was closed for a reason within the last minute."""
        return self._server.closed_slaves if self._server is not None else []

    def behind_bytes(self, slave: SlaveView) -> int:
        """How much of the log a slave lacks, in bytes."""
        assert self._store is not None, "slaves connect to an open store"
        return self._store.max_phy_offset - slave.acked_offset

    def exchange(self) -> ExchangeHAInfoResponseHeader | None:
        """The answer to EXCHANGE_BROKER_HA_INFO: where slaves find this master, and the end of its log at the start.

        None at a slave.
        """
        broker = self._config.broker
        if self.slave is not None:
            return None
        return ExchangeHAInfoResponseHeader(
            master_address=f"{broker.broker_ip1}:{broker.listen_port}",
            master_ha_address=self.address or None,
            master_flush_offset=self._first_end,
        )

    def status(self) -> HARuntimeInfo:
        """The answer to GET_BROKER_HA_STATUS."""
        assert self._store is not None, "requests come to an open store"
        slaves = [self._shown(slave) for slave in self.slaves]
        closed = [self._shown(slave) for slave in self.closed_slaves]
        copy = self.slave.view if self.slave is not None else None
        return HARuntimeInfo(
            master=copy is None,
            ha_client_runtime_info=_shown_copy(copy, self.slave.tables_ms if self.slave is not None else 0),
            master_commit_log_max_offset=self._store.max_phy_offset if copy is None else 0,
            in_sync_slave_nums=sum(slave.in_sync for slave in slaves),
            ha_connection_info=slaves,
            closed_connection_info=closed or None,
        )

    def _shown(self, slave: SlaveView) -> HAConnectionRuntimeInfo:
        return HAConnectionRuntimeInfo(
            addr=slave.address,
            slave_ack_offset=slave.acked_offset,
            diff=self.behind_bytes(slave),
            in_sync=slave.state is SlaveState.IN_SYNC,
            transferred_byte_in_second=slave.bytes_per_second,
            transfer_from_where=slave.next_offset,
            state=slave.state.value,
            voter=slave.is_voter,
        )


def _shown_copy(copy: SlaveCopyView | None, tables_ms: int) -> HAClientRuntimeInfo:
    if copy is None:
        return HAClientRuntimeInfo()
    return HAClientRuntimeInfo(
        master_addr=copy.master or None,
        max_offset=copy.max_offset,
        transferred_byte_in_second=copy.bytes_per_second,
        last_read_timestamp=copy.read_ms,
        last_write_timestamp=copy.reported_ms,
        activated=True,
        state=copy.state.value,
        reason=copy.reason or None,
        ack_offset=copy.acked_offset,
        master_max_offset=copy.master_max_offset,
        tables_timestamp=tables_ms,
        record_bytes=copy.record_bytes,
    )


async def _hosts(address: str) -> set[str]:
    """The IP addresses of ``host:port``; none if the name cannot be resolved."""
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(ip_of(address), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {plain_host(str(where[4][0])) for where in addresses}
