"""The objects that a broker's processors are built from. Each processor takes those it needs."""

from __future__ import annotations

from dataclasses import dataclass

from gantrymq.broker.acl.access_control import AccessControl
from gantrymq.broker.answers import Respond
from gantrymq.broker.appends.put_queue import PutQueue
from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.pop.service import PopService
from gantrymq.broker.reads.stored_records import StoredRecords
from gantrymq.broker.sessions.consumers import ConsumerManager
from gantrymq.broker.sessions.long_polling import PullRequestHoldService
from gantrymq.broker.sessions.producers import ProducerManager
from gantrymq.broker.sessions.queue_locks import RebalanceLockManager
from gantrymq.broker.statistics import BrokerStatsManager, StoreStatsService
from gantrymq.broker.tables.consumer_filters import ConsumerFilterManager
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.persistence import ConfigPersistence
from gantrymq.broker.tables.request_modes import MessageRequestModeManager
from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.broker.transactions.decisions import Decisions
from gantrymq.broker.transactions.metrics import TransactionMetrics
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """The parts of a broker. ``answer`` sends a response after changes of the topics that it depends on are durable.

    ``access`` is None if access control is off.
    """

    config: LiveConfig
    clock: Clock
    store: MessageStore
    records: StoredRecords
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager
    filters: ConsumerFilterManager
    request_modes: MessageRequestModeManager
    producers: ProducerManager
    locks: RebalanceLockManager
    stats: BrokerStatsManager
    store_stats: StoreStatsService
    meter: BrokerMeter
    holds: PullRequestHoldService
    puts: PutQueue
    decisions: Decisions
    transaction_metrics: TransactionMetrics
    pop: PopService
    kept: ConfigPersistence
    outer: BrokerOuterAPI
    access: AccessControl | None
    address: str
    answer: Respond
