"""What an account must be allowed before a request of its own reaches a processor.

A :class:`Permission` stands beside the processor in the broker's table of request codes. It reads the same typed header
or body as the processor, so both always mean the same topics and groups. A code without a row is for administrators.

Source: PlainAccessResource, Permission (4.9.8), DefaultAuthorizationContextBuilder (5.5.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from gantrymq.broker import names
from gantrymq.broker.acl.accounts import PUB, SUB
from gantrymq.remoting.bodies.client import (
    CheckClientRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
    UnlockBatchRequestBody,
)
from gantrymq.remoting.body import decode_request
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.header import CommandHeader
from gantrymq.remoting.headers.consumer import UnregisterClientRequestHeader
from gantrymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader, EndTransactionRequestHeader


class Need(NamedTuple):
    """A permission on a topic or a group; of a sum of them, any one."""

    name: str
    permission: int
    is_group: bool


class Permission(NamedTuple):
    """``needs`` lists the needs of a request; None for what only administrators may do."""

    needs: Callable[[RemotingCommand], Iterable[Need]] | None


# Changes the broker, or shows more than one topic or group.
ADMINISTRATORS = Permission(None)
# Answers the same to every account, whatever topics and groups the broker has.
ANY_ACCOUNT = Permission(lambda _: ())


def send(header: type[CommandHeader]) -> Permission:
    """PUB on the header's topic."""

    def needs(request: RemotingCommand) -> Iterator[Need]:
        asked: Any = request.read(header)
        yield _topic(asked.topic, PUB)

    return Permission(needs)


def look(header: type[CommandHeader]) -> Permission:
    """PUB or SUB on the header's topic: a producer asks where its queues begin and end, too."""
    return _of_fields(header, "", ("topic",), PUB | SUB)


def read(header: type[CommandHeader]) -> Permission:
    """SUB on the header's topic."""
    return _of_fields(header, "", ("topic",), SUB)


def consume(header: type[CommandHeader], *, group: str = "consumer_group", topics: tuple[str, ...] = ()) -> Permission:
    """SUB on the group and on each topic in these fields of the header; a field may list several, with ";" between."""
    return _of_fields(header, group, topics, SUB)


def _of_fields(header: type[CommandHeader], group: str, topics: tuple[str, ...], permission: int) -> Permission:
    def needs(request: RemotingCommand) -> Iterator[Need]:
        asked = request.read(header)
        if group:
            yield _group(getattr(asked, group))
        for field in topics:
            text: str | None = getattr(asked, field)
            # Without blanks around it, as processors take the name.
            yield from (_topic(name, permission) for one in (text or "").split(";") if (name := one.strip()))

    return Permission(needs)


def _heart_beat(request: RemotingCommand) -> Iterator[Need]:
    for consumer in decode_request(HeartbeatData, request.body).consumer_data_set:
        yield _group(consumer.group_name)
        yield from (_topic(one.topic) for one in consumer.subscription_data_set)


def _unregister(request: RemotingCommand) -> Iterator[Need]:
    group = request.read(UnregisterClientRequestHeader).consumer_group
    if group is not None:
        yield _group(group)


def _check_client(request: RemotingCommand) -> Iterator[Need]:
    asked = decode_request(CheckClientRequestBody, request.body)
    if asked.group is not None:
        yield _group(asked.group)
    if asked.subscription_data is not None:
        yield _topic(asked.subscription_data.topic)


def _assignment(request: RemotingCommand) -> Iterator[Need]:
    asked = decode_request(QueryAssignmentRequestBody, request.body)
    yield _group(asked.consumer_group)
    yield _topic(asked.topic)


def _locks(body: type[LockBatchRequestBody | UnlockBatchRequestBody]) -> Permission:
    def needs(request: RemotingCommand) -> Iterator[Need]:
        asked = decode_request(body, request.body)
        yield _group(asked.consumer_group)
        yield from (_topic(topic) for topic in {queue.topic for queue in asked.mq_set})

    return Permission(needs)


def _end_transaction(request: RemotingCommand) -> Iterator[Need]:
    topic = request.read(EndTransactionRequestHeader).topic
    if topic:
        yield _topic(topic, PUB)


def send_back(topic_at: Callable[[int], str | None]) -> Permission:
    """SUB on the group that gets the message, and on the topic of what stands at the offset.

    ``topic_at`` is that topic, None where there is no record.
    """

    def needs(request: RemotingCommand) -> Iterator[Need]:
        asked = request.read(ConsumerSendMsgBackRequestHeader)
        yield _group(asked.group)
        topic = topic_at(asked.offset)
        if topic is not None:
            yield _topic(topic)

    return Permission(needs)


HEART_BEAT = Permission(_heart_beat)
UNREGISTER_CLIENT = Permission(_unregister)
CHECK_CLIENT_CONFIG = Permission(_check_client)
QUERY_ASSIGNMENT = Permission(_assignment)
LOCK_BATCH_MQ, UNLOCK_BATCH_MQ = _locks(LockBatchRequestBody), _locks(UnlockBatchRequestBody)
END_TRANSACTION = Permission(_end_transaction)


def _group(name: str) -> Need:
    return Need(name, SUB, is_group=True)


def _topic(name: str, permission: int = SUB) -> Need:
    """A retry topic belongs to its group: a consumer sends to it as well as it reads it.

    One of POP names the topic behind the group (``%RETRY%group+topic``).
    """
    if name.startswith(names.RETRY_PREFIX):
        return _group(name[len(names.RETRY_PREFIX) :].partition("+")[0])
    return Need(name, permission, is_group=False)
