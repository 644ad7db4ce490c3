"""Pops and notifications that wait for a message.

A pull waits for one queue. A pop waits for one queue or all queues of a topic, and for the retry topics of its group.
So a report of the dispatcher is looked up by topic: a topic, or the retry topic of a group, leads to the groups that
watch it. A message wakes one waiting request of each group, because another one would find nothing. The woken request
looks again, and wakes the next one if it leaves messages.

A message may arrive while a pop goes through the queues. So a pop notes the number of arrivals before it begins. If the
number is higher when the pop is about to wait, it looks again.

A request waits at most ``MAX_WAIT_MS`` from its first look on, however often it is woken. It keeps neither header nor
body, but the texts that it needs to look again, such as a filter's expression. popPollingSize limits the requests of
one queue of a group, maxPopPollingSize all of them, ``MAX_WAITING_BYTES`` their memory, popPollingMapSize the groups
that are watched. If too many wait in all, the oldest requests of the connection that holds most are answered with FULL.
RocketMQ answers every new request so: one client prevents all others from waiting.

Thread rule: the event loop's thread, except for :meth:`PopLongPolling.arrived`.

Source: PopLongPollingService.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count
from typing import NamedTuple, Protocol

from gantrymq.broker.pop.order_locks import OrderLocks
from gantrymq.broker.pop.records import retry_topic
from gantrymq.broker.sessions.long_polling import MAX_WAIT_MS, held_bytes
from gantrymq.broker.sessions.waiting_requests import ArrivalReports, Asker, WaitingByConnection
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.logs import get_logger
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.turns import FairTurns

EXPIRE_MS = 50
MAX_WAITING_BYTES = 96 << 20  # of pops, and of notifications
_EARLY_MS = 50  # a request is answered this long before its time is over (PopRequest.isTimeout)
ALL_QUEUES = -1

log = get_logger("gantrymq.broker")


class Polling(Enum):
    """The outcome of :meth:`PopLongPolling.wait`."""

    WAITS = auto()
    FULL = auto()
    TIMEOUT = auto()


class Watch(NamedTuple):
    """A group that waits for messages of a topic."""

    topic: str
    group: str


class PollKey(NamedTuple):
    """What a request waits for: a queue of a topic, or all of them (-1), for a group."""

    topic: str
    group: str
    queue_id: int

    @property
    def watch(self) -> Watch:
        """The topic and the group."""
        return Watch(self.topic, self.group)


@dataclass(slots=True, eq=False)
class WaitingPop:
    """A request that waits. ``resume`` looks again for messages and answers; ``give_up`` answers with FULL.

    ``deadline_ms`` is the end of :func:`wait_until`. ``size_bytes`` is the memory of the request.
    """

    channel: Asker
    key: PollKey
    deadline_ms: int
    resume: Callable[[], None]
    give_up: Callable[[], object]
    size_bytes: int


class OfPoll(Protocol):
    """The header of a request that may wait."""

    poll_time: int
    born_time: int
    exp_type: str | None
    exp: str | None
    attempt_id: str | None


def wait_until(header: OfPoll, clock: Clock) -> int:
    """The monotonic time in ms at which the wait of a request ends that has just come.

    A client whose clock is ahead stops waiting before its born time plus its poll time. Messages that a pop hands out
    after that are invisible in vain, so a born time in the future counts as now.
    """
    now_ms = clock.now_ms()
    header.born_time = min(header.born_time or now_ms, now_ms)
    return monotonic_ms(clock) + min(header.born_time + header.poll_time - now_ms, MAX_WAIT_MS)


def waiting_bytes(header: OfPoll, key: PollKey) -> int:
    """The approximate memory of a waiting request, in bytes."""
    return held_bytes((key.topic, key.group, header.exp_type, header.exp, header.attempt_id), None)


@dataclass(slots=True)
class _Watched:
    """The state of a group that watches a topic. ``arrivals`` counts reports of messages."""

    arrivals: int = 0
    waiting: int = 0
    names: tuple[str, ...] = field(default=())


class PopLongPolling:
    """Requests that wait. ``newest_first`` wakes the youngest request of a queue instead of the oldest."""

    def __init__(self, config: LiveConfig, clock: Clock, *, newest_first: bool = False) -> None:
        self._config, self._clock, self._newest_first = config, clock, newest_first
        self._waiting: dict[PollKey, dict[WaitingPop, None]] = {}
        self._by_connection: WaitingByConnection[WaitingPop] = WaitingByConnection()
        self._deadlines: list[tuple[int, int, WaitingPop]] = []
        self._numbers = count()
        self._watched: dict[Watch, _Watched] = {}
        self._by_name: dict[str, dict[Watch, None]] = {}
        self._reports: ArrivalReports[tuple[str, int], None] = ArrivalReports(self._note_arrivals)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns: FairTurns | None = None

    def __len__(self) -> int:
        """The number of requests that wait."""
        return len(self._by_connection)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to wake this event loop for arrivals."""
        self._loop, self._turns = loop, FairTurns()
        self._reports.start(loop)

    def stop(self) -> None:
        """Stop. Waiting requests get no answer, because their connections are about to close."""
        self._loop = None
        self._reports.stop()
        self._waiting.clear()
        self._by_connection.clear()
        self._deadlines.clear()

    # Requests

    def watch(self, topic: str, group: str) -> int:
        """Note arrivals for a group from now on. Returns their number so far, for :meth:`wait`."""
        key = Watch(topic, group)
        watched = self._watched.get(key)
        if watched is None:
            self._make_room()
            names = (topic, retry_topic(topic, group, is_v2=False), retry_topic(topic, group, is_v2=True))
            watched = self._watched[key] = _Watched(names=names)
            for name in names:
                self._by_name.setdefault(name, {})[key] = None
        return watched.arrivals

    def wait(self, request: WaitingPop, arrivals: int) -> Polling:
        """Let a request wait, unless its time is over or too many wait. ``arrivals`` is the number when the request
        began. If more have arrived since, the request looks again at once.
        """
        broker, now_ms = self._config.broker, monotonic_ms(self._clock)
        if now_ms > request.deadline_ms - _EARLY_MS or self._loop is None:
            return Polling.TIMEOUT
        same = self._waiting.get(request.key, {})
        if len(same) > broker.pop_polling_size:
            return Polling.FULL
        watched = self._watched.get(request.key.watch)
        if watched is None or watched.arrivals != arrivals:
            self._loop.call_soon(self._resume, request)
            return Polling.WAITS
        waiting = self._by_connection
        while (
            len(waiting) >= broker.max_pop_polling_size or waiting.size_bytes + request.size_bytes > MAX_WAITING_BYTES
        ):
            if not self._make_way(request):
                return Polling.FULL
        self._waiting.setdefault(request.key, {})[request] = None
        waiting.add(request)
        heapq.heappush(self._deadlines, (request.deadline_ms, next(self._numbers), request))
        watched.waiting += 1
        return Polling.WAITS

    def waiting_for(self, key: PollKey) -> int:
        """How many requests wait for a queue."""
        return len(self._waiting.get(key, ()))

    def forget(self, channel: Asker) -> None:
        """Drop the requests of a closed connection."""
        requests = self._by_connection.of(channel)
        if requests and self._turns is not None:
            self._turns.work_through(self._take_out(request) for request in requests)

    def notify(self, key: PollKey) -> bool:
        """Wake one request that waits for a queue. Returns whether one did."""
        waiting = self._waiting.get(key)
        while waiting:
            request = next(reversed(waiting)) if self._newest_first else next(iter(waiting))
            self._take_out(request)
            if not request.channel.is_closed:
                assert self._loop is not None, "requests wait while the loop runs"
                self._loop.call_soon(self._resume, request)
                return True
        return False

    def look(self, key: PollKey) -> None:
        """Wake one request for a queue that may have a message for it: one that waits for any queue or for this one,
        or one that is about to wait.
        """
        watched = self._watched.get(key.watch)
        if watched is not None:
            watched.arrivals += 1
        if not self.notify(key._replace(queue_id=ALL_QUEUES)):
            self.notify(key)

    def answer_all(self, topic: str) -> None:
        """Let every request for a topic that was deleted look again."""
        requests = [request for key, waiting in self._waiting.items() if key.topic == topic for request in waiting]
        if requests and self._turns is not None:
            self._turns.work_through(self._answer(requests))

    def expire(self) -> None:
        """Answer the requests whose time is over."""
        now_ms = monotonic_ms(self._clock)
        late = []
        while self._deadlines and self._deadlines[0][0] - _EARLY_MS < now_ms:
            late.append(heapq.heappop(self._deadlines)[2])
        if late and self._turns is not None:
            self._turns.work_through(self._answer(late))
        if len(self._deadlines) > 2 * len(self) + 1_000:  # entries of requests that were answered early
            self._deadlines = [entry for entry in self._deadlines if entry[2] in self._waiting.get(entry[2].key, ())]
            heapq.heapify(self._deadlines)

    # Arrivals

    def arrived(self, topic: str, queue_id: int) -> None:
        """Report that a queue has grown. Thread rule: any thread."""
        if topic not in self._by_name:
            return
        self._reports.add((topic, queue_id), None)

    def _note_arrivals(self, arrived: list[tuple[tuple[str, int], None]]) -> None:
        if self._turns is not None:
            self._turns.work_through(self._note([queue for queue, _ in arrived]))

    def _note(self, arrived: list[tuple[str, int]]) -> Iterator[None]:
        for name, queue_id in arrived:
            for watch in list(self._by_name.get(name, ())):
                watched = self._watched.get(watch)
                if watched is not None:
                    watched.arrivals += 1
                    if watched.waiting:
                        self.notify(PollKey(*watch, ALL_QUEUES))
                        # A retry topic has few queues, and a request that waits for any queue gets its messages too.
                        self.notify(PollKey(*watch, queue_id))
                yield

    def _answer(self, requests: list[WaitingPop]) -> Iterator[None]:
        for request in requests:
            if self._take_out(request):
                self._resume(request)
            yield

    def _resume(self, request: WaitingPop) -> None:
        if request.channel.is_closed:
            return
        try:
            request.resume()
        except Exception:  # continue: the other requests have left the table too, and must be answered
            log.exception("a pop that waited could not be answered", topic=request.key.topic)

    # Tables

    def _take_out(self, request: WaitingPop) -> bool:
        """Remove a request from the tables. Returns False if it is not in them."""
        waiting = self._waiting.get(request.key)
        if waiting is None or request not in waiting:
            return False
        del waiting[request]
        if not waiting:
            del self._waiting[request.key]
        self._by_connection.remove(request)
        watched = self._watched.get(request.key.watch)
        if watched is not None:
            watched.waiting -= 1
        return True

    def _make_way(self, request: WaitingPop) -> bool:
        """Answer the oldest requests of the connection that holds most. Returns False if that would be the asker's."""
        own_bytes = self._by_connection.size_bytes_of(request.channel)
        if own_bytes + request.size_bytes >= self._by_connection.largest_bytes or self._turns is None:
            return False
        oldest = self._by_connection.oldest_of_largest()
        for waiting in oldest:
            self._take_out(waiting)
        self._turns.work_through(waiting.give_up() for waiting in oldest if not waiting.channel.is_closed)
        return True

    def _make_room(self) -> None:
        """If more than popPollingMapSize groups are watched, forget the oldest ones without a waiting request."""
        if len(self._watched) < self._config.broker.pop_polling_map_size:
            return
        idle = [key for key, watched in self._watched.items() if not watched.waiting]
        for key in idle[: len(self._watched) // 8 + 1]:  # several, because looking for them is slow
            for name in self._watched.pop(key).names:
                watches = self._by_name.get(name, {})
                watches.pop(key, None)
                if not watches:
                    self._by_name.pop(name, None)


class PopWaiting:
    """Waiting pops and waiting notifications. They exist before the store, which reports arrivals to them.

    ``locks`` are the queues that ordered pops have blocked.
    """

    def __init__(self, config: LiveConfig, clock: Clock) -> None:
        self._clock = clock
        self.locks = OrderLocks()
        self.pops = PopLongPolling(config, clock)
        self.notifications = PopLongPolling(config, clock, newest_first=True)

    def arrived(self, topic: str, queue_id: int) -> None:
        """Report that a queue has grown. Thread rule: any thread."""
        self.pops.arrived(topic, queue_id)
        self.notifications.arrived(topic, queue_id)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to wake this event loop for arrivals."""
        self.pops.start(loop)
        self.notifications.start(loop)

    def stop(self) -> None:
        """Stop. Waiting requests get no answer."""
        self.pops.stop()
        self.notifications.stop()

    def forget(self, channel: Channel) -> None:
        """Drop the requests of a closed connection."""
        self.pops.forget(channel)
        self.notifications.forget(channel)

    def expire(self) -> None:
        """Answer the requests whose time is over, and wake one for each queue that is free again."""
        self.pops.expire()
        self.notifications.expire()
        for topic, group, queue_id in self.locks.freed(self._clock.now_ms()):
            self.look(topic, group, queue_id)

    def look(self, topic: str, group: str, queue_id: int) -> None:
        """Wake one pop and one notification for a queue that may have a message for them."""
        for polling in (self.pops, self.notifications):
            polling.look(PollKey(topic, group, queue_id))
