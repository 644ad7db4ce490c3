"""The broker's tables: what it still knows after a restart, and the directory that keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gantrymq.broker.tables.consumer_filters import ConsumerFilterManager
from gantrymq.broker.tables.consumer_order_info import ConsumerOrderInfo
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.persistence import (
    CONSUMER_FILTER,
    CONSUMER_ORDER_INFO,
    MESSAGE_REQUEST_MODE,
    SUBSCRIPTION_GROUP,
    TOPICS,
    TRANSACTION_METRICS,
    ConfigPersistence,
    KeptTable,
)
from gantrymq.broker.tables.request_modes import MessageRequestModeManager
from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.broker.transactions.metrics import TransactionMetrics
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.names import CONSUMER_OFFSET
from gantrymq.fs.api import FileSystem


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one broker. ``persistence`` saves all of them."""

    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    filters: ConsumerFilterManager
    orders: ConsumerOrderInfo
    request_modes: MessageRequestModeManager
    transaction_metrics: TransactionMetrics
    persistence: ConfigPersistence

    @classmethod
    def load(
        cls,
        config: LiveConfig,
        clock: Clock,
        fs: FileSystem,
        directory: Path,
        topics_changed: Callable[[list[str]], None],
        queue_blocked: Callable[[str, str, int, int], None],
    ) -> Self:
        """Read the tables under ``directory``. The callbacks are those of the topics and of the ordered pops.

        Raises StoreError for a damaged file.
        """
        topics = TopicConfigManager(config, clock, topics_changed)
        groups = SubscriptionGroupManager(config, clock)
        offsets = ConsumerOffsetManager(config, clock)
        filters = ConsumerFilterManager(config, clock)
        orders = ConsumerOrderInfo(clock, queue_blocked)
        request_modes = MessageRequestModeManager()
        transaction_metrics = TransactionMetrics(clock)
        persistence = ConfigPersistence(
            fs,
            directory,
            [
                KeptTable(TOPICS, topics),
                KeptTable(SUBSCRIPTION_GROUP, groups),
                KeptTable(CONSUMER_OFFSET, offsets),
                KeptTable(TRANSACTION_METRICS, transaction_metrics, is_dispensable=True),
                KeptTable(CONSUMER_FILTER, filters),
                KeptTable(MESSAGE_REQUEST_MODE, request_modes),
                KeptTable(CONSUMER_ORDER_INFO, orders),
            ],
        )
        persistence.load()
        return cls(topics, groups, offsets, filters, orders, request_modes, transaction_metrics, persistence)
