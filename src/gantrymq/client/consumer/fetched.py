"""What a lite-pull consumer fetched ahead, until somebody polls.

Source: DefaultLitePullConsumerImpl (consumeRequestCache, poll).
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from gantrymq.client.consumer.member import wait_or_timeout
from gantrymq.client.consumer.process_queue import ProcessQueue
from gantrymq.client.consumer.received import ReceivedMessage


@dataclass(slots=True)
class Batch:
    """The messages of one pull; ``before`` is the position its queue had when they were given out."""

    queue: ProcessQueue
    messages: list[ReceivedMessage]
    before: int | None = None


class FetchedMessages:
    """Batches in the order they came. Thread rule: the event loop's thread."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self._arrived = asyncio.Event()

    def add(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """A pull brought these."""
        self._batches.append(Batch(queue, messages))
        self._arrived.set()

    def wake(self) -> None:
        """There may be something to take now: a queue goes on."""
        self._arrived.set()

    async def wait(self, timeout_s: float) -> None:
        """Until something came, or the time is over."""
        await wait_or_timeout(self._arrived, timeout_s)

    def take(self, now_ms: int) -> Batch | None:
        """The next batch of a queue that is ours and not paused; its queue's position is behind it then."""
        self._batches = deque(one for one in self._batches if not one.queue.dropped)
        batch = next((one for one in self._batches if not one.queue.paused), None)
        if batch is None:
            return None
        self._batches.remove(batch)
        batch.before = batch.queue.position
        batch.queue.position = batch.queue.remove(batch.messages, now_ms)
        if self._batches:
            self._arrived.set()
        return batch

    def give_back(self, batch: Batch) -> None:
        """Nobody got it after all: it comes next, and does not count as given out."""
        batch.queue.put_back(batch.messages)
        batch.queue.position = batch.before
        self._batches.appendleft(batch)
        self._arrived.set()
