"""What a lite-pull consumer has fetched and not yet returned: whole pulls, which a poll takes.

The obvious way lets the event loop's thread take them, as it does everything else. A poll of the blocking consumer then
costs two switches of threads, more than its messages. Here the caller's own thread takes a pull that is there.

Source: DefaultLitePullConsumerImpl (consumeRequestCache, poll), AssignedMessageQueue.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from gantrymq.client.consumer.fetch.process_queue import AssignedQueue
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.runtime.background import wait_or_timeout
from gantrymq.model.message_queue import MessageQueue


@dataclass(slots=True, eq=False)
class FetchedPull:
    """The messages of one pull, at least one. ``before`` is the position of the queue before they were taken."""

    queue: FetchedQueue
    messages: list[ReceivedMessage]
    next_offset: int
    count: int
    size_bytes: int
    is_taken: bool = False
    before: int | None = None


class FetchedQueue(AssignedQueue):
    """A queue of a lite-pull consumer. Its pulls are taken in their order.

    Of each counter one thread at a time writes: the event loop's what was put, a poll what it took.
    """

    def __init__(self, queue: MessageQueue, now_ms: int) -> None:
        super().__init__(queue, now_ms)
        self.pulls: deque[FetchedPull] = deque()
        self.is_queued = False  # whether FetchedMessages will look at it
        self.taken_count = self.taken_bytes = 0
        self._put_count = self._put_bytes = 0

    @property
    def count(self) -> int:
        """The number of messages that no poll has returned."""
        return self._put_count - self.taken_count

    @property
    def size_bytes(self) -> int:
        """The size of their bodies in bytes."""
        return self._put_bytes - self.taken_bytes

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Their lowest and highest offset."""
        pulls = self.pulls.copy()  # a poll may take one meanwhile
        return (pulls[0].messages[0].queue_offset, pulls[-1].messages[-1].queue_offset) if pulls else None

    def put(self, messages: list[ReceivedMessage], next_offset: int) -> None:
        """Add a pull. Offsets before ``next_offset`` that are missing did not match the filter."""
        count, size_bytes = len(messages), sum([len(message.body) for message in messages])
        self._put_count += count
        self._put_bytes += size_bytes
        self.pulls.append(FetchedPull(self, messages, next_offset, count, size_bytes))


class FetchedMessages:
    """The queues that have pulls. They take turns.

    Thread rule: any thread for :meth:`take` and :meth:`give_back`, the event loop's for the rest.
    """

    def __init__(self) -> None:
        self._queues: deque[FetchedQueue] = deque()
        self._lock = threading.RLock()  # reentrant, because a signal handler may poll during a poll
        self._arrived = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None  # where polls wait

    def add(self, queue: FetchedQueue) -> None:
        """Look at a queue to which a pull was added, or which was resumed, and wake the waiting polls."""
        with self._lock:
            if queue.pulls and not queue.is_queued:
                queue.is_queued = True
                self._queues.append(queue)
        self._arrived.set()

    async def wait(self, timeout_s: float) -> None:
        """Wait until there may be a pull, or ``timeout_s`` is over."""
        self._loop = asyncio.get_running_loop()
        await wait_or_timeout(self._arrived, timeout_s)

    def take(self, pulls: list[FetchedPull], now_ms: int) -> bool:
        """Move the next pull of a queue that is assigned and not paused to ``pulls``. Returns False if there is none.

        The position of its queue moves to the offset after the pull.

        The caller has the pull before its queue loses it: a signal handler's exception, which Python raises only at a
        call or a jump, finds it either not taken or in ``pulls``, for :meth:`give_back`.
        """
        with self._lock:
            while self._queues:
                queue = self._queues[0]
                if queue.dropped or queue.paused or not queue.pulls:
                    queue.is_queued = False
                    del self._queues[0]
                    continue
                pull = queue.pulls[0]
                pulls.append(pull)
                if pull.is_taken:  # by a signal handler, just now
                    del pulls[-1]
                    continue
                pull.before, queue.position = queue.position, pull.next_offset
                queue.taken_count += pull.count
                queue.taken_bytes += pull.size_bytes
                queue.last_consume_ms = now_ms
                del queue.pulls[0]
                pull.is_taken = True
                self._queues.rotate(-1)
                return True
        return False

    def give_back(self, pulls: list[FetchedPull]) -> None:
        """Undo :meth:`take`: the pull comes next, and the position of its queue moves back."""
        with self._lock:
            for pull in pulls:
                if not pull.is_taken:
                    continue
                queue = pull.queue
                queue.position, pull.is_taken = pull.before, False
                queue.taken_count -= pull.count
                queue.taken_bytes -= pull.size_bytes
                queue.pulls.appendleft(pull)
                if queue.is_queued:
                    self._queues.remove(queue)
                queue.is_queued = True
                self._queues.appendleft(queue)
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed, and no poll waits
                self._loop.call_soon_threadsafe(self._arrived.set)
