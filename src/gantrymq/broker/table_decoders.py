"""What reads the tables of ``config/`` when a broker starts, for tools that check them without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gantrymq.broker.offsets import ConsumerOffsetManager
from gantrymq.broker.persistence import SUBSCRIPTION_GROUP, TOPICS
from gantrymq.broker.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.topics import TopicConfigManager
from gantrymq.clock import SystemClock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.names import CONSUMER_OFFSET

TableDecoders = dict[str, Callable[[dict[str, Any]], None]]


def table_decoders() -> TableDecoders:
    """By the name of its file, what takes over a table; raises ValueError or GantrymqError for one of a wrong shape."""
    config, clock = LiveConfig(), SystemClock()
    return {
        TOPICS: TopicConfigManager(config, clock).load,
        SUBSCRIPTION_GROUP: SubscriptionGroupManager(config, clock).load,
        CONSUMER_OFFSET: ConsumerOffsetManager(config, clock).load,
    }
