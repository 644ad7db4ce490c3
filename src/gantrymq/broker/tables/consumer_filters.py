"""The SQL92 filters of consumer groups by topic, kept in ``config/consumerFilter.json`` as RocketMQ keeps them.

RocketMQ compiles a filter when a heartbeat brings it. Here the first pull compiles it, because one heartbeat may bring
thousands; only a filter that has been compiled is written to the file. A filter of a group without members is kept for
``filterDataCleanTimeSpan``, so that a consumer that comes back finds it.

The bits of RocketMQ's Bloom filter are written, with its defaults or the configured size, so that a Java broker accepts
the file. This broker does not use them.

Thread rule: the event loop's thread.

Source: ConsumerFilterManager, ConsumerFilterData, BloomFilter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from math import ceil, e, log
from typing import Any

import msgspec

from gantrymq.broker.sessions.consumers import is_tag_type
from gantrymq.broker.tables.versioned_table import persisted
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import FilterSyntaxError
from gantrymq.filter.murmur3 import murmur3_128_low
from gantrymq.filter.sql_filter import SqlFilter, SqlFilterCache
from gantrymq.remoting.bodies.client import SubscriptionData
from gantrymq.remoting.bodies.filter import (
    BloomFilterData,
    ConsumerFilterData,
    ConsumerFilterTable,
    FilterDataMapByTopic,
)

SQL92 = "SQL92"
MAX_FILTER_BYTES = 16 << 20  # of all filters together, those of groups without members included
_ENTRY_BYTES = 600
_DEAD_BEFORE_START_MS = 30_000


class ConsumerFilterManager:
    """The table of filters. ``edits`` counts changes, so that a caller can see whether to save."""

    def __init__(self, config: LiveConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._table: dict[tuple[str, str], ConsumerFilterData] = {}  # by topic and group
        self._topics: dict[str, set[str]] = {}  # of each group
        self._valid: set[tuple[str, str]] = set()  # filters that have been compiled, or come from the file
        self._size_bytes = 0
        self._filters = SqlFilterCache()
        self._loading: asyncio.Future[None] | None = None
        self.edits = 0

    @property
    def is_ready(self) -> bool:
        """Whether :meth:`compile` only compiles, and does not have to load the parser first."""
        return self._filters.is_loaded

    def begin_loading(self) -> asyncio.Future[None]:
        """Load the parser on a thread, unless that has begun. The future completes when it is loaded."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(asyncio.to_thread(self._filters.load))
        return self._loading

    def compile(self, expression_type: str | None, text: str | None) -> SqlFilter:
        """The filter of an expression. Raises FilterSyntaxError, also for another type than SQL92."""
        if expression_type != SQL92:
            raise FilterSyntaxError(f"there are no filters of the type {str(expression_type)[:100]}")
        return self._filters.compile(text or "")

    def get(self, topic: str, group: str) -> ConsumerFilterData | None:
        """The filter of a group for a topic, or None."""
        return self._table.get((topic, group))

    def compiled(self, data: ConsumerFilterData) -> SqlFilter:
        """The compiled filter of an entry. Raises FilterSyntaxError."""
        compiled_filter = self.compile(data.expression_type, data.expression)
        key = (data.topic, data.consumer_group)
        if key not in self._valid and self._table.get(key) is data:
            self._valid.add(key)
            self.edits += 1
        return compiled_filter

    # Changes

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Record the filters of a heartbeat. The group's filters of other topics count as dead from now on."""
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self._register(group, subscription)
        for topic in self._topics.get(group, set()) - topics:
            self._end(topic, group)

    def _register(self, group: str, given: SubscriptionData) -> None:
        key = (given.topic, group)
        text, type_ = str(given.sub_string), str(given.expression_type)
        old = self._table.get(key)
        if old is not None and given.sub_version <= old.client_version:
            if given.sub_version == old.client_version and is_dead(old):
                self._replace(key, msgspec.structs.replace(old, dead_time=0))
        elif old is not None and (text, type_) == (old.expression, old.expression_type):
            self._replace(key, msgspec.structs.replace(old, client_version=given.sub_version, dead_time=0))
        else:
            self._drop(key)
            if self._make_room(_size_bytes(*key, text)):
                made = ConsumerFilterData(
                    consumer_group=group,
                    topic=given.topic,
                    expression=text,
                    expression_type=type_,
                    born_time=self._clock.now_ms(),
                    client_version=given.sub_version,
                )
                self._add(key, made)

    def unregister(self, group: str) -> None:
        """Count the filters of a group without members as dead from now on."""
        for topic in self._topics.get(group, ()):
            self._end(topic, group)

    def _end(self, topic: str, group: str) -> None:
        data = self._table[topic, group]
        if not is_dead(data):
            now_ms = max(self._clock.now_ms(), data.born_time)
            self._replace((topic, group), msgspec.structs.replace(data, dead_time=now_ms))

    def _add(self, key: tuple[str, str], data: ConsumerFilterData) -> None:
        topic, group = key
        self._table[key] = data
        self._topics.setdefault(group, set()).add(topic)
        self._size_bytes += _size_bytes(topic, group, data.expression)

    def _replace(self, key: tuple[str, str], data: ConsumerFilterData) -> None:
        self._table[key] = data
        self.edits += key in self._valid

    def _drop(self, key: tuple[str, str]) -> None:
        data = self._table.pop(key, None)
        if data is None:
            return
        topic, group = key
        self._topics[group].discard(topic)
        if not self._topics[group]:
            del self._topics[group]
        self._size_bytes -= _size_bytes(topic, group, data.expression)
        self.edits += key in self._valid
        self._valid.discard(key)

    def _make_room(self, size_bytes: int) -> bool:
        """Drop the filters of groups without members, oldest first, until there is room. Returns whether there is."""
        if self._size_bytes + size_bytes > MAX_FILTER_BYTES:
            dead = [key for key, data in self._table.items() if is_dead(data)]
            for key in sorted(dead, key=lambda key: self._table[key].dead_time):
                self._drop(key)
                if self._size_bytes + size_bytes <= MAX_FILTER_BYTES // 2:
                    break
        return self._size_bytes + size_bytes <= MAX_FILTER_BYTES

    def expire(self) -> None:
        """Drop the filters that have been dead for filterDataCleanTimeSpan (clean)."""
        end_ms = self._clock.now_ms() - self._config.broker.filter_data_clean_time_span_ms
        for key in [key for key, data in self._table.items() if is_dead(data) and data.dead_time <= end_ms]:
            self._drop(key)

    # The file

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """A function that makes the content of consumerFilter.json. It may run on any thread."""
        broker = self._config.broker
        valid_data = [self._table[key] for key in self._valid]
        bits = partial(bloom_bits, broker.max_error_rate_of_bloom_filter, broker.expect_consumer_num_use_filter)
        return partial(_content, valid_data, bits)

    def load(self, value: dict[str, Any]) -> None:
        """Load the content of consumerFilter.json. All filters count as dead. Raises msgspec.ValidationError."""
        saved = msgspec.convert(value, ConsumerFilterTable, strict=False)
        dead_ms = self._clock.now_ms() - _DEAD_BEFORE_START_MS
        for topic, of_topic in saved.filter_data_by_topic.items():
            for group, data in of_topic.group_filter_data.items():
                key = (topic, group)
                if key in self._table or not self._make_room(_size_bytes(topic, group, data.expression)):
                    continue
                dead_time = data.dead_time or max(dead_ms, data.born_time)
                made = msgspec.structs.replace(data, topic=topic, consumer_group=group, dead_time=dead_time)
                self._add(key, made)
                self._valid.add(key)


