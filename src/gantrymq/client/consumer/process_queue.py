"""The messages of one queue that were pulled and are not consumed yet; no I/O.

Source: ProcessQueue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gantrymq.client.consumer.received import ReceivedMessage
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import ProcessQueueInfo

LOCK_MAX_LIVE_MS = 30_000  # rocketmq.client.rebalance.lockMaxLiveTime
PULL_MAX_IDLE_MS = 120_000  # rocketmq.client.pull.pullMaxIdleTime
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """How much of a queue may wait: messages, MiB of bodies, and the span of offsets (None: any)."""

    messages: int
    size_mib: int
    span: int | None = None


class ProcessQueue:
    """Messages by their offsets, pulled in ascending order and removed in any.

    A queue that was ``dropped`` is no longer ours: nothing more of it is consumed, and in order only what a listener is
    at is still committed, until the queue is ``released``: for others, or because its offset was set elsewhere.
    ``queue`` has the topic's full name. Every time is one of ``monotonic_ms``.
    Thread rule: the event loop's thread; ``dropped`` may be read by any.
    """

    def __init__(self, queue: MessageQueue, now_ms: int) -> None:
        self.queue = queue
        self.dropped = self.released = False
        self.locked = False
        self.consuming = False  # whether somebody takes its messages in order
        self.in_listener = False  # whether a listener has messages of it right now
        self.paused = False
        self.position: int | None = None  # up to where a lite-pull consumer was given all
        self.try_unlock_times = 0
        self.last_pull_ms = self.last_consume_ms = self.last_lock_ms = now_ms
        self._waiting: dict[int, ReceivedMessage] = {}
        self._taken: dict[int, ReceivedMessage] = {}
        self._size_bytes = 0
        self._next_offset = 0

    @property
    def count(self) -> int:
        """Messages that are not consumed, those in a listener's hands among them."""
        return len(self._waiting) + len(self._taken)

    @property
    def size_bytes(self) -> int:
        """The sum of their bodies."""
        return self._size_bytes

    @property
    def span(self) -> int:
        """How far the first and the last offset lie apart."""
        return next(reversed(self._waiting)) - next(iter(self._waiting)) if self._waiting else 0

    def is_full(self, limits: FlowLimits) -> bool:
        """Whether pulling must wait."""
        return (
            self.count > limits.messages
            or self._size_bytes // _MIB > limits.size_mib
            or (limits.span is not None and self.span > limits.span)
        )

    def is_lock_expired(self, now_ms: int) -> bool:
        """Whether the broker may have given the lock to another."""
        return now_ms - self.last_lock_ms > LOCK_MAX_LIVE_MS

    def is_pull_expired(self, now_ms: int) -> bool:
        """Whether nobody has pulled for so long that something must be wrong."""
        return now_ms - self.last_pull_ms > PULL_MAX_IDLE_MS

    def put(self, messages: Iterable[ReceivedMessage], next_offset: int) -> None:
        """Add what was pulled; what is missing before ``next_offset`` is not wanted."""
        for message in messages:
            if message.queue_offset not in self._waiting:
                self._size_bytes += len(message.body)
            self._waiting[message.queue_offset] = message
        self._next_offset = next_offset

    def contains(self, message: ReceivedMessage) -> bool:
        """Whether a message is still there."""
        return message.queue_offset in self._waiting

    def first(self) -> ReceivedMessage | None:
        """The message with the lowest offset."""
        return next(iter(self._waiting.values()), None)

    def remove(self, messages: Sequence[ReceivedMessage], now_ms: int) -> int:
        """Take consumed messages out; the offset up to which all is consumed, or -1 where the queue was empty."""
        self.last_consume_ms = now_ms
        if not self._waiting:
            return -1
        for message in messages:
            removed = self._waiting.pop(message.queue_offset, None)
            if removed is not None:
                self._size_bytes -= len(removed.body)
        return next(iter(self._waiting), self._next_offset)

    def put_back(self, messages: Iterable[ReceivedMessage]) -> None:
        """What was removed is not consumed after all."""
        self.put(messages, self._next_offset)
        self._waiting = dict(sorted(self._waiting.items()))

    def take(self, most: int, now_ms: int) -> list[ReceivedMessage]:
        """The next messages in order; they count as waiting until :meth:`commit`."""
        self.last_consume_ms = now_ms
        taken: list[ReceivedMessage] = []
        while self._waiting and len(taken) < most:
            offset = next(iter(self._waiting))
            message = self._taken[offset] = self._waiting.pop(offset)
            taken.append(message)
        return taken

    def commit(self) -> int:
        """What was taken is consumed; the offset up to which all is, or -1 where nothing was taken."""
        if not self._taken:
            return -1
        offset = next(iter(self._waiting), self._next_offset)
        self._size_bytes -= sum(len(message.body) for message in self._taken.values())
        self._taken.clear()
        return offset

    def give_back(self, messages: Sequence[ReceivedMessage] | None = None) -> None:
        """What was taken, or some of it, is to be consumed again."""
        again = list(self._taken.values()) if messages is None else messages
        for message in again:
            self._taken.pop(message.queue_offset, None)
            self._waiting[message.queue_offset] = message
        self._waiting = dict(sorted(self._waiting.items()))

    def clear(self) -> None:
        """Forget all messages."""
        self._waiting.clear()
        self._taken.clear()
        self._size_bytes = 0

    def info(self, commit_offset: int, wall_ahead_ms: int) -> ProcessQueueInfo:
        """What GET_CONSUMER_RUNNING_INFO tells; its times are dates, ``wall_ahead_ms`` later than ours."""
        waiting, taken = sorted(self._waiting), sorted(self._taken)
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=waiting[0] if waiting else 0,
            cached_msg_max_offset=waiting[-1] if waiting else 0,
            cached_msg_count=len(waiting),
            cached_msg_size_in_mib=self._size_bytes // _MIB,
            transaction_msg_min_offset=taken[0] if taken else 0,
            transaction_msg_max_offset=taken[-1] if taken else 0,
            transaction_msg_count=len(taken),
            locked=self.locked,
            try_unlock_times=self.try_unlock_times,
            last_lock_timestamp=self.last_lock_ms + wall_ahead_ms,
            droped=self.dropped,
            last_pull_timestamp=self.last_pull_ms + wall_ahead_ms,
            last_consume_timestamp=self.last_consume_ms + wall_ahead_ms,
        )
