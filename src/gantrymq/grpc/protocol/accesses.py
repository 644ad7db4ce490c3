"""What each call needs of users and policies, as RocketMQ's proxy asks for it.

Heartbeat and the settings of a telemetry stream are not here: they become a heartbeat to brokers, which names the same
groups and topics. A blank name is a resource without a name, which only policies for all names allow.

Source: DefaultAuthorizationContextBuilder (build for Metadata and GeneratedMessageV3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gantrymq.auth.decision import ResourceAccess
from gantrymq.auth.policies import Action, Resource, ResourceType
from gantrymq.remoting.bodies.client import HeartbeatData

Accesses = tuple[ResourceAccess, ...]
_PUB, _SUB, _PUB_OR_SUB = (Action.PUB,), (Action.SUB,), (Action.PUB, Action.SUB)
# Calls that are answered without a request to a broker of the caller's topic or group.
ANSWERED_HERE = frozenset({"QueryRoute", "QueryAssignment", "NotifyClientTermination"})


def accesses_of(call: str, request: Any) -> Accesses:
    """The accesses of a call. A call without a row needs a valid signature alone."""
    row = _ROWS.get(call)
    return () if row is None or request is None else row(request)


def accesses_of_heartbeat(data: HeartbeatData) -> Accesses:
    """SUB on the groups and topics of consumers, PUB on the topics of producers: their groups have these names."""
    consumers = [
        access
        for consumer in data.consumer_data_set
        for access in (
            _group(consumer.group_name),
            *(_topic(subscription.topic, _SUB) for subscription in consumer.subscription_data_set),
        )
    ]
    return (*consumers, *(_topic(producer.group_name, _PUB) for producer in data.producer_data_set))


def _topic(name: str, actions: tuple[Action, ...]) -> ResourceAccess:
    return ResourceAccess(Resource(ResourceType.TOPIC, name), actions)


def _group(name: str) -> ResourceAccess:
    return ResourceAccess(Resource(ResourceType.GROUP, name), _SUB)


def _send(request: Any) -> Accesses:
    return tuple(_topic(name, _PUB) for name in dict.fromkeys(message.topic.name for message in request.messages))


def _publish(request: Any) -> Accesses:
    return (_topic(request.topic.name, _PUB),)


def _consume(request: Any) -> Accesses:
    return _group(request.group.name), _topic(request.topic.name, _SUB)


def _receive(request: Any) -> Accesses:
    return _group(request.group.name), _topic(request.message_queue.topic.name, _SUB)


def _leave(request: Any) -> Accesses:
    return (_group(request.group.name),) if request.group.name.strip() else ()


def _look(request: Any) -> Accesses:
    return (_topic(request.topic.name, _PUB_OR_SUB),)


_ROWS: dict[str, Callable[[Any], Accesses]] = {
    "SendMessage": _send,
    "RecallMessage": _publish,
    "EndTransaction": _publish,
    "ReceiveMessage": _receive,
    "AckMessage": _consume,
    "ChangeInvisibleDuration": _consume,
    "ForwardMessageToDeadLetterQueue": _consume,
    "NotifyClientTermination": _leave,
    "QueryRoute": _look,
    "QueryAssignment": _consume,
}
