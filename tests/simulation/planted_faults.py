"""Faults that are planted on purpose: what each does to the code, and which promises may name it.

A fault is a patch of one place. It is one that a developer could make, or that RocketMQ has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from unittest import mock

from gantrymq.format.record import CheckCRC
from gantrymq.ha import copy as log_copy
from gantrymq.ha import log_cut
from gantrymq.ha.divergence import DivergenceSearch
from gantrymq.ha.held_tail import HeldTail
from gantrymq.ha.server import HAServer
from gantrymq.ha.slave import LogSlave
from gantrymq.ha.slave_connection import SlaveConnection
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.durability import Durability
from gantrymq.store.flush_requests import FlushRequest
from gantrymq.store.log.mapped_file_queue import MappedFileQueue
from gantrymq.store.log.record_batch import RecordScan, check_code
from gantrymq.store.message_store import MessageStore
from gantrymq.store.retention import CleanCommitLogService
from gantrymq.store.slave_acks import SlaveAcks


class PlantedFault(NamedTuple):
    """A fault, the names of the promises that it breaks, and a seed that finds it."""

    plant: Callable[[], AbstractContextManager[Any]]
    breaks: tuple[str, ...]
    seed: int = 0


def _ack_before_append() -> AbstractContextManager[Any]:
    receive = LogSlave._receive

    def early(self: LogSlave, link: Any) -> None:
        socket = link._socket
        coming = len(socket.incoming.arrived) - 12
        if self._copy is not None and coming > 0 and self._tail is not None and self._tail.is_compared:
            link.report(self._copy.received_offset + coming)
        receive(self, link)

    return mock.patch.object(LogSlave, "_receive", early)


def _ack_received_bytes() -> AbstractContextManager[Any]:
    report = LogSlave._report

    def received(self: LogSlave, link: Any) -> None:
        if self._copy is not None and self._tail is not None and self._tail.is_compared:
            reached = self._copy.received_offset
            if reached > self._acked:
                self._acked = reached
                link.report(reached)
                return
        report(self, link)

    return mock.patch.object(LogSlave, "_report", received)


def _ack_written_as_durable() -> AbstractContextManager[Any]:
    return mock.patch.object(MessageStore, "flushed_offset", property(lambda self: self.max_phy_offset))


def _count_connections() -> AbstractContextManager[Any]:
    def count_votes(self: HAServer) -> None:
        self._acks.update([voter.acked_offset for voter in self._voters if voter.acknowledges])

    return mock.patch.object(HAServer, "_count_votes", count_votes)


def _count_anyone() -> AbstractContextManager[Any]:
    return mock.patch.object(HAServer, "_votes_of", return_value=1)


def _accept_beyond_end() -> AbstractContextManager[Any]:
    report = SlaveConnection._report

    def accept(self: SlaveConnection, offset: int) -> None:
        if self._position >= 0:
            self._reported = offset
        else:
            report(self, offset)

    return mock.patch.object(SlaveConnection, "_report", accept)


@contextmanager
def _keep_old_acks() -> Iterator[None]:
    """The largest acknowledgement of a slave counts, also after it has come back with less."""

    def largest(self: HAServer) -> None:
        best = self.__dict__.setdefault("best", {})
        for voter in self._voters:
            if voter.acknowledges:
                best[voter.host] = max(best.get(voter.host, -1), voter.acked_offset)
        there = {voter.host for voter in self._voters if voter.acknowledges}
        self._acks.update([best[host] for host in sorted(there)])

    with mock.patch.object(HAServer, "_count_votes", largest):
        yield


def _keep_vote_of_closed() -> AbstractContextManager[Any]:
    update = SlaveAcks.update

    def only_more(self: SlaveAcks, offsets: Any) -> None:
        update(self, offsets if len(offsets) >= len(self._votes) else (*offsets, *self._votes[len(offsets) :]))

    return mock.patch.object(SlaveAcks, "update", only_more)


def _retention_ignores_slaves() -> AbstractContextManager[Any]:
    return mock.patch.object(CleanCommitLogService, "_waits_for_slave", return_value=False)


def _skip_crc() -> AbstractContextManager[Any]:
    off = check_code(CheckCRC.OFF)
    return mock.patch.object(log_copy, "RecordScan", lambda check, sets: RecordScan(off, sets=sets))


def _skip_tail() -> AbstractContextManager[Any]:
    def compare(self: HeldTail, frame: Any) -> bytes:
        known = frame.body[: self.end - self._at]
        self._at += len(known)
        return bytes(frame.body[len(known) :])

    return mock.patch.object(HeldTail, "compare", compare)


@contextmanager
def _cut_before_side_file() -> Iterator[None]:
    """The side file is written and not synced."""
    keep = log_cut._keep

    class _Lazy:
        def __init__(self, fs: Any) -> None:
            self._fs = fs

        def __getattr__(self, name: str) -> Any:
            return getattr(self._fs, name)

        def sync_directory(self, *paths: Any) -> None:
            """Nothing."""

        def open(self, *of: Any, **options: Any) -> Any:
            file = self._fs.open(*of, **options)
            file.sync = lambda: None
            return file

    def lazy(fs: Any, *of: Any) -> str:
        return keep(_Lazy(fs), *of)

    with mock.patch.object(log_cut, "_keep", lazy):
        yield


def _cut_keeps_nothing() -> AbstractContextManager[Any]:
    return mock.patch.object(log_cut, "_keep", return_value="nothing")


def _cut_one_record_more() -> AbstractContextManager[Any]:
    """The cut is at the end of the shorter log, not at the first difference."""
    return mock.patch.object(DivergenceSearch, "find", lambda self: self._begin_of_record(self._end))


def _ack_before_flush() -> AbstractContextManager[Any]:
    def at_once(self: Durability, end_offset: int) -> FlushRequest:
        request = FlushRequest(end_offset)
        request.finish(PutMessageStatus.PUT_OK)
        return request

    return mock.patch.object(Durability, "_request", at_once)


def _wait_for_one_less() -> AbstractContextManager[Any]:
    acknowledged_by = SlaveAcks._acknowledged_by
    return mock.patch.object(SlaveAcks, "_acknowledged_by", lambda self, copies: acknowledged_by(self, copies - 1))


def _late_is_ok() -> AbstractContextManager[Any]:
    """A wait for slaves that is over counts as done."""

    def result(self: FlushRequest, timeout_s: float) -> PutMessageStatus:
        if self._error is not None:
            raise self._error
        return PutMessageStatus.PUT_OK

    return mock.patch.object(FlushRequest, "result", result)


def _names_unsynced() -> AbstractContextManager[Any]:
    """The fault that the simulation found: a log file's name that a killed process has left is never synced."""
    return mock.patch.object(MappedFileQueue, "sync_names", lambda self: self.min_offset)


