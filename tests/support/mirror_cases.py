"""A master for tests: the bytes of a log, served over a real socket as RocketMQ's master serves them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from gantrymq.clock import ManualClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.ha.frames import LogFrame, ReportReader, encode_header
from gantrymq.ha.held_tail import Master
from gantrymq.store.message_store import MessageStore
from gantrymq.store.reader import StoreReader

FRAME_BYTES = 32768


class LogBytes:
    """The log of a store that was written before: ``data`` from ``begin`` on."""

    def __init__(self, store: Path) -> None:
        with StoreReader.open(store) as reader:
            self.begin, self.end = reader.min_phy_offset, reader.max_phy_offset
            self.file_size = reader.lookup.log.file_size
        files = sorted((store / "commitlog").iterdir())
        self.data = b"".join(file.read_bytes() for file in files)[: self.end - self.begin]

    def cut(self, offset: int, size: int) -> bytes:
        """At most ``size`` bytes from ``offset`` on, which do not cross a file."""
        size = min(size, self.file_size - offset % self.file_size)
        return self.data[offset - self.begin : offset - self.begin + size]

    @property
    def config(self) -> MessageStoreConfig:
        """Settings with files of the same size."""
        return MessageStoreConfig(mapped_file_size_commit_log=self.file_size, max_hash_slot_num=50, max_index_num=200)


def copied(store: Path, log: LogBytes) -> bytes:
    """The log of a copy as long as that of ``log``."""
    files = sorted((store / "commitlog").iterdir())
    assert int(files[0].name) == log.begin
    return b"".join(file.read_bytes() for file in files)[: log.end - log.begin]


Frames = Callable[[int], list[LogFrame]]


class FakeMaster:
    """Serves ``log`` as RocketMQ's master. A source of :class:`gantrymq.ha.mirror.Mirror`, too.

    ``edit`` may change a frame before it is sent. ``reports`` has the reports of each connection. ``extent_of`` is what
    the master says of its log; its bytes stay.
    """

    def __init__(self, log: LogBytes, edit: Callable[[LogFrame], LogFrame] = lambda frame: frame) -> None:
        self.log, self.edit = log, edit
        self.reports: list[list[int]] = []
        self.file_size = log.file_size
        self.extent_of = (log.begin, log.end)
        self.ack_timeout_s = 0.0
        self.closes_after = 1 << 60  # bytes of one connection
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._is_closed = threading.Event()
        self._threads[0].start()

    def find(self) -> Master:
        """See MasterSource."""
        host, port = self._socket.getsockname()
        return Master((host, port), self.file_size, *self.extent_of, self.ack_timeout_s)

    def extent(self) -> tuple[int, int]:
        """See MasterSource."""
        return self.extent_of

    def has_moved(self, master: Master) -> bool:
        """See MasterLookup."""
        return master.ha_address != self._socket.getsockname()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connected, _ = self._socket.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(connected,)))
                self._threads[-1].start()

    def _serve(self, connected: socket.socket) -> None:
        reader, reports = ReportReader(), list[int]()
        self.reports.append(reports)
        connected.settimeout(0.02)
        at, sent = -1, 0
        with connected, suppress(OSError):
            while not self._is_closed.is_set() and sent < self.closes_after:
                with suppress(TimeoutError):
                    received = connected.recv(4096)
                    if not received:
                        return
                    reports += reader.feed(received)
                if at < 0 and reports:
                    at = reports[0] or self.log.end - self.log.end % self.log.file_size
                while 0 <= at < self.log.end and sent < self.closes_after and at >= self.log.begin:
                    frame = LogFrame(at, self.log.cut(at, FRAME_BYTES))
                    at += len(frame.body)
                    sent += len(frame.body)
                    frame = self.edit(frame)
                    connected.sendall(encode_header(frame.offset, len(frame.body)) + frame.body)
                if at >= self.log.end:
                    connected.sendall(encode_header(self.edit(LogFrame(at, b"")).offset, 0))
            connected.shutdown(socket.SHUT_WR)  # a close with unread reports would take back what was sent
            while not self._is_closed.is_set() and sent >= self.closes_after:
                with suppress(TimeoutError):
                    if not connected.recv(4096):
                        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(10)


class FastClock(ManualClock):
    """A clock whose sleepers do not wait: the time moves instead."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_s: list[float] = []

    def sleep(self, seconds: float) -> None:
        """Move the time."""
        self.slept_s.append(seconds)
        self.advance(round(seconds * 1000) + 1)


def await_true(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Return when ``condition()`` holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def open_copy(path: Path, log: LogBytes, **options: object) -> MessageStore:
    """A store for a copy of ``log``."""
    return MessageStore.open(path, log.config, housekeeping=False, delivers=False, **options)  # type: ignore[arg-type]
