"""Sends messages with several requests under way, and accounts for each of them.

Single sends are bound by the cost of a request, so consecutive messages to one place share a request (RocketMQ's batch,
which is stored all or none). A message whose body the client compresses, or that is delayed, is sent alone, because a
batch holds neither.

A batch that a broker refuses is sent again message by message, so that one bad message fails alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from gantrymq.cli.advice import advised
from gantrymq.cli.streams.messages_in import InputMessage, QueueNumber, RejectedLine
from gantrymq.client.producer.producer import Producer
from gantrymq.client.requests.send_result import SendResult, SendStatus
from gantrymq.errors import GantrymqError, MQBrokerError, MQClientError, NoRouteError, SendFailedError
from gantrymq.model.message import PROPERTY_DELAY, TIMER_PROPERTIES, Message
from gantrymq.model.message_queue import MessageQueue

MAX_UNDER_WAY = 4096  # messages
_BATCH_BYTES = 1 << 20  # what RocketMQ recommends as the most
_ROOM_PER_MESSAGE = 256  # properties and lengths
_SENT_ALONE = frozenset((PROPERTY_DELAY, *TIMER_PROPERTIES))


class Fate(StrEnum):
    """The outcome of a send."""

    ACKNOWLEDGED = "acknowledged"
    REJECTED = "rejected"  # not sent: the message is invalid, or its queue does not exist
    REFUSED = "refused"  # by a broker
    UNKNOWN = "unknown"  # sent without an acknowledgement: it may be stored
    UNSENT = "unsent"  # because an earlier message failed


@dataclass(slots=True)
class SendAccount:
    """The number of messages by fate. ``not_ok`` counts acknowledgements with another status than SEND_OK."""

    fates: dict[Fate, int] = field(default_factory=lambda: dict.fromkeys(Fate, 0))
    not_ok: dict[SendStatus, int] = field(default_factory=dict)

    @property
    def acknowledged(self) -> int:
        """The number of acknowledged messages."""
        return self.fates[Fate.ACKNOWLEDGED]

    @property
    def failed(self) -> int:
        """The number of all others."""
        return sum(self.fates.values()) - self.acknowledged


class Outcome(NamedTuple):
    """The outcome of one request, or of one line that is not a message."""

    lines: Sequence[int]
    fate: Fate
    result: SendResult | None = None
    topic: str | None = None
    error: str = ""


class _UnderWay(NamedTuple):
    given: list[InputMessage]
    future: Future[SendResult]


class Sender:
    """Sends through ``producer``; ``report`` gets every outcome, in the order of the input.

    ``in_order`` waits for each acknowledgement. ``is_stopped`` is set after the first failure, unless ``continues``.
    Thread rule: one thread.
    """

    def __init__(
        self,
        producer: Producer,
        report: Callable[[Outcome], None],
        *,
        batch: int,
        compress_over: int,
        in_order: bool,
        continues: bool,
    ) -> None:
        self.account = SendAccount()
        self.is_stopped = False
        self._producer, self._report = producer, report
        self._batch, self._compress_over = batch, compress_over
        self._max_messages = 1 if in_order else MAX_UNDER_WAY
        self._continues = continues
        self._under_way: deque[_UnderWay] = deque()
        self._messages = 0
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}

    def send(self, lines: Sequence[InputMessage | RejectedLine]) -> int:
        """Send these messages, and return how many of the lines were used: fewer after a failure."""
        used = 0
        for part in self._parts(lines):
            self._await(self._max_messages - len(part))
            if self.is_stopped:
                break
            used += len(part)
            if isinstance(part[0], RejectedLine):
                self.drain()  # outcomes keep the order of the input
                self._end(Outcome([part[0].line], Fate.REJECTED, error=part[0].reason))
            else:
                self._begin([item for item in part if isinstance(item, InputMessage)])
        return used

    def drain(self) -> None:
        """Wait until nothing is under way."""
        self._await(0)

    def _await(self, max_messages: int) -> None:
        """Take the outcomes that are there, and wait for more until at most ``max_messages`` messages are under way."""
        while self._under_way and (self._messages > max(max_messages, 0) or self._under_way[0].future.done()):
            given, future = self._under_way.popleft()
            self._messages -= len(given)
            self._take(given, future)

    def _parts(self, lines: Sequence[InputMessage | RejectedLine]) -> Iterator[list[InputMessage | RejectedLine]]:
        """Divide the lines into requests."""
        part: list[InputMessage | RejectedLine] = []
        part_target: tuple[str, QueueNumber | None] | None = (
            None  # of the whole part; None if its message is sent alone
        )
        size_bytes = 0
        for line in lines:
            wanted = None if isinstance(line, RejectedLine) or self._is_alone(line.message) else _target_of(line)
            size = 0 if isinstance(line, RejectedLine) else _size_bytes(line.message)
            fits = len(part) < self._batch and size_bytes + size <= _BATCH_BYTES
            if part and (wanted is None or wanted != part_target or not fits):
                yield part
                part, size_bytes = [], 0
            part.append(line)
            part_target, size_bytes = wanted, size_bytes + size
        if part:
            yield part

    def _is_alone(self, message: Message) -> bool:
        is_delayed = message.delay_level > 0 or not _SENT_ALONE.isdisjoint(message.properties)
        return is_delayed or len(message.body) >= self._compress_over

    def _begin(self, given: list[InputMessage]) -> None:
        try:
            future = self._send(given)
        except GantrymqError as error:  # before anything left
            self.drain()
            if len(given) > 1:
                self._one_by_one(given)
            else:
                self._end(_outcome(given, Fate.REJECTED, error=str(error)))
        else:
            self._under_way.append(_UnderWay(given, future))
            self._messages += len(given)

    def _send(self, given: list[InputMessage]) -> Future[SendResult]:
        queue = self._queue(given[0].message.topic, given[0].queue)
        if len(given) == 1:
            return self._producer.send_async(given[0].message, queue)
        return self._producer.send_batch_async([line.message for line in given], queue)

    def _queue(self, topic: str, wanted: QueueNumber | None) -> MessageQueue | None:
        if wanted is None:
            return None
        if topic not in self._queues:
            self._queues[topic] = self._producer.queues(topic)
        queue_id, broker = wanted
        matching = [
            queue for queue in self._queues[topic] if queue.queue_id == queue_id and broker in (None, queue.broker_name)
        ]
        if len(matching) > 1:
            names = ", ".join(f"{queue.broker_name}:{queue_id}" for queue in matching)
            raise MQClientError(f"several brokers have queue {queue_id} of topic {topic}: {names}")
        if not matching:
            raise MQClientError(f"topic {topic} has no queue {queue_id}{f' at broker {broker}' if broker else ''}")
        return matching[0]

    def _refused(self, given: list[InputMessage], error: MQBrokerError) -> None:
        if len(given) > 1:
            self._one_by_one(given)
        else:
            self._end(_outcome(given, Fate.REFUSED, error=advised(error)))

    def _one_by_one(self, given: list[InputMessage]) -> None:
        """Send the messages of a batch that cannot be sent together."""
        for number, line in enumerate(given):
            if self.is_stopped:
                self._end(_outcome(given[number:], Fate.UNSENT))
                return
            try:
                future = self._send([line])
            except GantrymqError as error:
                self._end(_outcome([line], Fate.REJECTED, error=str(error)))
                continue
            self._take([line], future)

    def _take(self, given: list[InputMessage], future: Future[SendResult]) -> None:
        """Wait for one request, and report its outcome."""
        try:
            self._end(_outcome(given, Fate.ACKNOWLEDGED, result=future.result()))
        except MQBrokerError as error:
            self._refused(given, error)
        except NoRouteError as error:  # the route is asked for before anything leaves
            self._end(_outcome(given, Fate.REJECTED, error=advised(error)))
        except GantrymqError as error:
            is_refused = isinstance(error, SendFailedError) and error.is_refused
            self._end(_outcome(given, Fate.REFUSED if is_refused else Fate.UNKNOWN, error=advised(error)))

    def _end(self, outcome: Outcome) -> None:
        self.account.fates[outcome.fate] += len(outcome.lines)
        if outcome.result is not None and outcome.result.status is not SendStatus.SEND_OK:
            status = outcome.result.status
            self.account.not_ok[status] = self.account.not_ok.get(status, 0) + len(outcome.lines)
        self.is_stopped |= outcome.fate is not Fate.ACKNOWLEDGED and not self._continues
        self._report(outcome)


def _outcome(
    given: Sequence[InputMessage], fate: Fate, *, result: SendResult | None = None, error: str = ""
) -> Outcome:
    return Outcome([line.line for line in given], fate, result, given[0].message.topic, error)


def _target_of(given: InputMessage) -> tuple[str, QueueNumber | None]:
    return given.message.topic, given.queue


def _size_bytes(message: Message) -> int:
    """The approximate size of a message in a batch, in bytes."""
    size = len(message.body) + _ROOM_PER_MESSAGE
    for name, value in message.properties.items():
        size += len(name) + len(value)
    return size
