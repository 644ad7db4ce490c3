"""Pulls that found nothing wait here until something arrives, or until their time is over.

The dispatcher tells of every queue that grew, from its own thread; the event loop is woken once for all of them, and
only where somebody waits. A pull whose tags match nothing new goes on waiting: so far as RocketMQ, which looks at each
message, but here the units since the last look are read in one go. Every 5 s all are looked at, whatever was told.

A held pull keeps neither header nor body, and is held for at most ``MAX_WAIT_MS``. When all held pulls exceed
``MAX_HELD_BYTES`` or the configured number, the oldest pulls of the connection that holds most are answered early.
Pulls that become ready together are answered in slices, round-robin over connections, so that the thousands of one
connection do not delay the single pull of another.

Source: PullRequestHoldService, NotifyMessageArrivingListener.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Protocol

from gantrymq.clock import Clock, monotonic_ms
from gantrymq.logs import get_logger
from gantrymq.remoting.transport.turns import FairTurns
from gantrymq.store.message_store import MessageStore

log = get_logger("gantrymq.broker")

CHECK_INTERVAL_MS = 5_000
MAX_WAIT_MS = 120_000
MAX_HELD_BYTES = 96 << 20
_ANSWERED_EARLY = 8  # of a connection that holds too much, one pull in this many
_CODE_BYTES = 64

_Queue = tuple[str, int]


class Asker(Protocol):
    """A connection that pulls come by."""

    is_closed: bool


@dataclass(slots=True, eq=False)
class HeldPull:
    """A pull that waits. ``resume`` answers it; ``offset`` is where it wants to go on; None as codes means any.

    ``size_bytes`` is what it keeps in memory. Up to ``looked_until`` nothing matched.
    """

    channel: Asker
    offset: int
    tags_codes: Collection[int] | None
    deadline_ms: int
    resume: Callable[[], None]
    size_bytes: int
    looked_until: int = 0
    key: _Queue = ("", 0)


@dataclass(slots=True)
class _Holder:
    """What one connection holds, the oldest first."""

    pulls: dict[HeldPull, None] = field(default_factory=dict)
    size_bytes: int = 0


class PullRequestHoldService:
    """The table of those who wait. Thread rule: the event loop's thread, but for :meth:`arrived`."""

    def __init__(self, store: Callable[[], MessageStore], clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._held: dict[_Queue, dict[HeldPull, None]] = {}
        self._holders: dict[Asker, _Holder] = {}
        self._count = self.size_bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns: FairTurns | None = None
        self._arrived: dict[_Queue, int] = {}
        self._is_woken = False

    def __len__(self) -> int:
        """How many wait."""
        return self._count

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """From here on arrivals wake this event loop."""
        self._loop, self._turns = loop, FairTurns()

    def stop(self) -> None:
        """Nobody is woken any more; who waits gets no answer, for the connection is about to close."""
        self._loop = None
        self._held.clear()
        self._holders.clear()
        self._count = self.size_bytes = 0

    def hold(self, topic: str, queue_id: int, pull: HeldPull, most: int) -> None:
        """Hold a pull, beside at most ``most`` others; one that has a message by now is answered in the next turn.

        No pull is refused: beyond ``most``, pulls of the connection that holds most are answered early.
        """
        pull.key = key = (topic, queue_id)
        self._held.setdefault(key, {})[pull] = None
        holder = self._holders.setdefault(pull.channel, _Holder())
        holder.pulls[pull] = None
        holder.size_bytes += pull.size_bytes
        self._count += 1
        self.size_bytes += pull.size_bytes
        if self._count > most or self.size_bytes > MAX_HELD_BYTES:
            self._answer_early()
        if self._loop is not None and pull in holder.pulls:
            # What arrived between the look into the queue and the entry above told nobody.
            end = self._store().max_offset_in_queue(topic, queue_id)
            if end > pull.offset:
                self._loop.call_soon(self._look, key, end)

    def forget(self, channel: Asker) -> None:
        """Drop the pulls of a closed connection."""
        holder = self._holders.get(channel)
        if holder is not None:
            self._work_through(list(holder.pulls), self._take_out)

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

    def answer_all(self, topic: str) -> None:
        """Answer every pull that waits at a topic, which was deleted."""
        self._work_through(
            [pull for key, pulls in self._held.items() if key[0] == topic for pull in pulls], self._answer
        )

    def expire(self) -> None:
        """Answer those whose time is over."""
        now_ms = monotonic_ms(self._clock)
        late = [pull for pulls in self._held.values() for pull in pulls if now_ms >= pull.deadline_ms]
        self._work_through(late, self._answer)

    def check(self) -> None:
        """Look at everybody (checkHoldRequest): a queue that grew has its pulls answered, matching or not."""
        ready: list[HeldPull] = []
        for key, pulls in self._held.items():
            end = self._store().max_offset_in_queue(*key)
            ready += [pull for pull in pulls if end > pull.offset]
        self._work_through(ready, self._answer)

    def _wake(self) -> None:
        self._is_woken = False
        while self._arrived:
            key, end = self._arrived.popitem()
            self._look(key, end)

    def _look(self, key: _Queue, end: int) -> None:
        lookup = self._store().lookup

        def look(pull: HeldPull) -> None:
            if lookup.has_match(*key, max(pull.offset, pull.looked_until), end, pull.tags_codes):
                self._answer(pull)
            else:
                pull.looked_until = max(end, pull.looked_until)

        self._work_through(list(self._held.get(key, ())), look)

    def _answer_early(self) -> None:
        """Make room: the oldest pulls of the connection that holds most."""
        holder = max(self._holders.values(), key=lambda one: one.size_bytes)
        oldest = list(holder.pulls)[: max(len(holder.pulls) // _ANSWERED_EARLY, 1)]
        for pull in oldest:
            self._take_out(pull)
        self._work_through(oldest, self._resume)

    def _work_through(self, pulls: list[HeldPull], step: Callable[[HeldPull], object]) -> None:
        """Take a step with each pull, one of each connection in turn; in slices where there are many."""
        if not pulls:
            return
        steps = (step(pull) for pull in _in_turn(pulls))
        if self._turns is None:
            deque(steps, 0)
        else:
            self._turns.work_through(steps)

    def _answer(self, pull: HeldPull) -> None:
        if self._take_out(pull):
            self._resume(pull)

    def _take_out(self, pull: HeldPull) -> bool:
        """Take a pull out of the tables; False where it is in none any more."""
        pulls = self._held.get(pull.key)
        if pulls is None or pull not in pulls:
            return False
        del pulls[pull]
        if not pulls:
            del self._held[pull.key]
        holder = self._holders[pull.channel]
        del holder.pulls[pull]
        holder.size_bytes -= pull.size_bytes
        if not holder.pulls:
            del self._holders[pull.channel]
        self._count -= 1
        self.size_bytes -= pull.size_bytes
        return True

    @staticmethod
    def _resume(pull: HeldPull) -> None:
        if pull.channel.is_closed:
            return
        try:
            pull.resume()
        except Exception:  # the others have left the table, too, and would never be answered
            log.exception("a pull that waited could not be answered", topic=pull.key[0], queue_id=pull.key[1])


def _in_turn(pulls: list[HeldPull]) -> Iterator[HeldPull]:
    """One pull of each connection, then a second of each, and so on."""
    by_channel: dict[Asker, list[HeldPull]] = {}
    for pull in pulls:
        by_channel.setdefault(pull.channel, []).append(pull)
    rounds: Iterable[tuple[HeldPull | None, ...]] = zip_longest(*by_channel.values())
    return (pull for pull in chain.from_iterable(rounds) if pull is not None)


def held_bytes(texts: Iterable[str | None], tags_codes: Collection[int] | None) -> int:
    """About what a pull takes while it waits, with its texts."""
    return 1024 + 2 * sum(len(text) for text in texts if text) + _CODE_BYTES * len(tags_codes or ())
