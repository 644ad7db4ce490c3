"""What the broker knows of connected clients: the members of groups, locks of queues, and pulls that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Self

from gantrymq.broker.sessions.consumers import ConsumerManager, MemberNotices
from gantrymq.broker.sessions.long_polling import PullRequestHoldService
from gantrymq.broker.sessions.producers import Connected, ProducerManager
from gantrymq.broker.sessions.queue_locks import RebalanceLockManager
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.limited_log import LimitedLog
from gantrymq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of one broker. Thread rule: the event loop's thread."""

    consumers: ConsumerManager
    producers: ProducerManager
    locks: RebalanceLockManager
    holds: PullRequestHoldService

    @classmethod
    def of(
        cls, config: LiveConfig, clock: Clock, store: Callable[[], MessageStore], group_ended: Callable[[str], None]
    ) -> Self:
        """The sessions of a broker that starts. ``group_ended`` is called with a group that has no member any more."""
        log = LimitedLog(asyncio.get_running_loop().time)

        def cut_off(channel: Connected, reason: str) -> None:
            """Close a connection that uses resources which others need."""
            log.warning("connection closed", address=channel.address, reason=reason)
            channel.abort()

        def members_changed(group: str) -> None:
            if config.broker.notify_consumer_ids_changed_enable:
                notices.changed(group)

        consumers = ConsumerManager(members_changed, cut_off, group_ended)
        notices = MemberNotices(lambda name: group.clients if (group := consumers.group(name)) else [])
        return cls(consumers, ProducerManager(cut_off), RebalanceLockManager(), PullRequestHoldService(store, clock))

    def leave(self, channel: Channel) -> Iterator[None]:
        """Remove the memberships of a closed connection, a few a step."""
        return chain(self.producers.leave(channel), self.consumers.leave(channel))
