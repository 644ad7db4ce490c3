"""What a request needs, in the notation of both kinds of access control.

A :class:`Permission` stands beside the processor in the broker's table of request codes. It reads the same typed header
or body as the processor, so both always act on the same topics and groups. Its two columns are the needs of
plain_acl.yml (:class:`Need`), and those of users and policies (:class:`gantrymq.auth.decision.ResourceAccess`).

The second column is RocketMQ's where RocketMQ asks for something. It asks for nothing where a header has no annotation,
so that every user may do it; here such a request needs Update or Get on the cluster (:data:`CHANGES_CLUSTER`,
:data:`READS_CLUSTER`), or the topics and groups that it names.

Source: PlainAccessResource (4.9.8), DefaultAuthorizationContextBuilder, RocketMQAction, RocketMQResource (5.5.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from gantrymq.auth.decision import ResourceAccess
from gantrymq.auth.policies import Action, Resource, ResourceType
from gantrymq.broker import names
from gantrymq.broker.acl.accounts import PUB, SUB
from gantrymq.errors import RemotingCommandError
from gantrymq.model.message import parse_message_id
from gantrymq.model.system_names import group_of_retry
from gantrymq.remoting.bodies.auth import AccessInfo, CheckAccessRequestBody
from gantrymq.remoting.bodies.client import (
    CheckClientRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
    UnlockBatchRequestBody,
)
from gantrymq.remoting.bodies.pop import BatchAckMessageRequestBody
from gantrymq.remoting.body import decode_request
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.header import CommandHeader
from gantrymq.remoting.headers.consumer import ConsumeMessageDirectlyResultRequestHeader, UnregisterClientRequestHeader
from gantrymq.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    SendMessageRequestHeaderV2,
)

Actions = tuple[Action, ...]
ALL_SUB: Actions = (Action.SUB,)
GET: Actions = (Action.GET,)
UPDATE: Actions = (Action.UPDATE,)
_PUB: Actions = (Action.PUB,)
OWN_CLUSTER = ""  # the name of the broker's own cluster, in an access
_READING = ("GET_", "QUERY_", "VIEW_", "SEARCH_", "CHECK_", "EXPORT_", "PEEK_", "PULL_", "POLLING_")


class Need(NamedTuple):
    """A permission of plain_acl.yml on a topic or a group. If it is a sum, any one of its bits suffices."""

    name: str
    permission: int
    is_group: bool


class Permission(NamedTuple):
    """``needs`` returns the needs of a request. None means that only administrators of plain_acl.yml may send it.

    ``accesses`` returns what a user needs; nothing is free for all users. Both decode the request and raise
    GantrymqError, so they are called after the signature is verified.
    """

    needs: Callable[[RemotingCommand], Iterable[Need]] | None
    accesses: Callable[[RemotingCommand], Iterable[ResourceAccess]]


class Names(NamedTuple):
    """A field of a header with the name of a topic or a group, or with several, separated by ``separator``."""

    field: str
    is_group: bool
    separator: str = ""

    def of(self, header: Any) -> Iterator[str]:
        """The names. They are stripped, because processors strip them too."""
        text: str = getattr(header, self.field) or ""
        for name in text.split(self.separator) if self.separator else (text,):
            if name := name.strip():
                yield name


def topic_in(field: str = "topic", separator: str = ";") -> Names:
    """A field with topics. Any may list several, because a processor that splits it would read them all."""
    return Names(field, is_group=False, separator=separator)


def group_in(field: str = "consumer_group", separator: str = "") -> Names:
    """A field with groups."""
    return Names(field, is_group=True, separator=separator)


def _cluster(action: Action) -> Permission:
    access = ResourceAccess(Resource(ResourceType.CLUSTER, OWN_CLUSTER), (action,))
    return Permission(None, lambda _: (access,))


# For requests that change the broker, and for those that show more than one topic or group.
CHANGES_CLUSTER, READS_CLUSTER = _cluster(Action.UPDATE), _cluster(Action.GET)
# For requests whose answer does not depend on topics or groups.
ANY_ACCOUNT = Permission(lambda _: (), READS_CLUSTER.accesses)


def permission_without_row(code: int) -> Permission | None:
    """The permission for a request code that no processor serves; None for one that RocketMQ does not have."""
    known = RequestCode._value2member_map_.get(code)
    if not isinstance(known, RequestCode):
        return None
    return READS_CLUSTER if known.name.startswith(_READING) or "_GET_" in known.name else CHANGES_CLUSTER


def on(header: type[CommandHeader], actions: Actions, *fields: Names, needs: int = 0) -> Permission:
    """One of ``actions`` on each name in ``fields``, in their order, and on the cluster if all fields are empty.

    ``needs`` is a sum of PUB and SUB; 0 for administrators only. A group needs SUB.
    """
    on_cluster = READS_CLUSTER if Action.GET in actions else CHANGES_CLUSTER

    def accesses(request: RemotingCommand) -> Iterable[ResourceAccess]:
        request_header = request.read(header)
        accesses_of_names = [
            group_access(name, actions) if field.is_group else topic_access(name, actions)
            for field in fields
            for name in field.of(request_header)
        ]
        return accesses_of_names or on_cluster.accesses(request)

    def plain(request: RemotingCommand) -> Iterator[Need]:
        request_header = request.read(header)
        for field in sorted(fields, key=lambda names_of: not names_of.is_group):
            yield from (_group(name) if field.is_group else _topic(name, needs) for name in field.of(request_header))

    return Permission(plain if needs else None, accesses)


def send(header: type[CommandHeader]) -> Permission:
    """PUB on the header's topic.

    The check of users takes the topic from the fields, which the signature has decoded, and not the whole header: sends
    are the most frequent requests.
    """
    topic_field = "b" if issubclass(header, SendMessageRequestHeaderV2) else "topic"

    def needs(request: RemotingCommand) -> Iterator[Need]:
        request_header: Any = request.read(header)
        yield _topic(request_header.topic, PUB)

    def accesses(request: RemotingCommand) -> Iterable[ResourceAccess]:
        return (topic_access(request.ext_fields.get(topic_field, ""), _PUB),)

    return Permission(needs, accesses)


def look(header: type[CommandHeader]) -> Permission:
    """For users GET on the header's topic. For accounts PUB or SUB, because producers ask for bounds of queues, too."""
    return on(header, (Action.GET,), topic_in(), needs=PUB | SUB)


