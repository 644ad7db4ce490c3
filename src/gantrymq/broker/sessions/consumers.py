"""The connected consumers by group, with their subscriptions, and the notices that a group has changed.

The obvious way is to notify all members at each change. In a group of thousands that costs the square of its members,
and 60 connections with members of the same 1,000 groups turn one heartbeat into 60,000 notices. Changes are therefore
recorded, and sent in slices of the event loop's time: a group that changes again before its members are notified is
notified once.

No I/O except for the notices; times are arguments. Thread rule: the event loop's thread.

Source: ConsumerManager, ConsumerGroupInfo, DefaultConsumerIdsChangeListener, Broker2Client.notifyConsumerIdsChanged;
FilterAPI, ExpressionType.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

from gantrymq.broker.sessions.producers import ClientChannel, Connected, Memberships, abort
from gantrymq.errors import GantrymqError, RemotingError
from gantrymq.model.message import tag_code
from gantrymq.remoting.bodies.client import ConsumerData, SubscriptionData
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import NotifyConsumerIdsChangedRequestHeader
from gantrymq.remoting.transport.turns import in_slices

SUB_ALL = "*"
TAG_TYPE = "TAG"
MAX_SUBSCRIPTION_BYTES = 32 << 20  # of all groups together
MAX_GROUP_BYTES = 2 << 20  # of one group: 5,000 topics
_SUBSCRIPTION_BYTES, _TAG_BYTES = 400, 48
BROADCASTING = "BROADCASTING"
CLUSTERING = "CLUSTERING"
CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
CONSUME_PASSIVELY = "CONSUME_PASSIVELY"


class SubscriptionError(GantrymqError):
    """A subscription expression is invalid."""


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression type means tags. A missing type does."""
    return not expression_type or expression_type == TAG_TYPE


def build_subscription(topic: str, text: str | None, expression_type: str | None, version: int) -> SubscriptionData:
    """Parse a subscription. Raises SubscriptionError if it has no tag, or no expression."""
    if not is_tag_type(expression_type):
        if not text:
            raise SubscriptionError(f"Expression can't be null! {expression_type}")
        return SubscriptionData(topic=topic, sub_string=text, expression_type=expression_type, sub_version=version)
    subscription = SubscriptionData(topic=topic, sub_string=text or SUB_ALL, sub_version=version)
    if not text or text == SUB_ALL:
        return subscription
    if not text.replace("||", ""):
        raise SubscriptionError("subString split error")
    subscription.tags_set = [tag.strip() for tag in text.split("||") if tag.strip()]
    subscription.code_set = [tag_code(tag) for tag in subscription.tags_set]
    return subscription


def tags_codes(subscription: SubscriptionData) -> frozenset[int] | None:
    """The hashes of the subscribed tags; None if every message matches (isMatchedByConsumeQueue)."""
    if subscription.class_filter_mode or not is_tag_type(subscription.expression_type):
        return None
    return None if subscription.sub_string == SUB_ALL else frozenset(subscription.code_set)


# Called with a group whose members have changed.
MembersChanged = Callable[[str], None]


class ConsumerGroup:
    """One group: its channels, and its subscriptions by topic."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.consume_type: str | None = None
        self.message_model: str | None = None
        self.consume_from_where: str | None = None
        self.fingerprint = 0  # of its last heartbeat; 0 for heartbeats of version 1
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.pulled_ms: dict[str, int] = {}  # by topic, the time of the last pull without a heartbeat
        self.channels: dict[Connected, ClientChannel] = {}
        self.size_bytes = 0  # the memory of its subscriptions

    @property
    def is_broadcast(self) -> bool:
        """Whether every member gets every message."""
        return self.message_model == BROADCASTING

    @property
    def clients(self) -> list[ClientChannel]:
        """The members of the group."""
        return list(self.channels.values())

    def find(self, client_id: str) -> ClientChannel | None:
        """The member with this client id, or None."""
        return next((client for client in self.channels.values() if client.client_id == client_id), None)

    def update_channel(self, client: ClientChannel, data: ConsumerData) -> bool:
        """Record a heartbeat. Returns whether its channel is new."""
        self.consume_type, self.message_model = data.consume_type, data.message_model
        self.consume_from_where = data.consume_from_where
        known = self.channels.get(client.channel)
        if known is None or known.client_id != client.client_id:
            self.channels[client.channel] = client
        else:
            known.last_update_ms = client.last_update_ms
        return known is None

    def update_subscriptions(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Replace the subscriptions by those of a member. Returns whether topics were added or removed."""
        updated, topics = False, set[str]()
        for subscription in subscriptions:
            topic = subscription.topic
            topics.add(topic)
            old = self.subscriptions.get(topic)
            if old is None or subscription.sub_version > old.sub_version:
                self.subscriptions[topic] = subscription
            updated |= old is None
        for topic in [topic for topic in self.subscriptions if topic not in topics]:
            del self.subscriptions[topic]
            updated = True
        return updated


