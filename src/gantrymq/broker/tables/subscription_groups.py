"""The consumer groups of a broker, and the topics that each may not read.

Thread rule: the event loop's thread.

Source: SubscriptionGroupManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from gantrymq.broker import names
from gantrymq.broker.tables.attributes import GROUP_ATTRIBUTES, alter
from gantrymq.broker.tables.versioned_table import TableVersion, persisted
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import RemotingError
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from gantrymq.remoting.bodies.topic import DataVersion

FORBIDDEN_READ = 2  # PermName.INDEX_PERM_READ
MAX_FORBIDDEN = 50_000  # topics of all groups together


class SubscriptionGroupManager:
    """The table of groups. ``edits`` counts changes, so that a caller can see whether to save."""

    def __init__(self, config: LiveConfig, clock: Clock) -> None:
        self._config = config
        self._version = TableVersion(clock)
        self._table = {name: SubscriptionGroupConfig(group_name=name) for name in names.FIRST_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}
        self.edits = 0

    @property
    def table(self) -> Mapping[str, SubscriptionGroupConfig]:
        """All groups by name."""
        return self._table

    @property
    def version(self) -> DataVersion:
        """The version of the table."""
        return self._version.value

    def __contains__(self, group: str) -> bool:
        """Whether there is such a group."""
        return group in self._table

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group; created if autoCreateSubscriptionGroup allows it, else None (findSubscriptionGroupConfig)."""
        config = self._table.get(group)
        if config is not None:
            return config
        broker = self._config.broker
        may_create = broker.auto_create_subscription_group or (
            broker.enable_create_sys_group and names.is_system_group(group)
        )
        if not may_create or names.wrong_group(group) is not None or len(self._table) >= broker.max_subscription_groups:
            return None
        created = SubscriptionGroupConfig(group_name=group)
        if not self._config.is_slave:  # a slave has the groups of its master
            self._table[group] = created
            self._edited()
        return created

    def update(self, groups: list[SubscriptionGroupConfig]) -> None:
        """Create or change groups. Their attributes are changes. Raises RequestRefused."""
        ready = []
        for group in groups:
            old = self._table.get(str(group.group_name))
            current = old.attributes if old is not None else {}
            changed = alter(GROUP_ATTRIBUTES, current, group.attributes, create=old is None)
            ready.append(msgspec.structs.replace(group, attributes=changed))
        max_groups = self._config.broker.max_subscription_groups
        if len(self._table) + sum(str(group.group_name) not in self._table for group in groups) > max_groups:
            raise RemotingError(f"there may be {max_groups} subscription groups (maxSubscriptionGroups)")
        for group in ready:
            self._table[str(group.group_name)] = group
        self._edited()

    def delete(self, group: str) -> bool:
        """Delete a group. Returns whether it existed."""
        was_forbidden = self._forbidden.pop(group, None) is not None
        was_there = self._table.pop(group, None) is not None
        if was_there or was_forbidden:
            self._edited()
        return was_there

    def follow(self, master: SubscriptionGroupWrapper) -> list[str]:
        """Take a master's groups, at a slave. Returns the names of those that it lacks."""
        if master.data_version == self._version.value:
            return []
        table = master.subscription_group_table
        removed = [name for name in self._table if name not in table]
        self._table, self._forbidden = dict(table), dict(master.forbidden_table)
        self._version.value = master.data_version
        self.edits += 1
        return removed

    def is_forbidden(self, group: str, topic: str, index: int) -> bool:
        """Whether bit ``index`` of the group's forbidden operations on the topic is set."""
        return bool(self._forbidden.get(group, {}).get(topic, 0) >> index & 1)

    def set_forbidden(self, group: str, topic: str, index: int, *, forbidden: bool) -> None:
        """Set or clear that bit. Other bits of the group stay; RocketMQ clears all of them.

        Raises RemotingError at the limit of forbidden topics.
        """
        names.require_short("group", group)
        names.require_short("topic", topic)
        is_new = forbidden and topic not in self._forbidden.get(group, ())
        if is_new and sum(map(len, self._forbidden.values())) >= MAX_FORBIDDEN:
            raise RemotingError(f"{MAX_FORBIDDEN} topics are forbidden to groups, which is the maximum")
        topics = self._forbidden.setdefault(group, {})
        old = topics.pop(topic, 0)
        new = old | 1 << index if forbidden else old & ~(1 << index)
        if new > 0:
            topics[topic] = new
        if not topics:
            del self._forbidden[group]
        if new == old:
            return
        self._edited()

    def _edited(self) -> None:
        self._version.next()
        self.edits += 1

    def to_body(self, groups: list[SubscriptionGroupConfig] | None = None) -> SubscriptionGroupWrapper:
        """The table, or some of it, with its version.

        The whole table includes what groups that do not exist yet may not do.
        """
        chosen = self._table if groups is None else {str(group.group_name): group for group in groups}
        forbidden = {name: dict(table) for name, table in self._forbidden.items() if groups is None or name in chosen}
        return SubscriptionGroupWrapper(
            subscription_group_table=dict(chosen), forbidden_table=forbidden, data_version=self._version.value
        )

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """A function that makes the content of subscriptionGroup.json from the current table.

        It may run on any thread.
        """
        return partial(persisted, self.to_body())

    def to_json(self) -> dict[str, Any]:
        """The content of subscriptionGroup.json."""
        return self.snapshot()()

    def load(self, value: dict[str, Any]) -> None:
        """Load the content of subscriptionGroup.json. Raises msgspec.ValidationError."""
        saved = msgspec.convert(value, SubscriptionGroupWrapper, strict=False)
        self._table = saved.subscription_group_table | {
            name: config for name, config in self._table.items() if name not in saved.subscription_group_table
        }
        self._forbidden.update(saved.forbidden_table)
        self._version.value = saved.data_version