def consume(header: type[CommandHeader], *fields: Names, actions: Actions = ALL_SUB) -> Permission:
    """One of ``actions`` on the topics and groups in ``fields``; for accounts SUB."""
    return on(header, actions, *fields, needs=SUB)


def _both(
    needs: Callable[[RemotingCommand], Iterable[Need]],
) -> Permission:
    """SUB on what ``needs`` names, in its order, for accounts and for users."""

    def accesses(request: RemotingCommand) -> Iterable[ResourceAccess]:
        return [
            group_access(need.name, ALL_SUB) if need.is_group else topic_access(need.name, ALL_SUB)
            for need in needs(request)
        ]

    return Permission(needs, accesses)


def _heart_beat(request: RemotingCommand) -> Iterator[Need]:
    for consumer in decode_request(HeartbeatData, request.body).consumer_data_set:
        yield _group(consumer.group_name)
        yield from (_topic(subscription.topic) for subscription in consumer.subscription_data_set)


def _unregister(request: RemotingCommand) -> Iterator[Need]:
    group = request.read(UnregisterClientRequestHeader).consumer_group
    if group is not None:
        yield _group(group)


def _check_client(request: RemotingCommand) -> Iterator[Need]:
    body = decode_request(CheckClientRequestBody, request.body)
    if body.group is not None:
        yield _group(body.group)
    if body.subscription_data is not None:
        yield _topic(body.subscription_data.topic)


def _assignment(request: RemotingCommand) -> Iterator[Need]:
    body = decode_request(QueryAssignmentRequestBody, request.body)
    yield _group(body.consumer_group)
    yield _topic(body.topic)


def popped(header: type[CommandHeader]) -> Permission:
    """SUB on the group and on the topic of the header. A retry topic of version 1 counts as the topic that it is for.

    Its name does not show where the group ends.
    """

    def needs(request: RemotingCommand) -> Iterator[Need]:
        request_header: Any = request.read(header)
        yield _group(request_header.consumer_group)
        yield _topic(request_header.topic.removeprefix(f"{names.RETRY_PREFIX}{request_header.consumer_group}_"))

    return _both(needs)


def _batch_ack(request: RemotingCommand) -> Iterator[Need]:
    for ack in decode_request(BatchAckMessageRequestBody, request.body).acks if request.body else ():
        yield _group(ack.consumer_group)
        yield _topic(ack.topic)


def _locks(body: type[LockBatchRequestBody | UnlockBatchRequestBody]) -> Permission:
    def needs(request: RemotingCommand) -> Iterator[Need]:
        request_body = decode_request(body, request.body)
        yield _group(request_body.consumer_group)
        yield from (_topic(topic) for topic in {queue.topic for queue in request_body.mq_set})

    return _both(needs)


