"""QueryRoute and QueryAssignment: where a topic is, and what a consumer receives from.

Clients get the address that they used to reach this server, for every broker: each proxy answers for all brokers, and
the address may be that of a load balancer.

Source: RouteActivity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gantrymq.grpc.brokers.interface import Brokers, QueueRoute, message_type_of
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import AddressScheme, Code, GrpcMessageType, GrpcPermission
from gantrymq.grpc.protocol.messages import (
    Assignment,
    Broker,
    Endpoints,
    MessageQueue,
    QueryAssignmentResponse,
    QueryRouteResponse,
)
from gantrymq.grpc.protocol.status import CallError, status
from gantrymq.grpc.protocol.validation import require_group, require_topic
from gantrymq.remoting.bodies.route import MASTER_ID, QueueData

_MIXED = (GrpcMessageType.NORMAL, GrpcMessageType.FIFO, GrpcMessageType.DELAY, GrpcMessageType.TRANSACTION)


async def find_route(brokers: Brokers, caller: Caller, topic: str) -> QueueRoute:
    """The route of a topic. Raises CallError if there is no such topic."""
    route = await brokers.route(caller, topic)
    if route is None:
        raise CallError(Code.TOPIC_NOT_FOUND, f"No topic route info in name server for the topic: {topic}")
    return route


class Routes:
    """Answers both calls. ``own_address`` is ``host:port`` of this server, for clients that do not say theirs."""

    def __init__(self, brokers: Brokers, own_address: Callable[[], str]) -> None:
        self._brokers, self._own_address = brokers, own_address

    async def query_route(self, caller: Caller, request: Any) -> Any:
        """The queues of a topic, with their permissions and types of messages."""
        topic = require_topic(request.topic.name)
        route = await find_route(self._brokers, caller, topic)
        types = _accepted(message_type_of(await self._brokers.topic(caller, topic)))
        answer = QueryRouteResponse(status=status(Code.OK))
        for queues, broker in self._queues_and_brokers(route, request):
            for queue_id, permission in enumerate(_permissions(queues)):
                answer.message_queues.append(
                    MessageQueue(
                        topic=request.topic,
                        id=queue_id,
                        permission=permission,
                        broker=broker,
                        accept_message_types=types,
                    )
                )
        return answer

    async def query_assignment(self, caller: Caller, request: Any) -> Any:
        """What a consumer receives from: all queues of a broker together (-1), or each one if its group is ordered."""
        topic = require_topic(request.topic.name)
        group_name = require_group(request.group.name)
        route = await find_route(self._brokers, caller, topic)
        group = await self._brokers.group(caller, group_name)
        in_order = group is not None and group.consume_message_orderly
        answer = QueryAssignmentResponse()
        for queues, broker in self._queues_and_brokers(route, request):
            if broker.id != MASTER_ID or not queues.is_readable or queues.read_queue_nums <= 0:
                continue
            permission = GrpcPermission.READ_WRITE if queues.is_writable else GrpcPermission.READ
            for queue_id in range(queues.read_queue_nums) if in_order else (-1,):
                queue = MessageQueue(topic=request.topic, id=queue_id, permission=permission, broker=broker)
                answer.assignments.append(Assignment(message_queue=queue))
        if answer.assignments:
            answer.status.CopyFrom(status(Code.OK))
        else:
            answer.status.CopyFrom(status(Code.FORBIDDEN, "no readable queue"))
        return answer

    def _queues_and_brokers(self, route: QueueRoute, request: Any) -> Iterator[tuple[QueueData, Any]]:
        """The queues of each broker, with each Broker of that name."""
        endpoints = request.endpoints if request.endpoints.addresses else self._own_endpoints()
        by_name = {broker.broker_name: broker for broker in route.brokers}
        for queues in route.queues:
            broker_data = by_name.get(queues.broker_name)
            for broker_id in sorted(broker_data.broker_addrs) if broker_data is not None else ():
                yield queues, Broker(name=queues.broker_name, id=broker_id, endpoints=endpoints)

    def _own_endpoints(self) -> Any:
        host, _, port = self._own_address().rpartition(":")
        host = host.strip("[]")
        scheme = AddressScheme.IPv6 if ":" in host else AddressScheme.IPv4
        if scheme is AddressScheme.IPv4 and not host.replace(".", "").isdigit():
            scheme = AddressScheme.DOMAIN_NAME
        endpoints = Endpoints(scheme=scheme)
        endpoints.addresses.add(host=host, port=int(port))
        return endpoints


def _accepted(name: str) -> tuple[GrpcMessageType, ...]:
    if name == "MIXED":
        return _MIXED
    return (GrpcMessageType.__members__.get(name, GrpcMessageType.MESSAGE_TYPE_UNSPECIFIED),)


def _permissions(queues: QueueData) -> list[GrpcPermission]:
    """The permission of each queue. Queues that are only read, or only written, come before the others."""
    read, write = queues.read_queue_nums, queues.write_queue_nums
    if queues.is_readable and queues.is_writable:
        both = max(min(read, write), 0)
        only = [GrpcPermission.READ] * (read - both) + [GrpcPermission.WRITE] * (write - both)
        return only + [GrpcPermission.READ_WRITE] * both
    if queues.is_writable:
        return [GrpcPermission.WRITE] * write
    if queues.is_readable:
        return [GrpcPermission.READ] * read
    return [GrpcPermission.NONE] * max(1, read, write)
