"""A broker's requests to name servers: registration with its topics, heartbeats, unregistration.

Source: BrokerOuterAPI, BrokerController.registerBrokerAll.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from gantrymq.broker.answers import encode_in_slices
from gantrymq.broker.tables.topics import TopicConfigManager, queue_ids
from gantrymq.config.broker_settings import PERM_READ, PERM_WRITE, LiveConfig
from gantrymq.errors import RemotingError
from gantrymq.logs import get_logger
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.registration import encode_compressed
from gantrymq.remoting.bodies.route import MASTER_ID, ClusterInfo, GetBrokerMemberGroupResponseBody, TopicRouteData
from gantrymq.remoting.bodies.topic import (
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.broker import ExchangeHAInfoRequestHeader, GetBrokerMemberGroupRequestHeader
from gantrymq.remoting.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from gantrymq.remoting.transport.client import RemotingClient
from gantrymq.remoting.transport.turns import in_slices

_UNREGISTER_TIMEOUT_MS = 3_000
_ROUTE_TIMEOUT_MS = 3_000
# RocketMQ's name server refuses a registration without the field. Without an HA server another broker of the machine
# may listen at the port, and a Java slave would copy its log.
_NO_HA_SERVER = ""
_AS_SLAVE = (
    "To copy it, start this one with brokerRole=SLAVE and brokerId=1, without STORE/config/role.json; `gantrymq store "
    "diverged` then shows what only this one has"
)
_CRC_MASK = 0x7FFFFFFF  # UtilAll.crc32

log = get_logger("gantrymq.broker")


class MasterAddress(NamedTuple):
    """Where a slave finds its master: ``address`` for requests, and ``ha_address``, which may be empty."""

    address: str
    ha_address: str


class BrokerOuterAPI:
    """Registers the broker that listens at ``address`` with the name servers. Thread rule: the event loop's thread."""

    def __init__(self, config: LiveConfig, topics: TopicConfigManager, address: str, client: RemotingClient) -> None:
        self._config, self._topics, self._address, self._client = config, topics, address, client
        self.ha_server_addr = _NO_HA_SERVER
        self._masters: dict[str, MasterAddress] = {}  # by name server
        self._is_only_master: set[str] = set()  # the name servers that know of no other one, when they were asked last
        self._registering: asyncio.Task[None] | None = None
        self._is_outdated = False

    @property
    def name_servers(self) -> list[str]:
        """The addresses of the name servers."""
        return self._config.broker.name_servers

    @property
    def master(self) -> MasterAddress | None:
        """The master of this slave's group, as the name servers' newest answers say; None if they know none."""
        known = (self._masters.get(name_server) for name_server in self.name_servers)
        return next((master for master in known if master is not None), None)

    async def require_no_other_master(self, remedy: str = _AS_SLAVE) -> None:
        """Raise RemotingError if a name server knows another master of this broker's name that answers.

        RocketMQ's broker replaces it there, and both take messages that the other one does not have. ``remedy`` is the
        end of the error's text.
        """
        masters = await asyncio.gather(*map(self._other_master, self.name_servers), return_exceptions=True)
        for name_server, other in zip(self.name_servers, masters, strict=True):
            if isinstance(other, str):
                raise RemotingError(_another_master(self._config.broker.broker_name, other, name_server) + remedy)

    def look_again(self) -> None:
        """Let the next registration ask each name server again for another master of this name."""
        self._is_only_master.clear()

    async def _other_master(self, name_server: str) -> str | None:
        """The address of another master of this name that a name server knows and that answers; None without one.

        Raises RemotingError if the name server cannot be asked.
        """
        timeout_ms = self._config.broker.register_broker_timeout_ms
        request = RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO)
        response = await self._client.invoke(name_server, request, timeout_ms)
        address = None
        if response.code == ResponseCode.SUCCESS:
            data = decode_body(ClusterInfo, response.body).broker_addr_table.get(self._config.broker.broker_name)
            address = data.broker_addrs.get(MASTER_ID) if data is not None else None
        if address is not None and address != self._address and await self._is_master(address, timeout_ms):
            return address
        self._is_only_master.add(name_server)
        return None

    async def _is_master(self, address: str, timeout_ms: int) -> bool:
        """Whether a broker answers there that is no slave."""
        try:
            response = await self._client.invoke(
                address, RemotingCommand.request(ExchangeHAInfoRequestHeader()), timeout_ms
            )
            is_slave = response.code == ResponseCode.SUCCESS and "masterAddress" not in response.ext_fields
        except RemotingError as error:
            log.warning("a name server knows another master of this name, which does not answer", address=address,
                reason=str(error))  # fmt: skip
            return False
        return not is_slave

    async def register(self) -> int:
        """Register all topics at every name server. Returns how many accepted.

        A failure is logged, and repeated later. A name server that knows another master gets no registration.
        """
        if not self.name_servers:
            return 0
        wrapper = self._wrapper(self._topics.table.values())
        body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
        broker = self._config.broker
        raw = encode_compressed(body) if broker.compressed_register else await encode_in_slices(body)
        header = RegisterBrokerRequestHeader(
            broker_name=broker.broker_name,
            broker_addr=self._address,
            cluster_name=broker.broker_cluster_name,
            ha_server_addr=self.ha_server_addr,
            broker_id=broker.broker_id,
            heartbeat_timeout_millis=broker.broker_not_active_timeout_ms if broker.enable_slave_acting_master else None,
            enable_acting_master=broker.enable_slave_acting_master,
            compressed=broker.compressed_register,
            body_crc32=zlib.crc32(raw) & _CRC_MASK,
        )
        counts = await asyncio.gather(*(self._register_at(address, header, raw) for address in self.name_servers))
        return sum(counts)

    def register_soon(self) -> None:
        """Start a registration because topics have changed. Changes during it are sent by one more registration."""
        self._is_outdated = True
        if self._registering is None:
            self._registering = asyncio.ensure_future(self._register_until_current())

    @property
    def is_current(self) -> bool:
        """Whether no registration is under way."""
        return self._registering is None

    async def settled(self) -> None:
        """Wait until no registration is under way."""
        if self._registering is not None:
            await asyncio.shield(self._registering)

    async def _register_until_current(self) -> None:
        try:
            while self._is_outdated:
                self._is_outdated = False
                await self.register()
        finally:
            self._registering = None

    async def needs_register(self) -> bool:
        """Whether a name server has another version of our topics (QUERY_DATA_VERSION)."""
        broker = self._config.broker
        header = QueryDataVersionRequestHeader(
            broker_name=broker.broker_name,
            broker_addr=self._address,
            cluster_name=broker.broker_cluster_name,
            broker_id=broker.broker_id,
        )
        for name_server in self.name_servers:
            request = RemotingCommand.request(header, self._topics.version.encode())
            try:
                response = await self._client.invoke(name_server, request, broker.register_broker_timeout_ms)
                if response.code != ResponseCode.SUCCESS or response.read(QueryDataVersionResponseHeader).changed:
                    return True
            except RemotingError:
                return True
        return False

    async def delete_routes(self, topics: Iterable[str]) -> None:
        """Delete the routes of topics to this cluster at every name server. A failure is logged.

        A registration removes no topic. A broker of the cluster that still has one of them registers it again.
        """
        await self.settled()
        broker = self._config.broker
        for topic in topics:
            header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=broker.broker_cluster_name)
            for name_server in self.name_servers:
                try:
                    request = RemotingCommand.request(header)
                    await self._client.invoke(name_server, request, broker.register_broker_timeout_ms)
                except RemotingError as error:
                    log.warning("a route stays", topic=topic, name_server=name_server, reason=str(error))

    async def heart_beat(self) -> None:
        """Send a heartbeat to every name server (BROKER_HEARTBEAT), one-way."""
        broker = self._config.broker
        header = BrokerHeartbeatRequestHeader(
            cluster_name=broker.broker_cluster_name,
            broker_addr=self._address,
            broker_name=broker.broker_name,
            broker_id=broker.broker_id,
            heartbeat_timeout_mills=broker.broker_not_active_timeout_ms,
        )
        for name_server in self.name_servers:
            try:
                await self._client.invoke_oneway(name_server, RemotingCommand.request(header))
            except RemotingError as error:
                log.warning("no heart-beat to a name server", name_server=name_server, reason=str(error))

    async def unregister(self) -> None:
        """Unregister from every name server."""
        broker = self._config.broker
        header = UnRegisterBrokerRequestHeader(
            broker_name=broker.broker_name,
            broker_addr=self._address,
            cluster_name=broker.broker_cluster_name,
            broker_id=broker.broker_id,
        )
        for name_server in self.name_servers:
            try:
                await self._client.invoke(name_server, RemotingCommand.request(header), _UNREGISTER_TIMEOUT_MS)
            except RemotingError as error:
                log.warning("not unregistered", name_server=name_server, reason=str(error))

    async def members(self) -> dict[int, str] | None:
        """The brokers of this broker's group by id, of all name servers; None if none of them answers."""
        broker = self._config.broker
        header = GetBrokerMemberGroupRequestHeader(
            cluster_name=broker.broker_cluster_name, broker_name=broker.broker_name
        )
        brokers: dict[int, str] | None = None
        for name_server in self.name_servers:
            try:
                response = await self._client.invoke(name_server, RemotingCommand.request(header), _ROUTE_TIMEOUT_MS)
                if response.code != ResponseCode.SUCCESS:
                    continue
                group = decode_body(GetBrokerMemberGroupResponseBody, response.body).broker_member_group
            except RemotingError as error:
                log.warning("no members of the broker's group", name_server=name_server, reason=str(error))
                continue
            brokers = (brokers or {}) | (group.broker_addrs if group is not None else {})
        return brokers

    async def readable_queues(self, topic: str) -> list[MessageQueue] | None:
        """The readable queues of a topic at all brokers; None if no name server answers or knows the topic.

        Raises RemotingError if a broker has more queues than a topic can have.
        """
        request = RemotingCommand.request(GetRouteInfoRequestHeader(topic=topic))
        for name_server in self.name_servers:
            try:
                response = await self._client.invoke(name_server, request, _ROUTE_TIMEOUT_MS)
            except RemotingError as error:
                log.warning("a route was not found", topic=topic, name_server=name_server, reason=str(error))
                continue
            if response.code != ResponseCode.SUCCESS:
                return None
            readable = [
                queue_data
                for queue_data in decode_body(TopicRouteData, response.body).queue_datas
                if queue_data.is_readable
            ]
            queues = (
                MessageQueue(topic, queue_data.broker_name, number)
                for queue_data in sorted(readable, key=lambda queue_data: queue_data.broker_name)
                for number in queue_ids(topic, queue_data.read_queue_nums)
            )
            return [queue async for queue in in_slices(queues)]
        return None

    async def _register_at(self, name_server: str, header: RegisterBrokerRequestHeader, body: bytes) -> bool:
        timeout_ms = self._config.broker.register_broker_timeout_ms
        try:
            if not self._config.is_slave and name_server not in self._is_only_master:
                other = await self._other_master(name_server)
                if other is not None:
                    log.error(_another_master(header.broker_name, other, name_server) + _AS_SLAVE)
                    return False
            response = await self._client.invoke(name_server, RemotingCommand.request(header, body), timeout_ms)
            if response.code != ResponseCode.SUCCESS:
                log.warning("not registered", name_server=name_server, code=response.code, reason=response.remark)
                return False
            self._note_master(name_server, response)
            if response.body and not self._config.is_slave:  # a slave has the marks of its master
                self._topics.set_order(decode_body(KVTable, response.body).table)
        except RemotingError as error:
            self._is_only_master.discard(name_server)  # another one may take the place meanwhile
            log.warning("not registered", name_server=name_server, reason=str(error))
            return False
        return True

    def _note_master(self, name_server: str, response: RemotingCommand) -> None:
        answer = response.read(RegisterBrokerResponseHeader)
        if answer.master_addr and answer.master_addr != self._address:
            self._masters[name_server] = MasterAddress(answer.master_addr, answer.ha_server_addr or "")
        else:
            self._masters.pop(name_server, None)

    def _wrapper(self, topics: Iterable[TopicConfig]) -> TopicConfigAndMappingSerializeWrapper:
        allowed = self._config.broker.broker_permission
        chosen = list(topics)
        if not (allowed & PERM_READ and allowed & PERM_WRITE):
            chosen = [msgspec.structs.replace(config, perm=config.perm & allowed) for config in chosen]
        return TopicConfigAndMappingSerializeWrapper(
            topic_config_table={str(config.topic_name): config for config in chosen}, data_version=self._topics.version
        )


def _another_master(broker_name: str, address: str, name_server: str) -> str:
    return (
        f"the name server {name_server} knows another master of {broker_name}, {address}, which answers: two masters "
        "would take different messages. "
    )