def end_transaction(real_topic_at: Callable[[int], str | None]) -> Permission:
    """PUB on the topic that the half message at the offset is for, and on the one that the request names.

    An answer to a check names RMQ_SYS_TRANS_HALF_TOPIC. ``real_topic_at`` is None where there is no half message.
    """

    def named(request: RemotingCommand) -> list[str]:
        header = request.read(EndTransactionRequestHeader)
        both = (header.topic, real_topic_at(header.commit_log_offset))
        return [topic for topic in dict.fromkeys(both) if topic and topic != names.TRANS_HALF_TOPIC]

    return Permission(
        lambda request: [_topic(topic, PUB) for topic in named(request)],
        lambda request: [topic_access(topic, _PUB) for topic in named(request)],
    )


def send_back(topic_at: Callable[[int], str | None]) -> Permission:
    """SUB on the group that gets the message, and on the topic of the record at the offset.

    ``topic_at`` returns that topic, or None if there is no record. RocketMQ asks users for the group only, so that a
    group could take any message of any topic by its offset.
    """

    def needs(request: RemotingCommand) -> Iterator[Need]:
        header = request.read(ConsumerSendMsgBackRequestHeader)
        yield _group(header.group)
        topic = topic_at(header.offset)
        if topic is not None:
            yield _topic(topic)

    return _both(needs)


def consume_directly(topic_at: Callable[[int], str | None]) -> Permission:
    """For users SUB on the group, on the topic of the header, and on that of the message. For accounts none suffices.

    RocketMQ sends the message of any topic to a client of the group if the header names no topic, or another one.
    """

    def accesses(request: RemotingCommand) -> Iterable[ResourceAccess]:
        header = request.read(ConsumeMessageDirectlyResultRequestHeader)
        try:
            stored_topic = topic_at(parse_message_id(header.msg_id or "")[1])
        except ValueError:  # the processor refuses it
            stored_topic = None
        topics = dict.fromkeys(topic for topic in (header.topic, stored_topic) if topic)
        return [group_access(header.consumer_group, ALL_SUB), *(topic_access(topic, ALL_SUB) for topic in topics)]

    return Permission(None, accesses)


def _listed(request: RemotingCommand) -> list[ResourceAccess]:
    body = decode_request(CheckAccessRequestBody, request.body) if request.body else CheckAccessRequestBody()
    return [_access_of(info) for info in body.accesses]


def _access_of(info: AccessInfo) -> ResourceAccess:
    kind, _, name = info.resource.partition(":")
    resource_type = ResourceType.of(kind)
    actions = tuple(action for text in info.actions if (action := Action.of(text)) is not None)
    if resource_type is None or len(actions) != len(info.actions):
        raise RemotingCommandError(f"{info.resource[:64]!a} or one of its actions is not known")
    return ResourceAccess(Resource(resource_type, name), actions)


# What the body lists, so that the answer to an allowed request is a success.
CHECK_ACCESS = Permission(None, _listed)
HEART_BEAT = _both(_heart_beat)
UNREGISTER_CLIENT = _both(_unregister)
CHECK_CLIENT_CONFIG = _both(_check_client)
QUERY_ASSIGNMENT = _both(_assignment)
BATCH_ACK_MESSAGE = _both(_batch_ack)
LOCK_BATCH_MQ, UNLOCK_BATCH_MQ = _locks(LockBatchRequestBody), _locks(UnlockBatchRequestBody)


def group_access(name: str, actions: Actions) -> ResourceAccess:
    """An access to a group."""
    return ResourceAccess(Resource(ResourceType.GROUP, name.removeprefix(names.RETRY_PREFIX)), actions)


def topic_access(name: str, actions: Actions) -> ResourceAccess:
    """An access to a topic. A retry topic belongs to its group, and what is PUB on a topic is SUB there."""
    if name.startswith(names.RETRY_PREFIX):
        return group_access(group_of_retry(name), ALL_SUB if actions == _PUB else actions)
    return ResourceAccess(Resource(ResourceType.TOPIC, name), actions)


def _group(name: str) -> Need:
    return Need(name, SUB, is_group=True)


def _topic(name: str, permission: int = SUB) -> Need:
    """The need for a topic. A retry topic belongs to its group: a consumer sends to it and reads it."""
    if name.startswith(names.RETRY_PREFIX):
        return _group(group_of_retry(name))
    return Need(name, permission, is_group=False)
