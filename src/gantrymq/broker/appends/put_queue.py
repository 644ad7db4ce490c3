"""The queue of puts: all puts of one iteration of the event loop become one append under one lock.

A large put is first prepared in another thread, which validates it and prefaults the memory for its records. That takes
5 to 40 ms for the 14 MB of 150,000 messages of one byte. Messages of other senders are stored meanwhile. Later puts of
the same sender wait behind it, so that the puts of a sender are stored in their order.

With SYNC_FLUSH an answer waits for the disk, with SYNC_MASTER for slaves; one flush serves all puts of an iteration.
Requests beyond the admission limit (requests and bytes that wait) are rejected at once, so that memory does not grow
with the load.

Thread rule: the event loop's thread.

Source: SendMessageProcessor's thread pool and queue, BrokerFastFailure.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from gantrymq.broker.statistics import StoreStatsService
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.logs import get_logger
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.log.appendable import Appendable
from gantrymq.store.message_store import MessageStore
from gantrymq.store.put_result import PutMessageResult

MAX_WAITING_BYTES = 128 << 20
_GROUPS_AN_APPEND, _BYTES_AN_APPEND = 1024, 4 << 20  # between two appends the event loop serves other events
_LOOK_S = 0.001
# Larger bodies are prepared in another thread: checking one takes 0.1 ms, and its records may have 1 MB.
_LARGE_BYTES = 256 << 10
_CLEANED = "[%s_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: %dms, size of queue: %d"


class AdmissionLimit:
    """Limits waiting requests to sendThreadPoolQueueCapacity, and their bytes to MAX_WAITING_BYTES.

    Each successful :meth:`enter` is undone by :meth:`leave` with the same numbers.
    """

    def __init__(self, config: LiveConfig) -> None:
        self._config = config
        self.requests = self.size_bytes = 0

    def enter(self, requests: int, size_bytes: int) -> bool:
        """Reserve room. Returns False, and reserves nothing, if the limit is reached."""
        if (
            self.requests + requests > self._config.broker.send_thread_pool_queue_capacity
            or self.size_bytes + size_bytes > MAX_WAITING_BYTES
        ):
            return False
        self.requests += requests
        self.size_bytes += size_bytes
        return True

    def leave(self, requests: int, size_bytes: int) -> None:
        """Release room."""
        self.requests -= requests
        self.size_bytes -= size_bytes


log = get_logger("gantrymq.broker")

# Called with the result; or with None and the reason why the broker is busy.
Done = Callable[[PutMessageResult | None, str | None], None]


class _Waiting:
    __slots__ = ("appendable", "came", "done", "requests", "result", "sender", "size_bytes")

    result: PutMessageResult  # set after the append

    def __init__(self, appendable: Appendable, sender: Hashable, done: Done, came: float, requests: int) -> None:
        self.appendable, self.sender, self.done, self.came, self.requests = appendable, sender, done, came, requests
        self.size_bytes = appendable.body_bytes


class PutQueue:
    """Appends messages to ``store``. ``done`` is called once for each put, after :meth:`put` has returned."""

    def __init__(self, store: MessageStore, config: LiveConfig, stats: StoreStatsService) -> None:
        self._store, self._config, self._stats = store, config, stats
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._apart: deque[_Waiting] = deque()
        self._senders_apart: Counter[Hashable] = Counter()
        self._is_preparing = False  # whether the first put of _apart is being prepared
        self._room = AdmissionLimit(config)
        self._gathers: list[Callable[[], None]] = []

    def check(self, appendable: Appendable) -> PutMessageStatus:
        """Whether the store would take a put now: PUT_OK, or the reason why not."""
        return self._store.check(appendable) if self._store.is_writable else PutMessageStatus.SERVICE_NOT_AVAILABLE

    @property
    def is_idle(self) -> bool:
        """Whether no request waits."""
        return not self._room.requests

    def __len__(self) -> int:
        """The number of requests that wait for the append or for the disk."""
        return self._room.requests

    def has(self, topic: str) -> bool:
        """Whether messages to a topic wait for the append."""
        return any(put.appendable.topic == topic for queue in (self._waiting, self._apart) for put in queue)

    async def settled(self) -> None:
        """Returns once no put waits for the append that waits now."""
        last = [queue[-1] for queue in (self._waiting, self._apart) if queue]
        while any(put in queue for put in last for queue in (self._waiting, self._apart)):
            await asyncio.sleep(_LOOK_S)

    @property
    def head_wait_ms(self) -> int:
        """How long the first put has waited for the append, in milliseconds."""
        came = [queue[0].came for queue in (self._waiting, self._apart) if queue]
        return int((self._loop.time() - min(came)) * 1000) if came else 0

    def put(self, appendable: Appendable, sender: Hashable, done: Done, *, requests: int = 1) -> bool:
        """Queue a put of ``requests`` requests. Returns False if too many wait; then ``done`` is not called.

        The puts of one ``sender`` are stored in the order of their arrival.
        """
        waiting = _Waiting(appendable, sender, done, self._loop.time(), requests)
        if not self._room.enter(waiting.requests, waiting.size_bytes):
            return False
        if waiting.size_bytes >= _LARGE_BYTES or (self._apart and sender in self._senders_apart):
            self._wait_apart(waiting)
            return True
        if not self._waiting and not self._gathers:
            self._loop.call_soon(self._append)
        self._waiting.append(waiting)
        return True

    def before_append(self, gather: Callable[[], None]) -> None:
        """Call ``gather`` once, just before the next append. What it puts is appended then, too."""
        if not self._waiting and not self._gathers:
            self._loop.call_soon(self._append)
        self._gathers.append(gather)

    async def put_wait(self, appendable: Appendable, sender: Hashable) -> PutMessageResult | None:
        """Put, and return the result once it is there; None if the broker is busy."""
        stored: asyncio.Future[PutMessageResult | None] = self._loop.create_future()

        def done(result: PutMessageResult | None, busy: str | None) -> None:
            if not stored.done():  # the waiting task may have been cancelled
                stored.set_result(result)

        return await stored if self.put(appendable, sender, done) else None

    def _append(self) -> None:
        if self._gathers:
            self._gather()
        began = self._loop.time()
        while self._waiting:
            self._drop_late(self._waiting, began)
            if not (puts := self._take()):
                return
            if self._put_all(puts) and self._waiting:
                self._loop.call_soon(self._append)
                return

    def _gather(self) -> None:
        for gather in self._gathers:  # their puts find this append under way
            try:
                gather()
            except Exception:
                log.exception("puts could not be gathered")
        self._gathers.clear()

    def _put_all(self, puts: list[_Waiting], checked: asyncio.Future[PutMessageStatus] | None = None) -> bool:
        """Append puts, or the one that was ``checked``, and acknowledge them. Returns False if the append failed."""
        began = self._loop.time()
        try:
            if checked is None:
                results = self._store.append([put.appendable for put in puts])
            else:
                results = self._store.append_checked([(puts[0].appendable, checked.result())])
        except Exception:  # whatever the error is, the senders are answered and the next puts are served
            log.exception("messages could not be stored")
            for put in puts:
                self._refuse(put, "ERROR", began)
            return False
        for put, result in zip(puts, results, strict=True):
            put.result = result
        self._acknowledge(puts)
        if (self._loop.time() - began) * 1000 > self._config.broker.os_page_cache_busy_timeout_ms:
            self._refuse_all("PCBUSY")
        return True

    def _take(self) -> list[_Waiting]:
        """Remove and return the puts of the next append: at least one, within the limits."""
        puts: list[_Waiting] = []
        size_bytes = 0
        while self._waiting and len(puts) < _GROUPS_AN_APPEND:
            size_bytes += self._waiting[0].size_bytes
            if puts and size_bytes > _BYTES_AN_APPEND:
                break
            puts.append(self._waiting.popleft())
        return puts

    # Large puts

    def _wait_apart(self, waiting: _Waiting) -> None:
        self._apart.append(waiting)
        self._senders_apart[waiting.sender] += 1
        if not self._is_preparing:
            self._prepare()

    def _prepare(self) -> None:
        """Check the first large put in another thread, which prefaults memory too, then append it."""
        self._is_preparing = bool(self._apart)
        if not self._apart:
            return
        first = self._apart[0]
        if first.size_bytes >= _LARGE_BYTES:
            checked = self._loop.run_in_executor(None, self._store.check_ahead, first.appendable)
            checked.add_done_callback(partial(self._append_apart, first))
        else:
            self._loop.call_soon(self._append_apart, first)

    def _append_apart(self, first: _Waiting, checked: asyncio.Future[PutMessageStatus] | None = None) -> None:
        if any(put.sender == first.sender for put in self._waiting):  # earlier puts of the same sender
            self._loop.call_soon(self._append_apart, first, checked)
            return
        self._drop_late(self._apart, self._loop.time())
        if self._apart and self._apart[0] is first:
            self._put_all([self._leave(self._apart)], checked)
        self._prepare()

    # Rejections

    def _leave(self, queue: deque[_Waiting]) -> _Waiting:
        """Remove and return the first put of a queue."""
        put = queue.popleft()
        if queue is self._apart:
            self._senders_apart[put.sender] -= 1
            if not self._senders_apart[put.sender]:
                del self._senders_apart[put.sender]
        return put

    def _drop_late(self, queue: deque[_Waiting], now: float) -> None:
        broker = self._config.broker
        if not broker.broker_fast_failure_enable:
            return
        while queue and (now - queue[0].came) * 1000 >= broker.wait_time_in_send_queue_ms:
            self._refuse(self._leave(queue), "TIMEOUT", now)

    def _refuse_all(self, why: str) -> None:
        now = self._loop.time()
        for queue in (self._waiting, self._apart):
            while queue:
                self._refuse(self._leave(queue), why, now)

    def _refuse(self, put: _Waiting, why: str, now: float) -> None:
        self._room.leave(put.requests, put.size_bytes)
        size = len(self._waiting) + len(self._apart)
        _call_done(put, None, _CLEANED % (why, int((now - put.came) * 1000), size))

    def _acknowledge(self, puts: list[_Waiting]) -> None:
        if not self._store.is_awaited():
            self._complete(puts)
            return
        unflushed = [put for put in puts if put.result.is_stored and put.appendable.wait_store_msg_ok]
        left = set(map(id, unflushed))
        self._complete([put for put in puts if id(put) not in left])
        if unflushed:
            end = max(put.result.end_offset for put in unflushed)
            self._store.until_safe(end).add_done_callback(partial(self._flushed, unflushed))

    def _flushed(self, unflushed: Sequence[_Waiting], on_disk: asyncio.Future[PutMessageStatus]) -> None:
        status = on_disk.result() if on_disk.exception() is None else PutMessageStatus.UNKNOWN_ERROR
        for put in unflushed:
            put.result.status = status
        self._complete(unflushed)

    def _complete(self, finished: Sequence[_Waiting]) -> None:
        now, stored = self._loop.time(), self._stats.stored
        for put in finished:
            self._room.leave(put.requests, put.size_bytes)
            result = put.result
            if result.phy_offset < 0:
                self._stats.put_failed += put.requests
            else:
                stored(result.count, result.size_bytes, int((now - put.came) * 1000))
            _call_done(put, result, None)


def _call_done(put: _Waiting, result: PutMessageResult | None, busy: str | None) -> None:
    """Call ``done``. An error of one answer must not affect the others."""
    try:
        put.done(result, busy)
    except Exception:
        log.exception("the answer to a send could not be sent")