class ConsumerManager:
    """Groups of consumers. ``members_changed`` is called when a clustering group gains or loses a member.

    Consumers that pull without a heartbeat are recorded separately (RocketMQ's compensation table), with a subscription
    and no channel. ``close`` closes a connection that uses too much memory, and gets the reason. ``ended`` is called
    with a group that has lost its last member.
    """

    def __init__(
        self,
        members_changed: MembersChanged = lambda _: None,
        close: Callable[[Connected, str], None] = abort,
        ended: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self._pulling: dict[str, ConsumerGroup] = {}
        self._topics: dict[str, set[str]] = {}
        self._members, self._close = Memberships(self.channel_closed, close), close
        self._held_bytes = self._pulling_bytes = 0
        self._members_changed, self._ended = members_changed, ended

    @property
    def groups(self) -> Mapping[str, ConsumerGroup]:
        """All groups that have members."""
        return self._groups

    def group(self, name: str) -> ConsumerGroup | None:
        """The group, or None if it has no members."""
        return self._groups.get(name)

    def subscribing(self, name: str) -> ConsumerGroup | None:
        """The group if it has members, or if its consumers pull without a heartbeat."""
        return self._groups.get(name) or self._pulling.get(name)

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """The group's subscription to a topic, even if its consumers pull without a heartbeat."""
        for table in (self._groups, self._pulling):
            group_state = table.get(group)
            if group_state is not None and topic in group_state.subscriptions:
                return group_state.subscriptions[topic]
        return None

    def groups_of(self, topic: str) -> set[str]:
        """The groups with members that subscribe to a topic (queryTopicConsumeByWho)."""
        return set(self._topics.get(topic, ()))

    # Changes

    def register(
        self,
        data: ConsumerData,
        client: ClientChannel,
        *,
        notify: bool,
        with_subscriptions: bool = True,
        fingerprint: int = 0,
    ) -> bool:
        """Record a consumer's heartbeat. Returns whether the group has changed.

        Raises RemotingError if its subscriptions need too much memory.
        """
        name = data.group_name
        group = self._groups.get(name)
        size_bytes = _size_bytes(data.subscription_data_set) if with_subscriptions else 0
        if size_bytes:
            self._make_room(name, size_bytes)
        if group is None or client.channel not in group.channels:
            self._members.add(client.channel, name)
        group = self._groups.get(name)  # making room may have removed the group
        if group is None:
            group = self._groups[name] = ConsumerGroup(name)
        group.fingerprint = fingerprint
        changed = group.update_channel(client, data)
        if with_subscriptions:
            before = set(group.subscriptions)
            changed |= group.update_subscriptions(data.subscription_data_set)
            self._forget(name, before - group.subscriptions.keys())
            self._held_bytes += size_bytes - group.size_bytes
            group.size_bytes = size_bytes
            for topic in group.subscriptions.keys() - before:
                self._topics.setdefault(topic, set()).add(name)
        if changed and notify and not group.is_broadcast:
            self._members_changed(name)
        return changed

    def unregister(self, name: str, channel: Connected, *, notify: bool = True) -> bool:
        """Remove a consumer that unregisters. Returns whether it was registered."""
        group = self._groups.get(name)
        if group is None or group.channels.pop(channel, None) is None:
            return False
        self._members.discard(channel, name)
        self._drop_if_empty(group)
        if notify and not group.is_broadcast:
            self._members_changed(name)
        return True

    def channel_closed(self, channel: Connected) -> None:
        """Remove the consumers of a closed connection."""
        for _ in self.leave(channel):
            pass

    def leave(self, channel: Connected) -> Iterator[None]:
        """As :meth:`channel_closed`, one group a step."""
        for name in self._members.of(channel):
            self.unregister(name, channel)
            yield

    def note_pull(self, name: str, model: str, subscription: SubscriptionData | None, now_ms: int) -> None:
        """Record a pull, which may come from a consumer that sends no heartbeats (compensateBasicConsumerInfo).

        Above a limit for all these subscriptions a new one is not recorded: only administrative tools read them.
        """
        group = self._pulling.get(name)
        old = group.subscriptions.get(subscription.topic) if group is not None and subscription is not None else None
        grown = _size_bytes([subscription] if subscription is not None else []) - _size_bytes([old] if old else [])
        if self._pulling_bytes + grown > MAX_SUBSCRIPTION_BYTES // 2:
            return
        self._pulling_bytes += grown
        if group is None:
            group = self._pulling[name] = ConsumerGroup(name)
        group.consume_type, group.message_model = CONSUME_PASSIVELY, model
        if subscription is not None:
            group.subscriptions[subscription.topic] = subscription
            group.pulled_ms[subscription.topic] = now_ms

    def expire(self, now_ms: int, channel_expired_ms: int, subscription_expired_ms: int) -> None:
        """Close the channels of consumers without a recent heartbeat (scanNotActiveChannel).

        Old subscriptions of consumers that pull without a heartbeat are forgotten too.
        """
        for group in list(self._groups.values()):
            for client in group.clients:
                if now_ms - client.last_update_ms > channel_expired_ms:
                    self.unregister(group.name, client.channel)
                    client.channel.abort()
        for group in list(self._pulling.values()):
            for topic in list(group.subscriptions):
                if now_ms - group.pulled_ms[topic] > subscription_expired_ms:
                    self._pulling_bytes -= _size_bytes([group.subscriptions[topic]])
                    del group.subscriptions[topic], group.pulled_ms[topic]
            if not group.subscriptions:
                del self._pulling[group.name]

    def _make_room(self, name: str, size_bytes: int) -> None:
        """Make room for the subscriptions of a group by removing the groups with the largest ones.

        Raises RemotingError if this group has the largest ones itself, or more than MAX_GROUP_BYTES.
        """
        group = self._groups.get(name)
        own_bytes = group.size_bytes if group is not None else 0
        if size_bytes > MAX_GROUP_BYTES:
            raise RemotingError(f"the subscriptions of a group have {size_bytes} bytes, more than {MAX_GROUP_BYTES}")
        while self._held_bytes - own_bytes + size_bytes > MAX_SUBSCRIPTION_BYTES:
            largest = max(self._groups.values(), key=lambda group: group.size_bytes)
            if largest is group or largest.size_bytes <= size_bytes:
                raise RemotingError(
                    f"subscriptions of all groups have {MAX_SUBSCRIPTION_BYTES} bytes, which is the maximum"
                )
            for channel in list(largest.channels):
                self._close(channel, f"subscriptions: those of group {largest.name} take the most memory")
                self.unregister(largest.name, channel)

    def _drop_if_empty(self, group: ConsumerGroup) -> None:
        if group.channels:
            return
        del self._groups[group.name]
        self._held_bytes -= group.size_bytes
        self._forget(group.name, group.subscriptions)
        self._ended(group.name)

    def _forget(self, group: str, topics: Iterable[str]) -> None:
        """Record that the group no longer subscribes to these topics."""
        for topic in topics:
            groups = self._topics.get(topic, set())
            groups.discard(group)
            if not groups:
                self._topics.pop(topic, None)


def _size_bytes(subscriptions: Iterable[SubscriptionData]) -> int:
    """The approximate memory of subscriptions, in bytes."""
    size_bytes = 0
    for subscription in subscriptions:
        texts = len(subscription.topic) + len(subscription.sub_string or "") + len(subscription.expression_type or "")
        if subscription.tags_set or subscription.code_set:
            texts += sum(map(len, subscription.tags_set))
            size_bytes += _TAG_BYTES * (len(subscription.tags_set) + len(subscription.code_set))
        size_bytes += _SUBSCRIPTION_BYTES + 2 * texts
    return size_bytes


class MemberNotices:
    """Notifies the members of changed groups. ``members_of`` returns the members of a group.

    Thread rule: the event loop's thread.
    """

    def __init__(self, members_of: Callable[[str], list[ClientChannel]]) -> None:
        self._members_of = members_of
        self._outdated: dict[str, None] = {}  # groups whose members must be notified, oldest first
        self._round: asyncio.Task[None] | None = None

    def changed(self, group: str) -> None:
        """Notify the members of a group in one of the next iterations of the event loop."""
        self._outdated[group] = None
        if self._round is None:
            self._round = asyncio.ensure_future(self._notify_all())

    async def _notify_all(self) -> None:
        try:
            async for group, client in in_slices(self._notices()):
                header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
                client.channel.invoke_oneway(RemotingCommand.request(header))
        finally:
            self._round = None

    def _notices(self) -> Iterator[tuple[str, ClientChannel]]:
        while self._outdated:
            group = next(iter(self._outdated))
            del self._outdated[group]
            for client in self._members_of(group):
                yield group, client
