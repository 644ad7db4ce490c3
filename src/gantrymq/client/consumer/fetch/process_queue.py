"""An assigned queue, and for push consumers its pulled and not yet consumed messages; no I/O.

Source: ProcessQueue.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import ProcessQueueInfo

LOCK_MAX_LIVE_MS = 30_000  # rocketmq.client.rebalance.lockMaxLiveTime
PULL_MAX_IDLE_MS = 120_000  # rocketmq.client.pull.pullMaxIdleTime
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """The most that may wait in one queue: messages, MiB of bodies, and the span of offsets (None: unlimited)."""

    messages: int
    size_mib: int
    span: int | None = None


class AssignedQueue(ABC):
    """The state of a queue, and what flow control counts of its messages.

    A queue with ``dropped`` set is no longer assigned: its messages are not passed on any more. An orderly
    listener call under way may still commit, until ``released`` is set: another member may have the queue, or its
    offset was set elsewhere. ``queue`` has the topic's full name. Times are those of ``monotonic_ms``.

    Thread rule: the event loop's thread; any thread may read ``dropped`` and ``paused``.
    """

    def __init__(self, queue: MessageQueue, now_ms: int) -> None:
        self.queue = queue
        self.dropped = self.released = False
        self.locked = False
        self.consuming = False  # whether an orderly task works on it
        self.in_listener = False  # whether a listener has messages of it now
        self.paused = False
        self.position: int | None = None  # the offset after the last message that a lite-pull consumer returned
        self.try_unlock_times = 0
        self.last_pull_ms = self.last_consume_ms = self.last_lock_ms = now_ms

    @abstractmethod
    def put(self, messages: list[ReceivedMessage], next_offset: int) -> None:
        """Add pulled messages. Offsets before ``next_offset`` that are missing did not match the filter."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of messages that are not consumed, including those in a listener."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """The size of their bodies in bytes."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[int, int] | None:
        """The lowest and the highest offset of the messages that wait."""

    @property
    def span(self) -> int:
        """The difference of the highest and the lowest offset."""
        bounds = self.bounds
        return 0 if bounds is None else bounds[1] - bounds[0]

    def is_full(self, limits: FlowLimits) -> bool:
        """Whether pulling must pause."""
        return (
            self.count > limits.messages
            or self.size_bytes // _MIB > limits.size_mib
            or (limits.span is not None and self.span > limits.span)
        )

    def is_lock_expired(self, now_ms: int) -> bool:
        """Whether the broker may have given the lock to another member."""
        return now_ms - self.last_lock_ms > LOCK_MAX_LIVE_MS

    def is_pull_expired(self, now_ms: int) -> bool:
        """Whether the last pull is so old that the pulling must have failed."""
        return now_ms - self.last_pull_ms > PULL_MAX_IDLE_MS

    def info(self, commit_offset: int, wall_ahead_ms: int) -> ProcessQueueInfo:
        """The queue's part of the answer to GET_CONSUMER_RUNNING_INFO.

        ``wall_ahead_ms`` is added to the monotonic times to make them dates.
        """
        low, high = self.bounds or (0, 0)
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=low,
            cached_msg_max_offset=high,
            cached_msg_count=self.count,
            cached_msg_size_in_mib=self.size_bytes // _MIB,
            locked=self.locked,
            try_unlock_times=self.try_unlock_times,
            last_lock_timestamp=self.last_lock_ms + wall_ahead_ms,
            droped=self.dropped,
            last_pull_timestamp=self.last_pull_ms + wall_ahead_ms,
            last_consume_timestamp=self.last_consume_ms + wall_ahead_ms,
        )


Q = TypeVar("Q", bound=AssignedQueue)


class ProcessQueue(AssignedQueue):
    """A queue of a push consumer: messages by offset, added in ascending order and removed in any order."""

    def __init__(self, queue: MessageQueue, now_ms: int) -> None:
        super().__init__(queue, now_ms)
        self._waiting: dict[int, ReceivedMessage] = {}
        self._in_progress: dict[int, ReceivedMessage] = {}
        self._size_bytes = 0
        self._next_offset = 0

    @property
    def count(self) -> int:
        """The number of messages that are not consumed, including those in a listener."""
        return len(self._waiting) + len(self._in_progress)

    @property
    def size_bytes(self) -> int:
        """The size of their bodies in bytes."""
        return self._size_bytes

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The lowest and the highest offset of the messages that wait."""
        return (next(iter(self._waiting)), next(reversed(self._waiting))) if self._waiting else None

    def put(self, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        """Add pulled messages. Offsets before ``next_offset`` that are missing did not match the filter."""
        by_offset = {message.queue_offset: message for message in messages}
        again = self._waiting.keys() & by_offset.keys()  # pulled twice, for example after a request that timed out
        self._size_bytes += _size_of(by_offset.values()) - _size_of(map(self._waiting.__getitem__, again))
        self._waiting |= by_offset
        self._next_offset = next_offset

    def contains(self, message: ReceivedMessage) -> bool:
        """Whether a message is still waiting."""
        return message.queue_offset in self._waiting

    def first(self) -> ReceivedMessage | None:
        """The message with the lowest offset."""
        return next(iter(self._waiting.values()), None)

    def remove(self, messages: Sequence[ReceivedMessage], now_ms: int) -> int:
        """Remove consumed messages. Returns the offset before which all is consumed, or -1 if the queue was empty."""
        self.last_consume_ms = now_ms
        if not self._waiting:
            return -1
        pop = self._waiting.pop
        removed = [pop(message.queue_offset, None) for message in messages]
        self._size_bytes -= _size_of(message for message in removed if message is not None)
        return next(iter(self._waiting), self._next_offset)

    def take(self, max_messages: int, now_ms: int) -> list[ReceivedMessage]:
        """The next messages in order. They count as not consumed until :meth:`commit`."""
        self.last_consume_ms = now_ms
        messages: list[ReceivedMessage] = []
        while self._waiting and len(messages) < max_messages:
            offset = next(iter(self._waiting))
            message = self._in_progress[offset] = self._waiting.pop(offset)
            messages.append(message)
        return messages

    def commit(self) -> int:
        """Mark the taken messages as consumed.

        Returns the offset before which all is consumed, or -1 if nothing was taken.
        """
        if not self._in_progress:
            return -1
        offset = next(iter(self._waiting), self._next_offset)
        self._size_bytes -= _size_of(self._in_progress.values())
        self._in_progress.clear()
        return offset

    def give_back(self, messages: Sequence[ReceivedMessage] | None = None) -> None:
        """Make the taken messages, or some of them, wait again."""
        again = list(self._in_progress.values()) if messages is None else messages
        for message in again:
            self._in_progress.pop(message.queue_offset, None)
            self._waiting[message.queue_offset] = message
        self._waiting = dict(sorted(self._waiting.items()))

    def clear(self) -> None:
        """Remove all messages."""
        self._waiting.clear()
        self._in_progress.clear()
        self._size_bytes = 0

    def info(self, commit_offset: int, wall_ahead_ms: int) -> ProcessQueueInfo:
        """The queue's part of the answer to GET_CONSUMER_RUNNING_INFO, with the messages of an orderly listener."""
        info, in_progress = super().info(commit_offset, wall_ahead_ms), self._in_progress
        info.cached_msg_count = len(self._waiting)
        info.transaction_msg_count = len(in_progress)
        info.transaction_msg_min_offset, info.transaction_msg_max_offset = (
            min(in_progress, default=0),
            max(in_progress, default=0),
        )
        return info


def _size_of(messages: Iterable[ReceivedMessage]) -> int:
    return sum([len(message.body) for message in messages])
