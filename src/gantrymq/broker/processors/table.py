"""Which processor answers which request code.

Source: BrokerController.registerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gantrymq.broker.catch_up import DispatchCatchUp
from gantrymq.broker.processors.admin_table import admin_processors
from gantrymq.broker.processors.assignment import QueryAssignmentProcessor
from gantrymq.broker.processors.clients import ClientManageProcessor
from gantrymq.broker.processors.consumer_offsets import ConsumerManageProcessor
from gantrymq.broker.processors.locks import LockProcessor
from gantrymq.broker.processors.parts import Parts
from gantrymq.broker.processors.pull import PullMessageProcessor
from gantrymq.broker.processors.queue_offsets import QueueOffsetProcessor
from gantrymq.broker.processors.reply import ReplyMessageProcessor
from gantrymq.broker.processors.send import SendMessageProcessor
from gantrymq.broker.processors.send_back import ConsumerSendMsgBackProcessor
from gantrymq.broker.processors.send_run import SendRunProcessor
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import Processor, RequestDispatcher, RequestHook


def dispatcher(parts: Parts, hooks: Iterable[RequestHook], when_closed: Callable[[Channel], None]) -> RequestDispatcher:
    """All of a broker's processors behind ``hooks``."""
    send = SendMessageProcessor(
        parts.config, parts.clock, parts.topics, parts.groups, parts.locks, parts.puts, parts.stats,
        lambda: parts.store.disk_used_ratio, parts.answer,
    )  # fmt: skip
    together = SendRunProcessor(parts.config, parts.topics, parts.puts, parts.stats, send, parts.answer)
    table = {**admin_processors(parts), **_messages(parts, send), **_consumers(parts), **_queues(parts)}
    return RequestDispatcher(table, hooks=hooks, run_processor=together.send_run, when_closed=when_closed)


def _messages(parts: Parts, send: SendMessageProcessor) -> dict[int, Processor]:
    reply = ReplyMessageProcessor(
        parts.config, parts.clock, parts.producers, parts.puts, send.check, parts.address
    ).reply
    back = ConsumerSendMsgBackProcessor(
        parts.config, parts.topics, parts.groups, parts.store.message_at, parts.puts, parts.stats, parts.answer
    )
    pull = PullMessageProcessor(
        parts.config, parts.clock, parts.store, parts.topics, parts.groups, parts.consumers, parts.offsets,
        parts.holds, parts.stats, parts.store_stats,
    ).pull  # fmt: skip
    return {
        RequestCode.SEND_MESSAGE: send.send,
        RequestCode.SEND_MESSAGE_V2: send.send,
        RequestCode.SEND_BATCH_MESSAGE: send.send,
        RequestCode.SEND_REPLY_MESSAGE: reply,
        RequestCode.SEND_REPLY_MESSAGE_V2: reply,
        RequestCode.CONSUMER_SEND_MSG_BACK: back.send_back,
        RequestCode.PULL_MESSAGE: pull,
        RequestCode.LITE_PULL_MESSAGE: pull,
    }


def _consumers(parts: Parts) -> dict[int, Processor]:
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
        RequestCode.HEART_BEAT: clients.heart_beat,
        RequestCode.UNREGISTER_CLIENT: clients.unregister,
        RequestCode.CHECK_CLIENT_CONFIG: clients.check_config,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: manage.list_consumers,
        RequestCode.UPDATE_CONSUMER_OFFSET: manage.update,
        RequestCode.QUERY_CONSUMER_OFFSET: caught_up.before(manage.query),
        RequestCode.QUERY_ASSIGNMENT: assignment.query,
        RequestCode.SET_MESSAGE_REQUEST_MODE: assignment.set_mode,
        RequestCode.LOCK_BATCH_MQ: locks.lock,
        RequestCode.UNLOCK_BATCH_MQ: locks.unlock,
    }


def _queues(parts: Parts) -> dict[int, Processor]:
    queues, caught_up = QueueOffsetProcessor(parts.store), DispatchCatchUp(parts.store)
    return {
        RequestCode.GET_MAX_OFFSET: caught_up.before(queues.max_offset),
        RequestCode.GET_MIN_OFFSET: queues.min_offset,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: caught_up.before(queues.search),
        RequestCode.GET_EARLIEST_MSG_STORETIME: caught_up.before(queues.earliest),
    }
