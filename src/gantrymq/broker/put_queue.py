"""Messages on their way into the store: all of one turn of the event loop become one append under one lock.

With SYNC_FLUSH whoever waits is told when the disk has it; one flush serves all of a turn. What is more than the
broker can take is refused at once: memory does not grow with the load.

Thread rule: the event loop's thread.

Source: SendMessageProcessor's thread pool and queue, BrokerFastFailure.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from gantrymq.broker.message_store import BrokerMessageStore
from gantrymq.broker.store_stats import StoreStatsService
from gantrymq.broker.waiting_room import WaitingRoom
from gantrymq.broker.wire_batch import WireRecords, bytes_in, messages_in
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.logs import get_logger
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.append import PutMessageResult

log = get_logger("gantrymq.broker")

_GROUPS_AN_APPEND, _BYTES_AN_APPEND = 1024, 4 << 20  # between two appends the event loop does what else there is

OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
_CLEANED = "[%s_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: %dms, size of queue: %d"

# What became of a group: its results; or none of them, and why the broker is busy.
Done = Callable[[list[PutMessageResult], str | None], None]


# Messages that are stored together.
Group = Sequence[Message] | WireRecords


class _Waiting:
    __slots__ = ("came", "done", "group", "requests", "results", "size_bytes")

    def __init__(self, group: Group, done: Done, came: float) -> None:
        self.group, self.done, self.came = group, done, came
        self.requests = group.requests if isinstance(group, WireRecords) else 1
        self.size_bytes = len(group.body) if isinstance(group, WireRecords) else sum(len(one.body) for one in group)
        self.results: list[PutMessageResult] = []

    @property
    def waits_for_flush(self) -> bool:
        group = self.group
        return group.wait_store_msg_ok if isinstance(group, WireRecords) else group[0].wait_store_msg_ok


class PutQueue:
    """Takes messages for ``store``; ``done`` is called once for each group, never before :meth:`put` has returned."""

    def __init__(self, store: BrokerMessageStore, config: LiveConfig, stats: StoreStatsService) -> None:
        self._store, self._config, self._stats = store, config, stats
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._room = WaitingRoom(config)

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits."""
        return not self._room.requests

    def __len__(self) -> int:
        """How many requests wait, for the append or for the disk."""
        return self._room.requests

    @property
    def head_wait_ms(self) -> int:
        """How long the first has waited for the append."""
        return int((self._loop.time() - self._waiting[0].came) * 1000) if self._waiting else 0

    def put(self, group: Group, done: Done) -> bool:
        """Take messages that are stored together; False where too many wait already, and ``done`` is not called."""
        waiting = _Waiting(group, done, self._loop.time())
        if not self._room.enter(waiting.requests, waiting.size_bytes):
            return False
        if not self._waiting:
            self._loop.call_soon(self._append)
        self._waiting.append(waiting)
        return True

    def _append(self) -> None:
        began = self._loop.time()
        while self._waiting:
            self._drop_late(began)
            if not (taken := self._take()):
                return
            try:
                outcomes = self._store.append([one.group for one in taken])
            except Exception:  # whatever it was: nobody waits for ever, and who comes next is served
                log.exception("messages could not be stored")
                for one in taken:
                    self._refuse(one, "ERROR", began)
                continue
            for one, outcome in zip(taken, outcomes, strict=True):
                one.results = outcome
            self._acknowledge(taken)
            if (self._loop.time() - began) * 1000 > self._config.broker.os_page_cache_busy_timeout_ms:
                self._refuse_all("PCBUSY")
            if self._waiting:
                self._loop.call_soon(self._append)
                return

    def _take(self) -> list[_Waiting]:
        """Those that are stored next, the first in any case."""
        taken: list[_Waiting] = []
        size_bytes = 0
        while self._waiting and len(taken) < _GROUPS_AN_APPEND:
            size_bytes += self._waiting[0].size_bytes
            if taken and size_bytes > _BYTES_AN_APPEND:
                break
            taken.append(self._waiting.popleft())
        return taken

    def _drop_late(self, now: float) -> None:
        broker = self._config.broker
        if not broker.broker_fast_failure_enable:
            return
        while self._waiting and (now - self._waiting[0].came) * 1000 >= broker.wait_time_in_send_queue_ms:
            self._refuse(self._waiting.popleft(), "TIMEOUT", now)

    def _refuse_all(self, why: str) -> None:
        now = self._loop.time()
        while self._waiting:
            self._refuse(self._waiting.popleft(), why, now)

    def _refuse(self, one: _Waiting, why: str, now: float) -> None:
        self._room.leave(one.requests, one.size_bytes)
        _tell(one, [], _CLEANED % (why, int((now - one.came) * 1000), len(self._waiting)))

    def _acknowledge(self, taken: list[_Waiting]) -> None:
        if not self._store.flush_policy.waits_for_disk():
            self._tell(taken)
            return
        unflushed = [one for one in taken if one.results[0].is_stored and one.waits_for_flush]
        left = set(map(id, unflushed))
        self._tell([one for one in taken if id(one) not in left])
        if unflushed:
            end = max(one.results[-1].end_offset for one in unflushed)
            self._store.on_disk(end).add_done_callback(partial(self._flushed, unflushed))

    def _flushed(self, unflushed: Sequence[_Waiting], on_disk: asyncio.Future[PutMessageStatus]) -> None:
        status = on_disk.result() if on_disk.exception() is None else PutMessageStatus.UNKNOWN_ERROR
        for one in unflushed:
            for result in one.results:
                result.status = status
        self._tell(unflushed)

    def _tell(self, finished: Sequence[_Waiting]) -> None:
        now, stored = self._loop.time(), self._stats.stored
        for one in finished:
            self._room.leave(one.requests, one.size_bytes)
            results = one.results
            if results[0].phy_offset < 0:
                self._stats.put_failed += one.requests
            else:
                stored(messages_in(results), bytes_in(results), int((now - one.came) * 1000))
            _tell(one, results, None)


def _tell(one: _Waiting, results: list[PutMessageResult], busy: str | None) -> None:
    """Say what became of it; an answer that cannot be given is nobody else's harm."""
    try:
        one.done(results, busy)
    except Exception:
        log.exception("the answer to a send could not be given")
