"""A live cluster as the source of a landing. Its queues are read with the pull client, without a consumer group.

A broker gives no access to its log, so a queue is recognized by its offsets alone: one that ends before the position
was recreated, and one that begins after it has lost messages to retention.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gantrymq.client.pull.pull_client import PullClient
from gantrymq.client.requests.calls import PullStatus
from gantrymq.client.requests.records import decode_records
from gantrymq.client.settings import ClientConfig
from gantrymq.errors import MQBrokerError, NoRouteError, RemotingError
from gantrymq.kernels.arrays import new_columns
from gantrymq.model.message_queue import MessageQueue
from gantrymq.tables.selection import TopicChoice
from gantrymq.tables.sources.pulled import BATCH_RECORDS, PulledSlice
from gantrymq.tables.sources.steps import AuditFinding, Lag, Records, Step, StepPart
from gantrymq.tables.state import QueuePosition, TableState
from gantrymq.tools.arrow import LogBatch, texts_array
from gantrymq.tools.queue_key import QueueKey, QueueSlice

ATTEMPTS = 10  # about 30 s of retries, so that a broker may restart meanwhile
TASK_MESSAGES = 50_000
_EXPIRED = "deleted by retention before it was landed"


class PullSlice(NamedTuple):
    """The messages of a queue from offset ``low`` to before ``high``."""

    key: QueueKey
    low: int
    high: int
    generation: int


@dataclass(frozen=True, slots=True)
class PullPart:
    """Slices of queues of one broker, to read in order."""

    config: ClientConfig
    broker: str
    slices: tuple[PullSlice, ...]

    def divided(self) -> list[PullPart]:
        """Parts of TASK_MESSAGES messages or fewer."""
        return [replace(self, slices=tuple(group)) for group in _divided(self.slices, TASK_MESSAGES)]

    def records(self) -> Iterator[Records]:
        """Read the messages, queue by queue. Raises RemotingError, NoRouteError, MQBrokerError with the queue."""
        columns = new_columns(BATCH_RECORDS)
        with PullClient(self.config, attempts=ATTEMPTS) as client:
            for wanted in self.slices:
                try:
                    yield from self._slice(client, wanted, columns)
                except (RemotingError, NoRouteError, MQBrokerError) as error:
                    error.args = (f"{error}, while reading {wanted.key}, offsets {wanted.low} to {wanted.high - 1}",)
                    raise

    def _slice(self, client: PullClient, wanted: PullSlice, columns: np.ndarray) -> Iterator[Records]:
        losses = _Losses(wanted)
        queue = QueueSlice(queue_of(wanted.key), wanted.key.topic, wanted.low, wanted.high)
        reading = PulledSlice(client, queue, columns, losses)
        generations = np.array([wanted.generation], np.int64)
        for batch in reading.batches():
            if batch.count:
                yield Records(self.broker, batch, generations, losses.collected())
        if left := losses.collected():
            yield Records(self.broker, _empty(wanted.key), generations, left)


class _Losses:
    """Collects what a slice lacks as findings."""

    def __init__(self, wanted: PullSlice) -> None:
        self._wanted = wanted
        self._findings: list[AuditFinding] = []

    def lost(self, low: int, high: int) -> None:
        """Note missing messages."""
        self._add(low, high - 1, "deleted on the broker while it was landed")

    def unreadable(self, after_phy_offset: int) -> None:
        """Note the damage; the offsets behind it are reported as lost."""
        self._findings.append(
            AuditFinding(self._wanted.key.broker, None, -1, -1, -1, after_phy_offset, -1, "the broker sent no record")
        )

    def wrong_crc(self, queue_offset: int) -> None:
        """Note the message."""
        self._add(queue_offset, queue_offset, "crc")

    def _add(self, low: int, high: int, reason: str) -> None:
        key = self._wanted.key
        self._findings.append(AuditFinding(key.broker, key.topic, key.queue_id, low, high, -1, -1, reason))

    def collected(self) -> tuple[AuditFinding, ...]:
        """What was noted since the last call."""
        collected, self._findings = tuple(self._findings), []
        return collected


def _empty(key: QueueKey) -> LogBatch:
    columns = new_columns(0)
    nothing = np.zeros(0, np.uint8)
    return LogBatch(str(key), 0, nothing, columns, 0, np.zeros(0, np.int64), texts_array([key.topic]))


class ClusterTopics:
    """The topics of a cluster for one pass: they are not asked for again for each table."""

    def __init__(self) -> None:
        self._names: Sequence[str] | None = None

    def forget(self) -> None:
        """Let the names be asked for again."""
        self._names = None

    def names(self, client: PullClient) -> Sequence[str]:
        """All topics. Raises RemotingError."""
        if self._names is None:
            self._names = client.topics()
        return self._names


class ClusterMessages:
    """The cluster of a name server; implements :class:`gantrymq.tables.sources.steps.MessageSource`."""

    def __init__(self, config: ClientConfig, choice: TopicChoice, topics: ClusterTopics | None = None) -> None:
        """``topics`` are those of the pass, if several tables share them."""
        self._config, self._choice, self._topics = config, choice, topics

    def topics(self) -> list[str]:
        """The topics that the choice lands, sorted."""
        with PullClient(self._config) as client:
            return sorted(filter(self._choice.chooses, self._names(client)))

    def _names(self, client: PullClient) -> Sequence[str]:
        return (self._topics or ClusterTopics()).names(client)

    def steps(self, state: TableState, commit_rows: int) -> Iterator[Step]:
        """What is new in the queues. Raises RemotingError, NoRouteError, MQBrokerError."""
        with PullClient(self._config, attempts=ATTEMPTS) as client:
            queues = self._queues(client, state)
            findings, slices, positions = _planned(queues)
            waiting = [piece for piece in slices if piece.low < piece.high]
            left = sum(piece.high - piece.low for piece in waiting)
            for group in _divided(waiting, commit_rows):
                left -= sum(piece.high - piece.low for piece in group)
                after = {piece.key: QueuePosition(piece.high, piece.generation) for piece in group}
                lag = self._lag(client, group, left)
                yield Step(self._parts(group), {**positions, **after}, {}, findings, lag)
                findings, positions = (), {}
            if findings:
                yield Step((), positions, {}, findings)

    def _parts(self, slices: Sequence[PullSlice]) -> tuple[StepPart, ...]:
        by_broker: dict[str, list[PullSlice]] = {}
        for piece in slices:
            by_broker.setdefault(piece.key.broker, []).append(piece)
        return tuple(PullPart(self._config, broker, tuple(some)) for broker, some in sorted(by_broker.items()))

    def _lag(self, client: PullClient, group: Sequence[PullSlice], left: int) -> Lag:
        """What is left. Bytes and seconds of a cluster are estimated by the messages at the ends of the slices."""
        if not left or not group:
            return Lag(left)
        last = group[-1]
        at_end = _message(client, last.key, last.high - 1)
        newest = _message(client, last.key, max(client.max_offset(queue_of(last.key)) - 1, 0))
        size = at_end[0] if at_end is not None else 0
        seconds = (newest[1] - at_end[1]) / 1000 if newest is not None and at_end is not None else 0.0
        return Lag(left, left * size, max(seconds, 0.0))

    def lag(self, state: TableState) -> Lag:
        """What is new in the queues now."""
        with PullClient(self._config) as client:
            _, slices, _ = _planned(self._queues(client, state))
            waiting = [piece for piece in slices if piece.low < piece.high]
            messages = sum(piece.high - piece.low for piece in waiting)
            if not waiting:
                return Lag()
            size_bytes, seconds = 0, 0.0
            for piece in waiting:
                first, last = _message(client, piece.key, piece.low), _message(client, piece.key, piece.high - 1)
                if first is not None and last is not None:
                    size_bytes += first[0] * (piece.high - piece.low)
                    seconds = max(seconds, (last[1] - first[1]) / 1000)
            return Lag(messages, size_bytes, seconds)

    def _queues(self, client: PullClient, state: TableState) -> list[_Queue]:
        queues = []
        choice = self._choice
        for topic in sorted(choice.topics if choice.is_named else filter(choice.reads, self._names(client))):
            with suppress(NoRouteError):  # it was deleted, or does not exist yet
                for queue in client.queues(topic):
                    key = QueueKey(queue.broker_name, topic, queue.queue_id)
                    low, high = max(client.min_offset(queue), 0), max(client.max_offset(queue), 0)
                    queues.append(_Queue(key, min(low, high), high, state.queues.get(key)))
        return queues


class _Queue(NamedTuple):
    key: QueueKey
    low: int
    high: int
    position: QueuePosition | None


def _planned(
    queues: Sequence[_Queue],
) -> tuple[tuple[AuditFinding, ...], list[PullSlice], dict[QueueKey, QueuePosition]]:
    """The findings before the reading, the slices to read, and positions that pass what is gone."""
    findings: list[AuditFinding] = []
    slices: list[PullSlice] = []
    positions: dict[QueueKey, QueuePosition] = {}
    for key, low, high, position in queues:
        if position is None:
            slices.append(PullSlice(key, low, high, 0))
        elif position.next_offset > high:
            generation = position.generation + 1
            reason = f"the queue was recreated after offset {position.next_offset - 1}: generation {generation} begins"
            if low < high:
                where = low, low, -1, -1
                findings.append(AuditFinding(*key, *where, reason, is_missing=False, is_fault=False))
                slices.append(PullSlice(key, low, high, generation))
        elif position.next_offset < low:
            findings.append(AuditFinding(*key, position.next_offset, low - 1, -1, -1, _EXPIRED))
            positions[key] = QueuePosition(low, position.generation)
            slices.append(PullSlice(key, low, high, position.generation))
        else:
            slices.append(PullSlice(key, position.next_offset, high, position.generation))
    return tuple(findings), slices, positions


def _divided(slices: Sequence[PullSlice], rows: int) -> Iterator[list[PullSlice]]:
    """The slices in groups of at most ``rows`` messages."""
    group: list[PullSlice] = []
    room = rows
    for piece in slices:
        low = piece.low
        while low < piece.high:
            high = min(piece.high, low + room)
            group.append(piece._replace(low=low, high=high))
            room -= high - low
            low = high
            if room == 0:
                yield group
                group, room = [], rows
    if group:
        yield group


def queue_of(key: QueueKey) -> MessageQueue:
    """The queue of a key, for the client."""
    return MessageQueue(key.topic, key.broker, key.queue_id)


def _message(client: PullClient, key: QueueKey, offset: int) -> tuple[int, int] | None:
    """The size in bytes and the store timestamp in ms of a message; None if it is gone."""
    pulled = client.pull(queue_of(key), offset, 1)
    if pulled.status is not PullStatus.FOUND:
        return None
    message = next(decode_records(pulled.records, decompressed=False))
    return message.size_bytes, message.store_timestamp_ms
