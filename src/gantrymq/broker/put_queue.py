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

from gantrymq.broker.store_stats import StoreStatsService
from gantrymq.broker.waiting_room import WaitingRoom
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.logs import get_logger
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.appendable import Appendable
from gantrymq.store.message_store import MessageStore
from gantrymq.store.put_result import PutMessageResult

log = get_logger("gantrymq.broker")

_GROUPS_AN_APPEND, _BYTES_AN_APPEND = 1024, 4 << 20  # between two appends the event loop does what else there is

OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
_CLEANED = "[%s_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: %dms, size of queue: %d"

# What became of it; or None, and why the broker is busy.
Done = Callable[[PutMessageResult | None, str | None], None]


class _Waiting:
    __slots__ = ("appendable", "came", "done", "requests", "result", "size_bytes")

    result: PutMessageResult  # once it has been appended

    def __init__(self, appendable: Appendable, done: Done, came: float, requests: int) -> None:
        self.appendable, self.done, self.came, self.requests = appendable, done, came, requests
        self.size_bytes = appendable.body_bytes


class PutQueue:
    """Takes messages for ``store``; ``done`` is called once for each put, never before :meth:`put` has returned."""

    def __init__(self, store: MessageStore, config: LiveConfig, stats: StoreStatsService) -> None:
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

    def put(self, appendable: Appendable, done: Done, *, requests: int = 1) -> bool:
        """Take what so many ``requests`` put; False where too many wait already, and ``done`` is not called."""
        waiting = _Waiting(appendable, done, self._loop.time(), requests)
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
                results = self._store.append([one.appendable for one in taken])
            except Exception:  # whatever it was: nobody waits for ever, and who comes next is served
                log.exception("messages could not be stored")
                for one in taken:
                    self._refuse(one, "ERROR", began)
                continue
            for one, result in zip(taken, results, strict=True):
                one.result = result
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
        _tell(one, None, _CLEANED % (why, int((now - one.came) * 1000), len(self._waiting)))

    def _acknowledge(self, taken: list[_Waiting]) -> None:
        if not self._store.flush_policy.waits_for_disk():
            self._tell(taken)
            return
        unflushed = [one for one in taken if one.result.is_stored and one.appendable.wait_store_msg_ok]
        left = set(map(id, unflushed))
        self._tell([one for one in taken if id(one) not in left])
        if unflushed:
            end = max(one.result.end_offset for one in unflushed)
            self._store.until_durable(end).add_done_callback(partial(self._flushed, unflushed))

    def _flushed(self, unflushed: Sequence[_Waiting], on_disk: asyncio.Future[PutMessageStatus]) -> None:
        status = on_disk.result() if on_disk.exception() is None else PutMessageStatus.UNKNOWN_ERROR
        for one in unflushed:
            one.result.status = status
        self._tell(unflushed)

    def _tell(self, finished: Sequence[_Waiting]) -> None:
        now, stored = self._loop.time(), self._stats.stored
        for one in finished:
            self._room.leave(one.requests, one.size_bytes)
            result = one.result
            if result.phy_offset < 0:
                self._stats.put_failed += one.requests
            else:
                stored(result.count, result.size_bytes, int((now - one.came) * 1000))
            _tell(one, result, None)


def _tell(one: _Waiting, result: PutMessageResult | None, busy: str | None) -> None:
    """Say what became of it; an answer that cannot be given is nobody else's harm."""
    try:
        one.done(result, busy)
    except Exception:
        log.exception("the answer to a send could not be given")
