"""Warnings of a broker's start: what clients would miss, what has no effect here, and a promise that is none."""

from __future__ import annotations

from pathlib import Path

from gantrymq.broker.tables.attributes import GROUP_ATTRIBUTES, TOPIC_ATTRIBUTES, unsupported
from gantrymq.broker.tables.tables import Tables
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.config.replication_settings import BrokerRole
from gantrymq.fs.api import FileSystem
from gantrymq.logs import get_logger
from gantrymq.store.lost_routes import describe, user_topics
from gantrymq.store.paths import StorePaths

_LOOPBACK = ("127.0.0.1", "::1", "localhost")

log = get_logger("gantrymq.broker")


def warn_of_lost_routes(topics: TopicConfigManager, fs: FileSystem, store: Path) -> None:
    """Warn if the store has queues of user topics but ``config/`` has no topics: clients would find none of them.

    RocketMQ starts without a message.
    """
    if all(topics.is_system_topic(topic) for topic in topics.table):
        paths = StorePaths(store)
        lost = {topic for topic in user_topics(fs, paths.consume_queue) if topic not in topics}
        if lost:
            log.warning("the table of topics is lost", path=str(paths.config), reason=describe(lost))


def warn_of_replication(config: LiveConfig) -> None:
    """Warn of a SYNC_MASTER that waits for no slave, and of a guarded broker whose log anyone may copy.

    Both are so with RocketMQ's defaults.
    """
    store, broker = config.store, config.broker
    is_ha_guarded = not store.ha_enable or store.ha_allowed_slaves or store.ha_authentication_enabled
    if broker.is_guarded and not is_ha_guarded and broker.bind_address not in _LOOPBACK:
        guard = "aclEnable" if broker.acl_enable else "authenticationEnabled"
        remedy = "set haAuthenticationEnabled, haAllowedSlaves, or haEnable=false without slaves"
        log.warning(f"{guard} does not guard the HA port: {remedy}")
    if store.broker_role is BrokerRole.SYNC_MASTER and store.in_sync_replicas <= 1:
        log.warning("SYNC_MASTER waits for no slave: set inSyncReplicas=2", in_sync_replicas=store.in_sync_replicas)


def warn_of_unsupported_attributes(tables: Tables) -> None:
    """Warn of attributes in RocketMQ's tables that this broker does not act on, for example COMPACTION."""
    topics = {name: topic.attributes for name, topic in tables.topics.table.items()}
    groups = {name: group.attributes for name, group in tables.groups.table.items()}
    unsupported_values = {
        "topics": unsupported(TOPIC_ATTRIBUTES, topics),
        "groups": unsupported(GROUP_ATTRIBUTES, groups),
    }
    for kind, by_value in unsupported_values.items():
        for attribute, owners in by_value.items():
            shown = ", ".join(sorted(owners)[:3]) + (", …" if len(owners) > 3 else "")
            log.warning(f"an attribute of {kind} has no effect here", attribute=attribute, count=len(owners), of=shown)