def is_dead(data: ConsumerFilterData) -> bool:
    """Whether the group has no member with this filter (isDead)."""
    return data.dead_time >= data.born_time


def _size_bytes(topic: str, group: str, expression: str) -> int:
    return _ENTRY_BYTES + 2 * (len(topic) + len(group) + len(expression))


def _content(filter_data: list[ConsumerFilterData], bits: Callable[[str], BloomFilterData]) -> dict[str, Any]:
    table = ConsumerFilterTable()
    for data in filter_data:
        of_topic = table.filter_data_by_topic.setdefault(data.topic, FilterDataMapByTopic(topic=data.topic))
        bloom = bits(f"{data.consumer_group}#{data.topic}")
        of_topic.group_filter_data[data.consumer_group] = msgspec.structs.replace(
            data, bloom_filter_data=bloom, dead=is_dead(data)
        )
    content: dict[str, Any] = persisted(table)
    return content


def bloom_bits(error_rate: int, consumers: int, text: str) -> BloomFilterData:
    """The bits of ``text`` in a Bloom filter for ``consumers``; ``error_rate`` is in percent (BloomFilter.generate)."""
    rate = error_rate / 100
    count = ceil(log(rate) / log(0.5))
    bit_num = ceil(consumers * (log(1 / rate) / log(2)) * (log(e) / log(2)))
    bit_num = 8 * ceil(bit_num / 8)
    hashed = murmur3_128_low(text.encode("utf-8", "replace"))
    first, second = hashed & 0xFFFFFFFF, hashed >> 32
    positions = []
    for i in range(1, count + 1):
        combined = (first + i * second) & 0xFFFFFFFF
        positions.append((combined ^ 0xFFFFFFFF if combined >> 31 else combined) % bit_num)
    return BloomFilterData(bit_num=bit_num, bit_pos=positions)
