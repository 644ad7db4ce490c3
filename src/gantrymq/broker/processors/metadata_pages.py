"""Pages of topics and groups, for clients that ask for all of them in parts.

A page that would leave exactly one name for the next page takes that name as well. RocketMQ's clients and slaves stop
when all names but one have arrived, so they never ask for a last page of one: a slave deletes that topic, and mqadmin
exports all topics but that one.

Source: BrokerOuterAPI.getAllTopicConfig and getAllSubscriptionGroupConfig, and MQClientAPIImpl of 5.5.0 and 5.5.1.
"""

from __future__ import annotations

from collections.abc import Iterable


def page_of(names: Iterable[str], begin: int, requested: int | None, limit: int) -> list[str]:
    """The names from number ``begin`` on, in their order: at most ``requested`` and ``limit``, plus a last one."""
    ordered = sorted(names)
    end = begin + min(limit, requested or limit)
    if end == len(ordered) - 1:
        end += 1
    return ordered[begin:end]
