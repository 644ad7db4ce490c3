"""Pulls that found nothing wait here until something arrives, or until their time is over.

The dispatcher tells of every queue that grew, from its own thread; the event loop is woken once for all of them, and
only where somebody waits. A pull whose tags match nothing new goes on waiting: so far as RocketMQ, which looks at each
message, but here the units since the last look are read in one go. Every 5 s all are looked at, whatever was told.

Source: PullRequestHoldService, NotifyMessageArrivingListener.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from gantrymq.broker.message_store import BrokerMessageStore
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.logs import get_logger

log = get_logger("gantrymq.broker")

CHECK_INTERVAL_MS = 5_000

_Queue = tuple[str, int]


@dataclass(slots=True)
class HeldPull:
    """A pull that waits. ``resume`` answers it; ``offset`` is where it wants to go on; None as codes means any.

    Up to ``looked_until`` nothing matched.
    """

    offset: int
    tags_codes: Collection[int] | None
    deadline_ms: int
    resume: Callable[[], None]
    is_gone: Callable[[], bool]
    looked_until: int = 0


class PullRequestHoldService:
    """The table of those who wait. Thread rule: the event loop's thread, but for :meth:`arrived`."""

    def __init__(self, store: Callable[[], BrokerMessageStore], clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._held: dict[_Queue, list[HeldPull]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._arrived: dict[_Queue, int] = {}
        self._is_woken = False

    def __len__(self) -> int:
        """How many wait."""
        return sum(map(len, self._held.values()))

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """From here on arrivals wake this event loop."""
        self._loop = loop

    def stop(self) -> None:
        """Nobody is woken any more; who waits gets no answer, for the connection is about to close."""
        self._loop = None
        self._held.clear()

    def hold(self, topic: str, queue_id: int, pull: HeldPull) -> None:
        """Let a pull wait; one that has something already by now is answered with the next turn."""
        key = (topic, queue_id)
        self._held.setdefault(key, []).append(pull)
        if self._loop is not None:
            # What arrived between the look into the queue and the entry above told nobody.
            end = self._store().max_offset_in_queue(topic, queue_id)
            if end > pull.offset:
                self._loop.call_soon(self._look, key, end)

    def arrived(self, topic: str, queue_id: int, max_offset: int) -> None:
        """Any thread: a queue has grown up to ``max_offset``."""
        key = (topic, queue_id)
        if key not in self._held:
            return
        self._arrived[key] = max_offset
        loop = self._loop
        if not self._is_woken and loop is not None:
            self._is_woken = True
            try:
                loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # the loop has closed
                return

    def expire(self) -> None:
        """Answer those whose time is over."""
        now_ms = monotonic_ms(self._clock)
        for key, pulls in list(self._held.items()):
            self._answer(key, [pull for pull in pulls if now_ms >= pull.deadline_ms or pull.is_gone()])

    def check(self) -> None:
        """Look at everybody (checkHoldRequest): a queue that grew has its pulls answered, matching or not."""
        for key, pulls in list(self._held.items()):
            end = self._store().max_offset_in_queue(*key)
            self._answer(key, [pull for pull in pulls if end > pull.offset])

    def _wake(self) -> None:
        self._is_woken = False
        while self._arrived:
            key, end = self._arrived.popitem()
            self._look(key, end)

    def _look(self, key: _Queue, end: int) -> None:
        store, ready = self._store(), []
        for pull in self._held.get(key, ()):
            if store.has_match(*key, max(pull.offset, pull.looked_until), end, pull.tags_codes):
                ready.append(pull)
            else:
                pull.looked_until = end
        self._answer(key, ready)

    def _answer(self, key: _Queue, ready: list[HeldPull]) -> None:
        if not ready:
            return
        chosen = set(map(id, ready))
        left = [pull for pull in self._held.get(key, ()) if id(pull) not in chosen]
        if left:
            self._held[key] = left
        else:
            self._held.pop(key, None)
        for pull in ready:
            if pull.is_gone():
                continue
            try:
                pull.resume()
            except Exception:  # the others have left the table, too, and would never be answered
                log.exception("a pull that waited could not be answered", topic=key[0], queue_id=key[1])
