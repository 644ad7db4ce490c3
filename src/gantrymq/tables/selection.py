"""The topics that land in a table.

Thread rule: values. A choice is pickled to Spark's executors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from gantrymq.client.namespace import DLQ_PREFIX, RETRY_PREFIX
from gantrymq.errors import ConfigError
from gantrymq.model.system_names import SYSTEM_GROUP_PREFIX, is_system_topic
from gantrymq.tools.export_plan import ExportSelection

_OF_GROUPS = (RETRY_PREFIX, DLQ_PREFIX, SYSTEM_GROUP_PREFIX)


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """The topics with the names in ``topics``, and those whose whole name matches ``pattern``.

    A pattern takes no system topic, no retry topic and no dead letter topic; ``topics`` may name any. ``retries`` and
    ``dlq`` add the retry and the dead letter topics: of these only the messages that came from a chosen topic.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    retries: bool = False
    dlq: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigError for a pattern that is none, and without any choice."""
        if not self.topics and self.pattern is None:
            raise ConfigError("--topic", "", "at least one --topic, or --topics REGEX")
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise ConfigError("--topics", self.pattern, f"a regular expression: {error}") from None

    def chooses(self, topic: str) -> bool:
        """Whether a message that was sent to ``topic`` lands."""
        if topic in self.topics:
            return True
        if self.pattern is None or topic.startswith(_OF_GROUPS) or is_system_topic(topic):
            return False
        return re.fullmatch(self.pattern, topic) is not None

    def reads(self, topic: str) -> bool:
        """Whether the queues of ``topic`` are read."""
        return self.chooses(topic) or self.is_read_for_others(topic)

    def is_read_for_others(self, topic: str) -> bool:
        """Whether only those messages of ``topic`` land that came from a chosen topic."""
        if self.chooses(topic):
            return False
        return (self.retries and topic.startswith(RETRY_PREFIX)) or (self.dlq and topic.startswith(DLQ_PREFIX))

    @property
    def is_named(self) -> bool:
        """Whether the names of all topics that are read are known."""
        return self.pattern is None and not (self.retries or self.dlq)

    @property
    def has_origin(self) -> bool:
        """Whether the table has the column ``origin_topic``."""
        return self.retries or self.dlq

    @property
    def signature(self) -> str:
        """A short text that is another one for another choice."""
        return f"{crc32(repr((sorted(self.topics), self.pattern, self.retries, self.dlq)).encode()):08x}"

    def of_topic(self, topic: str) -> TopicChoice:
        """The choice of one topic of this choice."""
        return TopicChoice((topic,), None, self.retries, self.dlq)


@dataclass(frozen=True, slots=True)
class LandSelection(ExportSelection):
    """The queues of a choice of topics, as the plan of an export takes them."""

    choice: TopicChoice | None = None

    @property
    def is_everything(self) -> bool:
        """A choice is never everything: system topics are left out."""
        return False

    def takes_queue(self, topic: str, queue_id: int) -> bool:
        """Whether the queue is read."""
        return self.choice is not None and self.choice.reads(topic)


def given_topics(topics: Sequence[str] | None) -> tuple[str, ...]:
    """The names of ``--topic``, without repeats."""
    return tuple(dict.fromkeys(topics or ()))
