"""Which processor answers which request code.

Source: BrokerController.registerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gantrymq.broker.consumers import ConsumerManager
from gantrymq.broker.long_polling import PullRequestHoldService
from gantrymq.broker.message_store import BrokerMessageStore
from gantrymq.broker.offsets import ConsumerOffsetManager
from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.persistence import ConfigPersistence
from gantrymq.broker.processors.clients import ClientManageProcessor
from gantrymq.broker.processors.consumer_offsets import ConsumerManageProcessor
from gantrymq.broker.processors.locks import LockProcessor
from gantrymq.broker.processors.pull import PullMessageProcessor
from gantrymq.broker.processors.queue_offsets import QueueOffsetProcessor
from gantrymq.broker.processors.send import SendMessageProcessor
from gantrymq.broker.processors.send_back import ConsumerSendMsgBackProcessor
from gantrymq.broker.producers import ProducerManager
from gantrymq.broker.put_queue import PutQueue
from gantrymq.broker.queue_locks import RebalanceLockManager
from gantrymq.broker.statistics import BrokerStatsManager
from gantrymq.broker.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.topics import TopicConfigManager
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import Processor


@dataclass(frozen=True, slots=True)
class Parts:
    """What processors are made of; each takes the few it needs."""

    config: LiveConfig
    clock: Clock
    store: BrokerMessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager
    producers: ProducerManager
    locks: RebalanceLockManager
    stats: BrokerStatsManager
    holds: PullRequestHoldService
    puts: PutQueue
    kept: ConfigPersistence
    outer: BrokerOuterAPI
    address: str
    answer: Callable[[Channel, RemotingCommand], None]


def processors(parts: Parts) -> dict[int, Processor]:
    """The table of a broker."""
    return {**_messages(parts), **_consumers(parts), **_queues(parts)}


def _messages(parts: Parts) -> dict[int, Processor]:
    send = SendMessageProcessor(
        parts.config, parts.clock, parts.topics, parts.groups, parts.locks, parts.puts, parts.stats,
        lambda: parts.store.disk_used_ratio, parts.answer,
    ).send  # fmt: skip
    back = ConsumerSendMsgBackProcessor(
        parts.config, parts.topics, parts.groups, parts.store.message_at, parts.puts, parts.stats, parts.answer
    )
    pull = PullMessageProcessor(
        parts.config, parts.clock, parts.store, parts.topics, parts.groups, parts.consumers, parts.offsets,
        parts.holds, parts.stats,
    ).pull  # fmt: skip
    return {
        RequestCode.SEND_MESSAGE: send,
        RequestCode.SEND_MESSAGE_V2: send,
        RequestCode.SEND_BATCH_MESSAGE: send,
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
    locks = LockProcessor(parts.locks, parts.clock)
    return {
        RequestCode.HEART_BEAT: clients.heart_beat,
        RequestCode.UNREGISTER_CLIENT: clients.unregister,
        RequestCode.CHECK_CLIENT_CONFIG: clients.check_config,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: manage.list_consumers,
        RequestCode.UPDATE_CONSUMER_OFFSET: manage.update,
        RequestCode.QUERY_CONSUMER_OFFSET: manage.query,
        RequestCode.LOCK_BATCH_MQ: locks.lock,
        RequestCode.UNLOCK_BATCH_MQ: locks.unlock,
    }


def _queues(parts: Parts) -> dict[int, Processor]:
    queues = QueueOffsetProcessor(parts.store)
    return {
        RequestCode.GET_MAX_OFFSET: queues.max_offset,
        RequestCode.GET_MIN_OFFSET: queues.min_offset,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: queues.search,
        RequestCode.GET_EARLIEST_MSG_STORETIME: queues.earliest,
    }
