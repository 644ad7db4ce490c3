"""The messages that ``consume`` gets, the filter that chooses them, and the interface of its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gantrymq.client.requests.subscription import SQL92, TAG, subscription
from gantrymq.model.message import StoredMessage


class Arrived(NamedTuple):
    """A message with its body as stored. ``broker_name`` is empty for a message of a store directory."""

    message: StoredMessage
    broker_name: str = ""


@dataclass(frozen=True, slots=True)
class Filter:
    """``expression`` in the language ``kind``: ``*``, ``A || B``, or with SQL92 a condition on properties."""

    expression: str = "*"
    kind: str = TAG

    def takes(self) -> Callable[[StoredMessage], bool]:
        """A function that compares tags. Brokers compare only their hashes. Raises MQClientError."""
        tags = frozenset(subscription("", self.expression, self.kind, 0).tags_set)
        return (lambda message: message.tags in tags) if tags else (lambda message: True)

    def evaluates(self) -> Callable[[StoredMessage], bool]:
        """A function that applies the whole filter, where no broker does. Raises MQClientError, FilterSyntaxError."""
        if self.kind != SQL92:
            return self.takes()
        from gantrymq.filter.sql_filter import SqlFilterCache

        condition = SqlFilterCache().compile(self.expression)
        return lambda message: condition.matches(message.properties)


class Source(Protocol):
    """Messages of topics. ``lost`` is set when messages that were asked for are not there.

    ``waits`` says whether an empty list comes after a wait for messages, so that the caller need not wait.
    """

    lost: bool
    waits: bool

    def batches(self) -> Iterator[list[Arrived]]:
        """Yield messages as they come, and an empty list when none has come for a moment."""
        ...

    def written(self, batch: Sequence[Arrived], *, whole: bool) -> None:
        """Note that the messages of the last batch, or with ``whole`` false its first ones, are on stdout."""
        ...

    def finish(self) -> None:
        """End in order, after everything was written."""
        ...

    def close(self) -> None:
        """Release everything, also after an error."""
        ...
