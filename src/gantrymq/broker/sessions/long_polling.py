"""Held pulls: they wait until a message arrives or their time is over.

The dispatcher reports every queue that grew, from its own thread. The event loop is woken once for all of them, and
only if a pull waits. A pull whose tags match no new message stays held. RocketMQ tests each message; here all units
since the last test are read together. Every 5 s all pulls are tested, in case a report was missed.

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
from dataclasses import dataclass
from itertools import chain, zip_longest

from gantrymq.broker.sessions.waiting_requests import ArrivalReports, Asker, WaitingByConnection
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.logs import get_logger
from gantrymq.remoting.transport.turns import FairTurns
from gantrymq.store.message_store import MessageStore

log = get_logger("gantrymq.broker")

CHECK_INTERVAL_MS = 5_000
MAX_WAIT_MS = 120_000
MAX_HELD_BYTES = 96 << 20
_CODE_BYTES = 64

_Queue = tuple[str, int]


@dataclass(slots=True, eq=False)
class HeldPull:
    """A held pull. ``resume`` answers it, ``offset`` is its next offset. ``tags_codes`` None matches every message.

    ``size_bytes`` is its memory. Units before ``looked_until`` did not match. ``is_ready`` of a pull with an SQL92
    filter says whether to answer because of the messages between two queue offsets.
    """

    channel: Asker
    offset: int
    tags_codes: Collection[int] | None
    deadline_ms: int
    resume: Callable[[], None]
    size_bytes: int
    looked_until: int = 0
    key: _Queue = ("", 0)
    is_ready: Callable[[int, int], bool] | None = None


class PullRequestHoldService:
    """The table of held pulls. Thread rule: the event loop's thread, except for :meth:`arrived`."""

    def __init__(self, store: Callable[[], MessageStore], clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._held: dict[_Queue, dict[HeldPull, None]] = {}
        self._by_connection: WaitingByConnection[HeldPull] = WaitingByConnection()
        self._reports: ArrivalReports[_Queue, int] = ArrivalReports(self._look_at_all)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns: FairTurns | None = None

    def __len__(self) -> int:
        """The number of held pulls."""
        return len(self._by_connection)

    @property
    def size_bytes(self) -> int:
        """The memory of all held pulls, in bytes."""
        return self._by_connection.size_bytes

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to wake this event loop for arrivals."""
        self._loop, self._turns = loop, FairTurns()
        self._reports.start(loop)

    def stop(self) -> None:
        """Stop. Held pulls get no answer, because their connections are about to close."""
        self._loop = None
        self._reports.stop()
        self._held.clear()
        self._by_connection.clear()

    def hold(self, topic: str, queue_id: int, pull: HeldPull, max_pulls: int) -> None:
        """Hold a pull, in addition to at most ``max_pulls`` others. If it has a message by now, it is answered at once.

        No pull is rejected: above ``max_pulls``, pulls of the connection that holds most are answered early.
        """
        pull.key = key = (topic, queue_id)
        self._held.setdefault(key, {})[pull] = None
        self._by_connection.add(pull)
        if len(self._by_connection) > max_pulls or self._by_connection.size_bytes > MAX_HELD_BYTES:
            self._answer_early()
        if self._loop is not None and pull in self._held.get(key, ()):
            # A message that arrived between the read of the queue and the entry above was not reported.
            end = self._store().max_offset_in_queue(topic, queue_id)
            if end > pull.offset:
                self._loop.call_soon(self._look, key, end)

    def forget(self, channel: Asker) -> None:
        """Drop the pulls of a closed connection."""
        self._work_through(self._by_connection.of(channel), self._take_out)

    def arrived(self, topic: str, queue_id: int, max_offset: int) -> None:
        """Report that a queue has grown up to ``max_offset``. Thread rule: any thread."""
        key = (topic, queue_id)
        if key in self._held:
            self._reports.add(key, max_offset)

    def answer_all(self, topic: str) -> None:
        """Answer every pull of a topic that was deleted."""
        self._work_through(
            [pull for key, pulls in self._held.items() if key[0] == topic for pull in pulls], self._answer
        )

    def expire(self) -> None:
        """Answer the pulls whose time is over."""
        now_ms = monotonic_ms(self._clock)
        late = [pull for pulls in self._held.values() for pull in pulls if now_ms >= pull.deadline_ms]
        self._work_through(late, self._answer)

    def check(self) -> None:
        """Test all pulls (checkHoldRequest): the pulls of a queue that grew are answered, whether they match or not."""
        ready: list[HeldPull] = []
        for key, pulls in self._held.items():
            end = self._store().max_offset_in_queue(*key)
            ready += [pull for pull in pulls if end > pull.offset]
        self._work_through(ready, self._answer)

    def _look_at_all(self, arrived: list[tuple[_Queue, int]]) -> None:
        for key, end in arrived:
            self._look(key, end)

    def _look(self, key: _Queue, end: int) -> None:
        lookup = self._store().lookup

        def look(pull: HeldPull) -> None:
            begin = max(pull.offset, pull.looked_until)
            if pull.is_ready is not None:
                is_ready = pull.is_ready(begin, end)
            else:
                is_ready = lookup.has_match(*key, begin, end, pull.tags_codes)
            if is_ready:
                self._answer(pull)
            else:
                pull.looked_until = max(end, pull.looked_until)

        self._work_through(list(self._held.get(key, ())), look)

    def _answer_early(self) -> None:
        """Answer the oldest pulls of the connection that holds most."""
        oldest = self._by_connection.oldest_of_largest()
        for pull in oldest:
            self._take_out(pull)
        self._work_through(oldest, self._resume)

    def _work_through(self, pulls: list[HeldPull], step: Callable[[HeldPull], object]) -> None:
        """Apply a step to each pull, round-robin over connections; in slices if there are many."""
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
        """Remove a pull from the tables. Returns False if it is not in them."""
        pulls = self._held.get(pull.key)
        if pulls is None or pull not in pulls:
            return False
        del pulls[pull]
        if not pulls:
            del self._held[pull.key]
        self._by_connection.remove(pull)
        return True

    @staticmethod
    def _resume(pull: HeldPull) -> None:
        if pull.channel.is_closed:
            return
        try:
            pull.resume()
        except Exception:  # the other pulls have left the table too, and must be answered
            log.exception("a held pull could not be answered", topic=pull.key[0], queue_id=pull.key[1])


def _in_turn(pulls: list[HeldPull]) -> Iterator[HeldPull]:
    """The pulls round-robin: one of each connection, then a second of each, and so on."""
    by_channel: dict[Asker, list[HeldPull]] = {}
    for pull in pulls:
        by_channel.setdefault(pull.channel, []).append(pull)
    rounds: Iterable[tuple[HeldPull | None, ...]] = zip_longest(*by_channel.values())
    return (pull for pull in chain.from_iterable(rounds) if pull is not None)


def held_bytes(texts: Iterable[str | None], tags_codes: Collection[int] | None) -> int:
    """The approximate memory of a held pull with its texts, in bytes."""
    return 1024 + 2 * sum(len(text) for text in texts if text) + _CODE_BYTES * len(tags_codes or ())
