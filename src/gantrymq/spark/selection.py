"""The selection of the queues of a read, with the names of their topics under a namespace, and of records in them.

A :class:`RowFilter` selects records of selected queues by their contents, before columns are made.

Source: NamespaceUtil.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import ConfigError
from gantrymq.kernels import codes
from gantrymq.model.message import REVIVE_TOPIC_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from gantrymq.model.system_names import DLQ_PREFIX, RETRY_PREFIX
from gantrymq.spark.option_texts import Queues
from gantrymq.spark.options import ReadOptions
from gantrymq.tools.queue_key import QueueKey

_LOGGER = logging.getLogger(__name__)
_WAITING = "|".join(
    (*map(re.escape, (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC)), f"{re.escape(REVIVE_TOPIC_PREFIX)}.*")
)
_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)
_ROWS = {
    "phy_offset": codes.PHY_OFFSET,
    "store_timestamp_ms": codes.STORE_TIMESTAMP,
}


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice of queues; picklable. With everything None it is every queue of every topic."""

    topics: frozenset[str] | None = None
    pattern: str | None = None
    queues: Queues | None = None
    namespace: str | None = None

    @classmethod
    def of(cls, options: ReadOptions) -> Selection:
        """The selection that the options make; with ``pending`` the topics in which messages wait."""
        if options.pending:
            return cls(pattern=_WAITING)
        topics = None if options.subscribe is None else frozenset(options.subscribe)
        return cls(topics, options.subscribe_pattern, options.assign, options.namespace)

    @property
    def is_everything(self) -> bool:
        """Whether no topic was chosen."""
        return self.topics is None and self.pattern is None and self.queues is None

    def shown_topic(self, topic: str) -> str | None:
        """The topic without the namespace, as rows and offsets show it; None if it is not selected."""
        shown = _without_namespace(topic, self.namespace) if self.namespace else topic
        if shown is None or (self.topics is not None and shown not in self.topics):
            return None
        if self.pattern is not None and not re.fullmatch(self.pattern, shown):
            return None
        if self.queues is not None and not any(shown == chosen for chosen, _, _ in self.queues):
            return None
        return shown

    def takes(self, key: QueueKey) -> bool:
        """Whether a queue of a selected topic is selected."""
        if self.queues is None:
            return True
        return not self.queues.isdisjoint({(key.topic, broker, key.queue_id) for broker in (None, key.broker)})

    def wants(self, key: QueueKey) -> bool:
        """Whether the topic and the queue are selected."""
        return self.shown_topic(with_namespace(key.topic, self.namespace)) is not None and self.takes(key)

    def named_topics(self) -> set[str] | None:
        """The selected topics with their namespace; None if all topics must be listed to know them."""
        if self.topics is None and self.queues is None:
            return None
        shown = self.topics if self.topics is not None else {topic for topic, _, _ in self.queues or ()}
        return {with_namespace(topic, self.namespace) for topic in shown}

    def require_assigned(self, keys: Collection[QueueKey]) -> None:
        """Raise ConfigError if an assigned queue is not in ``keys``."""
        for topic, broker, queue_id in sorted(self.queues or (), key=str):
            if not any(key[1:] == (topic, queue_id) and broker in (None, key.broker) for key in keys):
                where = f" of broker {broker}" if broker else ""
                raise ConfigError("assign", f"{topic}: {queue_id}", f"a queue that is there{where}")

    def report_missing(self, keys: Collection[QueueKey]) -> None:
        """Log the subscribed topics without a queue in ``keys``."""
        there = {key.topic for key in keys}
        for topic in sorted((self.topics or frozenset()) - there):
            _LOGGER.warning("topic %s is not there; it is read as soon as it is", topic)


def with_namespace(topic: str, namespace: str | None) -> str:
    """The topic with its namespace, as brokers know it (NamespaceUtil.wrapNamespace)."""
    if not namespace:
        return topic
    prefix = next((known_prefix for known_prefix in _PREFIXES if topic.startswith(known_prefix)), "")
    return f"{prefix}{namespace}%{topic.removeprefix(prefix)}"


def _without_namespace(topic: str, namespace: str) -> str | None:
    prefix = next((known_prefix for known_prefix in _PREFIXES if topic.startswith(known_prefix)), "")
    rest = topic.removeprefix(prefix)
    return prefix + rest.removeprefix(f"{namespace}%") if rest.startswith(f"{namespace}%") else None


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Conditions that must all hold; picklable.

    ``ranges`` are (name, least, greatest) for a number of the record (phy_offset or store_timestamp_ms); None means no
    limit. ``tags`` and ``keys``: the record has one of them.
    """

    ranges: tuple[tuple[str, int | None, int | None], ...] = ()
    tags: tuple[frozenset[str], ...] = ()
    keys: tuple[frozenset[str], ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any condition."""
        return bool(self.ranges or self.tags or self.keys)

    def bounds(self, name: str) -> tuple[int | None, int | None]:
        """The least and the greatest value of a number that satisfy all conditions."""
        lows = [low for column, low, _ in self.ranges if column == name and low is not None]
        highs = [high for column, _, high in self.ranges if column == name and high is not None]
        return max(lows, default=None), min(highs, default=None)

    def __and__(self, other: RowFilter) -> RowFilter:
        """The conjunction of two filters."""
        return RowFilter(
            self.ranges + other.ranges,
            self.tags + other.tags,
            self.keys + other.keys,
        )

    def apply(self, batch: Any) -> Any:
        """The records of a LogBatch that pass."""
        for name, low, high in self.ranges:
            batch = batch.take(_within(batch.row(_ROWS[name]), low, high))
        for tags in self.tags:
            batch = batch.take(_has_tag(batch, tags))
        for keys in self.keys:
            batch = batch.take(_has_key(batch, keys))
        return batch


def tag_filter(expression: str | None, keys: tuple[str, ...] | None) -> RowFilter:
    """The filter of the options ``tags`` ("A || B", or * for all) and ``keys``."""
    tags = frozenset(tag.strip() for tag in (expression or "").split("||") if tag.strip())
    by_tag = (tags,) if tags and "*" not in tags else ()
    return RowFilter(tags=by_tag, keys=(frozenset(keys),) if keys else ())


def _within(values: NDArray[np.int64], low: int | None, high: int | None) -> NDArray[np.bool_]:
    inside = np.ones(len(values), np.bool_)
    if low is not None:
        inside &= values >= low
    if high is not None:
        inside &= values <= high
    return inside


def _has_tag(batch: Any, tags: frozenset[str]) -> NDArray[np.bool_]:
    import pyarrow.compute as pc

    from gantrymq.tools.arrow import tags_column, texts_array, truths_of

    matches = pc.is_in(tags_column(batch), value_set=texts_array(sorted(tags)))
    return truths_of(matches)


def _has_key(batch: Any, keys: frozenset[str]) -> NDArray[np.bool_]:
    import pyarrow.compute as pc

    from gantrymq.tools.arrow import keys_column, texts_array, truths_of

    lists = keys_column(batch)
    matches = pc.is_in(lists.values, value_set=texts_array(sorted(keys)))
    offsets = np.frombuffer(lists.offsets.buffers()[1], np.int32, len(lists) + 1)
    wanted = np.zeros(batch.count, np.bool_)
    wanted[np.searchsorted(offsets, np.flatnonzero(truths_of(matches)), side="right") - 1] = True
    return wanted
