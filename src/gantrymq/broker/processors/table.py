"""Which processor answers which request code, and what an account must be allowed to ask.

A code without a row is REQUEST_CODE_NOT_SUPPORTED, and with access control for administrators only.

Source: BrokerController.registerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gantrymq.broker.acl import permissions
from gantrymq.broker.catch_up import DispatchCatchUp
from gantrymq.broker.processors.admin_table import admin_routes
from gantrymq.broker.processors.assignment import QueryAssignmentProcessor
from gantrymq.broker.processors.clients import ClientManageProcessor
from gantrymq.broker.processors.consumer_offsets import ConsumerManageProcessor
from gantrymq.broker.processors.locks import LockProcessor
from gantrymq.broker.processors.parts import Parts
from gantrymq.broker.processors.pull import PullMessageProcessor
from gantrymq.broker.processors.queue_offsets import QueueOffsetProcessor
from gantrymq.broker.processors.reply import ReplyMessageProcessor
from gantrymq.broker.processors.route import Route
from gantrymq.broker.processors.send import SendMessageProcessor
from gantrymq.broker.processors.send_back import ConsumerSendMsgBackProcessor
from gantrymq.broker.processors.send_run import SendRunProcessor
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import MAX_FRAME_BYTES
from gantrymq.remoting.headers.consumer import GetConsumerListByGroupRequestHeader
from gantrymq.remoting.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from gantrymq.remoting.headers.pull import PullMessageRequestHeader
from gantrymq.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import BodyLimits, RequestDispatcher, RequestHook


def send_processor(parts: Parts) -> SendMessageProcessor:
    """The processor of sends, which replies and runs of sends use, too."""
    return SendMessageProcessor(
        parts.config, parts.clock, parts.topics, parts.groups, parts.locks, parts.puts, parts.stats,
        lambda: parts.store.disk_used_ratio, parts.answer,
    )  # fmt: skip


def routes(parts: Parts, send: SendMessageProcessor) -> dict[int, Route]:
    """The whole table: what each request code is answered by, and what it takes to ask."""
    return {**admin_routes(parts), **_messages(parts, send), **_consumers(parts), **_queues(parts)}


def dispatcher(
    parts: Parts,
    table: Mapping[int, Route],
    send: SendMessageProcessor,
    hooks: Iterable[RequestHook],
    when_closed: Callable[[Channel], None],
) -> RequestDispatcher:
    """The processors of ``table`` behind ``hooks``."""
    together = SendRunProcessor(parts.config, parts.topics, parts.puts, parts.stats, send, parts.answer)
    processors = {code: route.processor for code, route in table.items()}
    return RequestDispatcher(
        processors,
        hooks=hooks,
        run_processor=together.send_run,
        when_closed=when_closed,
        body_limits=_body_limits(parts.config.broker.max_request_body_bytes),
    )


def _body_limits(most: int) -> BodyLimits:
    """As maxRequestBodyBytes says it; a message is measured by maxMessageSize later."""
    messages = (
        RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2,
    )  # fmt: skip
    small = (RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
    limits: list[tuple[int, int]] = [(RequestCode.UPDATE_BROKER_CONFIG, most // 16)]
    limits += [(code, MAX_FRAME_BYTES) for code in messages]
    limits += [(code, most // 4) for code in small]
    return BodyLimits(most, dict(limits))


def _messages(parts: Parts, send: SendMessageProcessor) -> dict[int, Route]:
    reply = ReplyMessageProcessor(
        parts.config, parts.clock, parts.producers, parts.puts, send.check, parts.address
    ).reply
    back = ConsumerSendMsgBackProcessor(
        parts.config, parts.topics, parts.groups, parts.records.queued, parts.puts, parts.stats, parts.answer,
        parts.access,
    )  # fmt: skip
    pull = PullMessageProcessor(
        parts.config, parts.clock, parts.store, parts.topics, parts.groups, parts.consumers, parts.offsets,
        parts.holds, parts.stats, parts.store_stats, parts.access,
    ).pull  # fmt: skip
    may_pull = permissions.consume(PullMessageRequestHeader, topics=("topic",))
    # What comes back counts where a queue points to it, which may be a moment after the message was acknowledged.
    send_back = DispatchCatchUp(parts.store).before(back.send_back)
    return {
        RequestCode.SEND_MESSAGE: Route(send.send, permissions.send(SendMessageRequestHeader)),
        RequestCode.SEND_MESSAGE_V2: Route(send.send, permissions.send(SendMessageRequestHeaderV2)),
        RequestCode.SEND_BATCH_MESSAGE: Route(send.send, permissions.send(SendMessageRequestHeaderV2)),
        RequestCode.SEND_REPLY_MESSAGE: Route(reply, permissions.send(SendMessageRequestHeader)),
        RequestCode.SEND_REPLY_MESSAGE_V2: Route(reply, permissions.send(SendMessageRequestHeaderV2)),
        RequestCode.CONSUMER_SEND_MSG_BACK: Route(send_back, permissions.send_back(parts.records.topic_at)),
        RequestCode.PULL_MESSAGE: Route(pull, may_pull),
        RequestCode.LITE_PULL_MESSAGE: Route(pull, may_pull),
    }


def _consumers(parts: Parts) -> dict[int, Route]:
    clients = ClientManageProcessor(
        parts.config, parts.clock, parts.topics, parts.groups, parts.consumers, parts.producers
    )
    manage = ConsumerManageProcessor(
        parts.config, parts.store, parts.topics, parts.groups, parts.consumers, parts.offsets
    )
    assignment = QueryAssignmentProcessor(parts.config, parts.topics, parts.groups, parts.consumers, parts.outer)
    caught_up = DispatchCatchUp(parts.store)
    locks = LockProcessor(parts.locks, parts.clock)
    return {
        RequestCode.HEART_BEAT: Route(clients.heart_beat, permissions.HEART_BEAT),
        RequestCode.UNREGISTER_CLIENT: Route(clients.unregister, permissions.UNREGISTER_CLIENT),
        RequestCode.CHECK_CLIENT_CONFIG: Route(clients.check_config, permissions.CHECK_CLIENT_CONFIG),
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: Route(
            manage.list_consumers, permissions.consume(GetConsumerListByGroupRequestHeader)
        ),
        RequestCode.UPDATE_CONSUMER_OFFSET: Route(
            manage.update, permissions.consume(UpdateConsumerOffsetRequestHeader, topics=("topic",))
        ),
        RequestCode.QUERY_CONSUMER_OFFSET: Route(
            caught_up.before(manage.query), permissions.consume(QueryConsumerOffsetRequestHeader, topics=("topic",))
        ),
        RequestCode.QUERY_ASSIGNMENT: Route(assignment.query, permissions.QUERY_ASSIGNMENT),
        RequestCode.SET_MESSAGE_REQUEST_MODE: Route(assignment.set_mode, permissions.ADMINISTRATORS),
        RequestCode.LOCK_BATCH_MQ: Route(locks.lock, permissions.LOCK_BATCH_MQ),
        RequestCode.UNLOCK_BATCH_MQ: Route(locks.unlock, permissions.UNLOCK_BATCH_MQ),
    }


def _queues(parts: Parts) -> dict[int, Route]:
    queues, caught_up = QueueOffsetProcessor(parts.store), DispatchCatchUp(parts.store)
    return {
        RequestCode.GET_MAX_OFFSET: Route(
            caught_up.before(queues.max_offset), permissions.look(GetMaxOffsetRequestHeader)
        ),
        RequestCode.GET_MIN_OFFSET: Route(queues.min_offset, permissions.look(GetMinOffsetRequestHeader)),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Route(
            caught_up.before(queues.search), permissions.look(SearchOffsetRequestHeader)
        ),
        RequestCode.GET_EARLIEST_MSG_STORETIME: Route(
            caught_up.before(queues.earliest), permissions.look(GetEarliestMsgStoretimeRequestHeader)
        ),
    }
