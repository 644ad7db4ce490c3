"""What the slaves of a master have acknowledged, and the puts that wait for it.

==================  ===============================================================================================
setting             a put of a SYNC_MASTER
==================  ===============================================================================================
inSyncReplicas      waits until as many copies, the master's included, have its record; 1 and 0 wait for no slave
slaveTimeout        the longest wait; then the status is FLUSH_SLAVE_TIMEOUT, and the message stays stored
WAIT=false          never waits
``is_strict``       is refused with IN_SYNC_REPLICAS_NOT_ENOUGH if fewer copies are in sync than it would wait for
==================  ===============================================================================================

A slave is in sync if it is less than haMaxGapNotInSync behind. ``is_strict`` is RocketMQ's enableSlaveActingMaster;
only then enableAutoInSyncReplicas lets a put wait for the copies that are in sync, but for minInSyncReplicas of them.

The obvious way, one thread that waits for the first request before it looks at the next one, lets a message that no
slave gets delay all messages behind it. Here requests wait in a heap by their end, and a report of a slave completes
all that it covers.

Source: CommitLog.handleHA, calcNeedAckNums; GroupTransferService, DefaultHAService.inSyncReplicasNums.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from gantrymq.clock import Clock, SystemClock
from gantrymq.config.replication_settings import BrokerRole
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.model.java import LONG_MAX
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.flush_requests import FlushRequest


class SlowestSlave(NamedTuple):
    """The slave that has the least of the log: its address, and the first offset that it still needs."""

    address: str
    offset: int


def _nothing() -> None:
    """No slave waits for the log to grow."""


class _Entry(NamedTuple):
    end_offset: int
    number: int
    deadline_s: float
    request: FlushRequest


class SlaveAcks:
    """The acknowledgements of slaves. The store's settings replace ``config``.

    ``log_end`` is the end of the log. ``grown`` is called when it has grown. ``slowest_slave`` returns the connected
    slave that retention waits for. ``alive_replicas`` is the number of brokers in the group, as far as it is known.

    Thread rule: any thread; ``update`` is called by one thread.
    """

    def __init__(self, config: MessageStoreConfig, *, is_strict: bool = False, clock: Clock | None = None) -> None:
        self.config, self._clock = config, clock or SystemClock()
        self.grown: Callable[[], None] = _nothing
        self.log_end: Callable[[], int] = lambda: 0
        self.slowest_slave: Callable[[], SlowestSlave | None] = lambda: None
        self.alive_replicas = config.total_replicas
        self._is_strict = is_strict
        self._votes: tuple[int, ...] = ()  # the acknowledged offset of each slave, largest first
        self._waiting: dict[int, list[_Entry]] = {}  # a heap for each number of copies
        self._numbers = count()
        self._guard = threading.Lock()

    @property
    def waits(self) -> bool:
        """Whether an acknowledgement waits for slaves."""
        config = self.config
        copies = max(config.in_sync_replicas, config.min_in_sync_replicas if self._is_automatic else 0)
        return config.broker_role is BrokerRole.SYNC_MASTER and not config.duplication_enable and copies > 1

    @property
    def timeout_s(self) -> float:
        """The seconds of slaveTimeout."""
        return self.config.slave_timeout_ms / 1000

    def in_sync_copies(self, log_end: int) -> int:
        """The number of copies that are in sync with a log that ends at ``log_end``, the master's included."""
        gap = self.config.ha_max_gap_not_in_sync_bytes
        return 1 + sum(log_end - offset < gap for offset in self._votes)

    def refuses(self) -> bool:
        """Whether a put that waits is refused because too few copies are in sync."""
        if not self._is_strict or self.config.broker_role is not BrokerRole.SYNC_MASTER:
            return False
        in_sync = self._in_sync_of_group(self.log_end())
        return self._needed_copies(in_sync) > in_sync

    def put_request(self, end_offset: int) -> FlushRequest:
        """Request that enough slaves have everything up to ``end_offset``, which is written."""
        request = FlushRequest(end_offset, PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
        copies, now_s = self._needed_copies(self._in_sync_of_group(end_offset)), self._clock.monotonic_s()
        with self._guard:
            is_done = self._acknowledged_by(copies) >= end_offset
            heap = self._waiting.setdefault(copies, [])
            late = [
                entry
                for other in self._waiting.values()
                for entry in _pop_while(other, lambda entry: entry.deadline_s <= now_s)
            ]
            if not is_done:
                heapq.heappush(heap, _Entry(end_offset, next(self._numbers), now_s + self.timeout_s, request))
        if is_done:
            request.finish(PutMessageStatus.PUT_OK)
        for entry in late:  # its time is over, so no caller waits for it any more
            entry.request.finish(PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
        return request

    def update(self, offsets: Sequence[int]) -> None:
        """Note what each slave has acknowledged: one offset for each distinct slave. Completes what they cover."""
        covered: list[_Entry] = []
        with self._guard:
            self._votes = tuple(sorted(offsets, reverse=True))
            for copies, heap in self._waiting.items():
                end = self._acknowledged_by(copies)
                covered += _pop_while(heap, lambda entry, end=end: entry.end_offset <= end)  # type: ignore[misc]
        for entry in covered:
            entry.request.finish(PutMessageStatus.PUT_OK)

    @property
    def _is_automatic(self) -> bool:
        return self._is_strict and self.config.enable_auto_in_sync_replicas

    def _in_sync_of_group(self, log_end: int) -> int:
        return min(self.alive_replicas, self.in_sync_copies(log_end))

    def _needed_copies(self, in_sync: int) -> int:
        config = self.config
        if self._is_automatic:
            return max(min(config.in_sync_replicas, in_sync), config.min_in_sync_replicas)
        return config.in_sync_replicas

    def _acknowledged_by(self, copies: int) -> int:
        """The end of what as many copies have, the master's included."""
        if copies <= 1:
            return LONG_MAX
        return self._votes[copies - 2] if copies <= len(self._votes) + 1 else -1


def _pop_while(heap: list[_Entry], is_done: Callable[[_Entry], bool]) -> list[_Entry]:
    popped = []
    while heap and is_done(heap[0]):
        popped.append(heapq.heappop(heap))
    return popped
