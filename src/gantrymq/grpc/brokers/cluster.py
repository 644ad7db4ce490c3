"""The brokers of a cluster: requests go over remoting to the masters that the name servers name.

Routes and configurations are kept for 20 s, unless the settings say otherwise. One connection to each broker serves all
clients. A broker knows of the clients only the producers of transactions, in the proxy's own heartbeats, because it
asks them about undecided transactions. Consumers are not registered at brokers, as by RocketMQ's proxy.

Source: ClusterMessageService, ClusterMetadataService, ClusterTopicRouteService, ClusterTransactionService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from gantrymq.client.requests.calls import cluster_info, topic_route
from gantrymq.client.requests.records import decode_records
from gantrymq.config.proxy_settings import ProxyConfig
from gantrymq.errors import GantrymqError, MQBrokerError, RemotingConnectError, RemotingError
from gantrymq.grpc.brokers.cache import Cache
from gantrymq.grpc.brokers.interface import FromBroker, QueueRoute, message_type_of
from gantrymq.grpc.brokers.users import ClusterUsers
from gantrymq.grpc.protocol.accesses import Accesses, accesses_of_heartbeat
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.status import CallError, refused
from gantrymq.logs import get_logger
from gantrymq.model.message import PROPERTY_PRODUCER_GROUP
from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.bodies.client import HeartbeatData, ProducerData
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from gantrymq.remoting.bodies.route import MASTER_ID
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import (
    GetSubscriptionGroupConfigRequestHeader,
    UnregisterClientRequestHeader,
)
from gantrymq.remoting.headers.topic import GetTopicConfigRequestHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.client import RemotingClient
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

_BEHIND_BYTES = 1 << 20
_TIMEOUT_MS = 3_000
_TRANSACTIONAL = ("TRANSACTION", "MIXED")
_ABSENT = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)

log = get_logger("gantrymq.grpc")


class _RemoteExchange:
    """A request over remoting. Its response is not waited for by anyone once the client has gone."""

    __slots__ = ("response",)

    def __init__(self, response: asyncio.Future[RemotingCommand]) -> None:
        self.response = response

    def withdraw(self) -> None:
        """Do nothing: the broker answers when its wait is over."""


class _RemoteLink:
    """The membership of one client. Only producers of transactions become known to brokers."""

    def __init__(self, brokers: ClusterBrokers, from_broker: FromBroker, unread_bytes: Callable[[], int]) -> None:
        self._brokers, self.from_broker, self.unread_bytes = brokers, from_broker, unread_bytes
        self.caller: Caller | None = None
        self.groups: frozenset[str] = frozenset()

    async def heart_beat(self, caller: Caller, data: HeartbeatData) -> RemotingCommand:
        self.caller = caller = await self._brokers.require(caller, accesses_of_heartbeat(data))
        self.groups = frozenset(producer.group_name for producer in data.producer_data_set)
        await self._brokers.producers.register(self)
        return RemotingCommand(ResponseCode.SUCCESS)

    def close(self) -> None:
        self._brokers.producers.unregister(self)


class _Producers:
    """The producers of transactions by topic, and the heartbeats in their name.

    A broker that gets no more heartbeats of a topic closes their connection after two minutes (ProducerManager), and
    that is the connection of all clients. So a topic without producers is unregistered at the next heartbeats, and
    again at later ones if a broker does not answer. RocketMQ's proxy has another connection for these heartbeats.
    """

    def __init__(self, brokers: ClusterBrokers) -> None:
        self._brokers, self._client_id = brokers, f"gantrymq-proxy@{uuid4().hex}"
        self._links: dict[str, dict[_RemoteLink, None]] = {}
        self._registered: dict[str, dict[str, Caller]] = {}  # by topic and address, with the last heartbeat's caller
        self._turn = 0

    async def register(self, link: _RemoteLink) -> None:
        """Add a client. The brokers of a topic that had no producer get a heartbeat at once."""
        for topic in link.groups:
            links = self._links.setdefault(topic, {})
            is_first = not links
            links[link] = None
            if is_first:
                await self._beat(topic, link)

    def unregister(self, link: _RemoteLink) -> None:
        """Remove a client."""
        for topic in link.groups:
            links = self._links.get(topic, {})
            links.pop(link, None)
            if not links:
                self._links.pop(topic, None)

    async def beat_all(self) -> None:
        """Send the heartbeats of all topics that have producers, and unregister the others."""
        for topic, links in list(self._links.items()):
            if links:
                await self._beat(topic, next(reversed(links)))
        for topic in list(self._registered):
            if topic not in self._links:
                await self._unregister(topic, keep=())

    async def _beat(self, topic: str, link: _RemoteLink) -> None:
        caller = link.caller
        assert caller is not None, "a link has had a heartbeat"
        try:
            addresses = await self._brokers_of_transactions(caller, topic)
            body = HeartbeatData(client_id=self._client_id)
            body.producer_data_set = [ProducerData(group_name=topic)]
            for address in addresses:
                self._registered.setdefault(topic, {})[address] = caller
                command = RemotingCommand(RequestCode.HEART_BEAT, body=body.encode())
                await self._brokers.send(address, caller, command, _TIMEOUT_MS)
        except GantrymqError as error:
            log.warning("a broker was not told of a producer", topic=topic, reason=str(error))
        else:
            await self._unregister(topic, keep=addresses)

    async def _brokers_of_transactions(self, caller: Caller, topic: str) -> list[str]:
        """The addresses of the masters of a topic; none if the topic is not for transactions."""
        if message_type_of(await self._brokers.topic(caller, topic)) not in _TRANSACTIONAL:
            return []
        route = await self._brokers.route(caller, topic)
        brokers = route.brokers if route is not None else ()
        return [broker.broker_addrs[MASTER_ID] for broker in brokers if MASTER_ID in broker.broker_addrs]

    async def _unregister(self, topic: str, keep: Sequence[str]) -> None:
        """Tell the brokers that are not in ``keep`` that a topic has no producers here."""
        registered = self._registered.pop(topic, {})
        remaining = {address: caller for address, caller in registered.items() if address in keep}
        if remaining:
            self._registered[topic] = remaining
        for address in [address_left for address_left in registered if address_left not in remaining]:
            header = UnregisterClientRequestHeader(client_id=self._client_id, producer_group=topic)
            try:
                await self._brokers.send(address, registered[address], RemotingCommand.request(header), _TIMEOUT_MS)
            except RemotingConnectError:
                continue  # without a connection the broker has no producer of it
            except GantrymqError as error:
                log.warning("a broker was not told that a producer has left", topic=topic, reason=str(error))
                self._registered.setdefault(topic, {}).setdefault(address, registered[address])

    def check(self, channel: Channel, request: RemotingCommand) -> None:
        """Ask a producer of the group about a transaction. The producers of a group take turns."""
        half = next(iter(decode_records(request.body, decompressed=False)))
        links = list(self._links.get(half.properties.get(PROPERTY_PRODUCER_GROUP, ""), ()))
        self._turn += 1
        begin = self._turn % len(links) if links else 0
        for link in (*links[begin:], *links[:begin]):
            if link.unread_bytes() < _BEHIND_BYTES:
                request.ext_fields.setdefault("bname", self._brokers.name_at(channel.address))
                self._brokers.start(link.from_broker(request))
                return


class ClusterBrokers:
    """The brokers that the name servers of ``config`` know. Thread rule: the event loop's thread.

    ``tls`` is the context for connections to them, or None.
    """

    def __init__(self, config: ProxyConfig, tls: Any = None) -> None:
        self._config, self._name_servers = config, config.name_servers
        self.producers = _Producers(self)
        dispatcher = RequestDispatcher({RequestCode.CHECK_TRANSACTION_STATE: self._check})
        self._client = RemotingClient(handler=dispatcher, tls=tls)
        self._own = SessionCredentials(*config.inner_client) if config.inner_client is not None else None
        self.users = ClusterUsers(config, self._client, self._masters) if config.authentication_enabled else None
        self._routes = Cache(config.route_cache_s, config.max_routes)
        self._topics = Cache(config.topic_cache_s, config.max_topics)
        self._groups = Cache(config.group_cache_s, config.max_groups)
        self._clusters = Cache(config.route_cache_s, 1)
        self._addresses: dict[str, str] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._heartbeats: asyncio.Task[None] | None = None

    def begin_heartbeats(self) -> None:
        """Begin to send the heartbeats of producers."""
        self._heartbeats = asyncio.ensure_future(self._beat())

    async def close(self) -> None:
        """Close all connections."""
        for task in (self._heartbeats, *self._tasks):
            if task is not None:
                task.cancel()
        await self._client.close()

    # What calls need

    @property
    def max_body_bytes(self) -> int:
        """The proxy's limit for a body, in bytes."""
        return self._config.max_message_size_bytes

    async def route(self, caller: Caller, topic: str) -> QueueRoute | None:
        """The route of a topic."""
        route: QueueRoute | None = await self._routes.get(topic, lambda: self._find_route(topic))
        return route

    async def topic(self, caller: Caller, name: str) -> TopicConfig | None:
        """The configuration of a topic, of the first broker in its route."""
        asker = self._asker(caller)

        async def look() -> TopicConfig | None:
            route = await self.route(caller, name)
            masters = [broker.broker_addrs.get(MASTER_ID) for broker in route.brokers] if route is not None else []
            header = GetTopicConfigRequestHeader(topic=name)
            made = lambda: RemotingCommand.request(header)  # noqa: E731
            config: TopicConfig | None = await self._first(asker, masters, made, TopicConfig)
            return config

        topic_config: TopicConfig | None = await self._topics.get(_key(asker, name), look)
        return topic_config

    async def group(self, caller: Caller, name: str) -> SubscriptionGroupConfig | None:
        """The configuration of a group, of the first broker that has it."""
        asker = self._asker(caller)

        async def look() -> SubscriptionGroupConfig | None:
            masters = (await self._masters()).values()
            header = GetSubscriptionGroupConfigRequestHeader(group=name)
            made = lambda: RemotingCommand.request(header)  # noqa: E731
            config: SubscriptionGroupConfig | None = await self._first(
                asker, list(masters), made, SubscriptionGroupConfig
            )
            return config

        group_config: SubscriptionGroupConfig | None = await self._groups.get(_key(asker, name), look)
        return group_config

    def begin(self, caller: Caller, broker_name: str, command: RemotingCommand, timeout_ms: int) -> _RemoteExchange:
        """Send a request to a broker's master."""
        return _RemoteExchange(self.start(self._invoke(caller, broker_name, command, timeout_ms)))

    def link(self, caller: Caller, from_broker: FromBroker, unread_bytes: Callable[[], int]) -> _RemoteLink:
        """Open a membership of a client."""
        return _RemoteLink(self, from_broker, unread_bytes)

    # For this module

    async def send(
        self, address: str, caller: Caller | None, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Send a request in the name of its caller, None for the proxy itself. Raises CallError if it may not."""
        if caller is None:
            self._sign_own(command)
            return await self._client.invoke(address, command, timeout_ms)
        command.language, command.version = caller.language, caller.version
        if self.users is not None:
            await self.users.sign(address, caller, command)
        elif caller.credentials is not None:
            caller.credentials.sign(command)
        return await self._client.invoke(address, command, timeout_ms)

    async def require(self, caller: Caller, accesses: Accesses) -> Caller:
        """The caller of a heartbeat that needs ``accesses``. Raises CallError if the users' policies deny one."""
        if self.users is None:
            return caller
        await self.users.require(caller.proof, accesses)
        return replace(caller, accesses=accesses)

    def _asker(self, caller: Caller) -> Caller | None:
        """Who looks up configurations. With users the proxy itself, because a user may send and see no settings."""
        return None if self.users is not None else caller

    def _sign_own(self, command: RemotingCommand) -> None:
        if self._own is not None:
            self._own.sign(command)

    def start(self, work: Any) -> asyncio.Future[Any]:
        """Run a coroutine that ends with the server at the latest."""
        task: asyncio.Future[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def name_at(self, address: str) -> str:
        """The name of the broker at an address; empty if it is not known."""
        return next((name for name, known in self._addresses.items() if known == address), "")

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, because the client may have gone

    async def _invoke(
        self, caller: Caller, broker_name: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        address = self._addresses.get(broker_name)
        if address is None:
            address = (await self._masters()).get(broker_name)
        if address is None:
            raise CallError(Code.BAD_REQUEST, f"cannot find broker {broker_name[:128]}")
        try:
            return await self.send(address, caller, command, timeout_ms)
        except RemotingConnectError:
            self._addresses.pop(broker_name, None)
            self._routes.forget()
            self._clusters.forget()
            raise

    async def _first(
        self,
        caller: Caller | None,
        addresses: Sequence[str | None],
        made: Callable[[], RemotingCommand],
        body: type[Any],
    ) -> Any:
        """The answer of the first broker that knows something; None if all say that they do not."""
        error: GantrymqError | None = None
        for address in addresses:
            if address is None:
                continue
            try:
                response = await self.send(address, caller, made(), _TIMEOUT_MS)
            except RemotingError as failed:
                error = failed
                continue
            if response.code == ResponseCode.SUCCESS:
                return decode_body(body, response.body)
            if response.code not in _ABSENT:
                error = refused(response)
        if error is not None:
            raise error
        return None

    async def _masters(self) -> dict[str, str]:
        """The addresses of all masters by broker name."""

        async def look() -> dict[str, str]:
            info = await self._ask_name_servers(cluster_info())
            table = info.broker_addr_table
            masters = {
                name: broker_data.broker_addrs[MASTER_ID]
                for name, broker_data in table.items()
                if MASTER_ID in broker_data.broker_addrs
            }
            self._addresses |= masters
            return masters

        addresses: dict[str, str] = await self._clusters.get("", look)
        return addresses

    async def _find_route(self, topic: str) -> QueueRoute | None:
        route = await self._ask_name_servers(topic_route(topic))
        if route is None or not route.queue_datas or not route.broker_datas:
            return None
        for broker in route.broker_datas:
            if MASTER_ID in broker.broker_addrs:
                self._addresses[broker.broker_name] = broker.broker_addrs[MASTER_ID]
        return QueueRoute(route.queue_datas, route.broker_datas)

    async def _ask_name_servers(self, call: Any) -> Any:
        error: GantrymqError = RemotingError("no name server is set")
        for address in self._in_turn():
            try:
                return call.read(await self.send(address, None, call.request(), _TIMEOUT_MS), address)
            except (RemotingError, MQBrokerError) as failed:
                error = failed
        raise error

    def _in_turn(self) -> Iterator[str]:
        """The name servers, the one that answered last first."""
        for address in list(self._name_servers):
            yield address
            self._name_servers.append(self._name_servers.pop(0))  # it did not answer

    def _check(self, channel: Channel, request: RemotingCommand) -> None:
        self.producers.check(channel, request)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._config.producer_heartbeat_s)
            await self.producers.beat_all()


def _key(asker: Caller | None, name: str) -> str:
    """What an account may look up another may not."""
    return f"{asker.access_key if asker is not None else ''} {name}"
