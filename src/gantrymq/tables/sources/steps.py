"""The plan of a landing: what each commit reads, and the positions after it.

A source divides what is new into steps. A step becomes one commit. Its parts can be pickled and read on any machine
that reaches the source (:meth:`StepPart.records`); their rows are the same at each reading. The positions after a step
are known before it is read, so an engine writes rows and positions in one commit without counting.

Thread rule: values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gantrymq.kernels.arrays import Int64s
from gantrymq.tables.state import LogPosition, QueuePosition, TableState
from gantrymq.tools.arrow import LogBatch
from gantrymq.tools.queue_key import QueueKey


class AuditFinding(NamedTuple):
    """One row of the account: the messages ``from_offset`` to ``to_offset`` (inclusive) of a queue, or a part of a log.

    ``topic`` is None if the damaged part names no queue. Numbers that are unknown are -1. ``is_missing`` says that the
    messages are gone, ``is_fault`` that the finding is a reason for exit code 1. ``is_passed``: the position of the
    queue passes the messages. It does not pass those that a crash cut off, whose offsets are given out again.
    """

    broker: str
    topic: str | None
    queue_id: int
    from_offset: int
    to_offset: int
    phy_offset: int
    phy_end: int
    reason: str
    is_missing: bool = True
    is_fault: bool = True
    is_passed: bool = True

    @property
    def messages(self) -> int:
        """The number of messages that are gone."""
        return self.to_offset - self.from_offset + 1 if self.is_missing and self.topic is not None else 0


class Lag(NamedTuple):
    """What a source had after a step when it was planned: messages, bytes of log, and the seconds between them."""

    messages: int = 0
    size_bytes: int = 0
    seconds: float = 0.0


class Records(NamedTuple):
    """Records of one broker, valid until the next ones are read.

    ``generations`` (int64) has for each number in ``batch.queues`` the generation of the queue, and ``findings`` what
    the reading of them showed.
    """

    broker: str
    batch: LogBatch
    generations: Int64s
    findings: Sequence[AuditFinding] = ()


class StepPart(Protocol):
    """A part of a step, from one broker."""

    def records(self) -> Iterator[Records]:
        """Read the records, in the order of the log or queue by queue. Raises StoreError, RemotingError."""
        ...

    def divided(self) -> Sequence[StepPart]:
        """The same records as parts that are worth a task of their own, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """What one commit lands.

    ``queues`` and ``logs`` are the positions after it, of what changed. ``findings`` are known before the reading.
    """

    parts: tuple[StepPart, ...]
    queues: Mapping[QueueKey, QueuePosition]
    logs: Mapping[str, LogPosition]
    findings: tuple[AuditFinding, ...] = ()
    lag: Lag = Lag()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is worth a commit."""
        return not (self.parts or self.findings)


class MessageSource(Protocol):
    """Stores or a cluster."""

    def topics(self) -> list[str]:
        """The topics that the choice lands, sorted."""
        ...

    def steps(self, state: TableState, commit_rows: int) -> Iterator[Step]:
        """What is new after ``state``, in steps of at most ``commit_rows`` rows.

        Raises NotAStoreError, StoreError, ConfigError, RemotingError.
        """
        ...

    def lag(self, state: TableState) -> Lag:
        """What is new after ``state``, without a plan."""
        ...
