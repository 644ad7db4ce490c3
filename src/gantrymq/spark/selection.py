"""The selection of the queues of a read, and the names of their topics under a namespace.

Source: NamespaceUtil.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from gantrymq.errors import ConfigError
from gantrymq.spark.option_texts import Queues
from gantrymq.spark.options import ReadOptions

_LOGGER = logging.getLogger(__name__)
_PREFIXES = ("%RETRY%", "%DLQ%")


class QueueKey(NamedTuple):
    """A queue of a broker. ``topic`` is the topic without the namespace."""

    broker: str
    topic: str
    queue_id: int

    def __str__(self) -> str:
        """The text for messages."""
        return f"topic {self.topic}, broker {self.broker}, queue {self.queue_id}"


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice of queues; picklable. With everything None it is every queue of every topic."""

    topics: frozenset[str] | None = None
    pattern: str | None = None
    queues: Queues | None = None
    namespace: str | None = None

    @classmethod
    def of(cls, options: ReadOptions) -> Selection:
        """The selection that the options make."""
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

    def require_assigned(self, found: Collection[QueueKey]) -> None:
        """Raise ConfigError if an assigned queue is not in ``found``."""
        for topic, broker, queue_id in sorted(self.queues or (), key=str):
            if not any(key[1:] == (topic, queue_id) and broker in (None, key.broker) for key in found):
                where = f" of broker {broker}" if broker else ""
                raise ConfigError("assign", f"{topic}: {queue_id}", f"a queue that is there{where}")

    def report_missing(self, found: Collection[QueueKey]) -> None:
        """Log the subscribed topics without a queue in ``found``."""
        there = {key.topic for key in found}
        for topic in sorted((self.topics or frozenset()) - there):
            _LOGGER.warning("topic %s is not there; it is read as soon as it is", topic)


def with_namespace(topic: str, namespace: str | None) -> str:
    """The topic with its namespace, as brokers know it (NamespaceUtil.wrapNamespace)."""
    if not namespace:
        return topic
    prefix = next((one for one in _PREFIXES if topic.startswith(one)), "")
    return f"{prefix}{namespace}%{topic.removeprefix(prefix)}"


def _without_namespace(topic: str, namespace: str) -> str | None:
    prefix = next((one for one in _PREFIXES if topic.startswith(one)), "")
    rest = topic.removeprefix(prefix)
    return prefix + rest.removeprefix(f"{namespace}%") if rest.startswith(f"{namespace}%") else None