PLANTED_FAULTS = {
    "a slave acknowledges before the append": PlantedFault(_ack_before_append, ("reports",)),
    "a slave acknowledges what it has received": PlantedFault(_ack_received_bytes, ("reports",), seed=1),
    "a slave acknowledges as durable what it has written": PlantedFault(_ack_written_as_durable, ("reports",), seed=2),
    "connections are counted, not slaves": PlantedFault(_count_connections, ("votes", "replicas"), seed=14),
    "slaves are counted that nobody has registered": PlantedFault(_count_anyone, ("votes", "replicas")),
    "an acknowledgement above the end is accepted": PlantedFault(_accept_beyond_end, ("beyond end",), seed=1),
    "a slave that comes back with less keeps its acknowledgement": PlantedFault(_keep_old_acks, ("votes",), seed=83),
    "a connection that is closed keeps its vote": PlantedFault(_keep_vote_of_closed, ("votes",), seed=3),
    "a put waits for one slave less": PlantedFault(_wait_for_one_less, ("replicas",)),
    "a wait that is over counts as done": PlantedFault(_late_is_ok, ("replicas", "flush"), seed=3),
    "a put is acknowledged before the flush": PlantedFault(_ack_before_flush, ("flush",)),
    "retention ignores slaves": PlantedFault(_retention_ignores_slaves, ("retention",), seed=2),
    "a slave does not check bodies": PlantedFault(_skip_crc, ("prefix",), seed=3),
    "the end of a log is not compared": PlantedFault(_skip_tail, ("prefix",), seed=71),
    "a cut is not at the first difference": PlantedFault(_cut_one_record_more, ("converges", "prefix"), seed=12),
    "a cut keeps nothing": PlantedFault(_cut_keeps_nothing, ("cut",), seed=12),
    "a cut does not sync what it keeps": PlantedFault(_cut_before_side_file, ("cut",), seed=69),
    "a name that a killed process left is not synced": PlantedFault(_names_unsynced, ("flush",), seed=31),
}
