"""Pages of topics and groups, for clients that ask for all of them in parts.

A page that would leave exactly one name for the next page takes that name as well. RocketMQ's clients and slaves stop
when all names but one have arrived, so they never ask for a last page of one: a slave deletes that topic, and mqadmin
exports all topics but that one.

Source: BrokerOuterAPI.getAllTopicConfig and getAllSubscriptionGroupConfig, and MQClientAPIImpl of 5.5.0 and 5.5.1.
"""

from __future__ import annotations

from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.config.broker_settings import BrokerConfig


def page_of(
    items: TopicConfigManager | SubscriptionGroupManager,
    config: BrokerConfig,
    seen_version: str | None,
    begin: int | None,
    requested: int | None,
) -> list[str] | None:
    """The names from number ``begin`` on, sorted: at most ``requested`` and splitMetadataSize, plus a last one.

    None if the client asks for no page, or enableSplitMetadata is off. If the table no longer has ``seen_version``, the
    page is the first one.
    """
    if not config.enable_split_metadata or (seen_version, begin, requested) == (None, None, None):
        return None
    begin = begin if begin and seen_version == items.version.encode().decode() else 0
    ordered, limit = sorted(items.table), config.split_metadata_size
    end = begin + min(limit, requested or limit)
    if end == len(ordered) - 1:
        end += 1
    return ordered[begin:end]
