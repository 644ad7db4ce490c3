"""RocketMQ inside a Python program: a name server and a broker in a thread, on free ports of 127.0.0.1.

    with EmbeddedBroker() as broker:
        with Producer(broker.namesrv) as producer:
            producer.send(Message("orders", b"hello"))
        broker.wait_for_messages("orders", 1)

Any RocketMQ client works against it, of whatever language.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Any, Self
from weakref import finalize

from gantrymq.client.arguments import checks_arguments, flag, number, seconds, text
from gantrymq.client.loop_thread import LoopThread, close_when_dropped
from gantrymq.clock import ShiftedClock
from gantrymq.embedded import stored
from gantrymq.embedded.restartable_broker import RestartableBroker, Settings
from gantrymq.errors import RemotingError, StoreClosedError
from gantrymq.model.message import StoredMessage
from gantrymq.model.message_queue import MOST_QUEUES

_LOOK_AGAIN_S = 0.02


@checks_arguments(topic=text, queues=number(1, MOST_QUEUES), count=number(0), timeout_s=seconds, order=flag)
class EmbeddedBroker:
    """A broker to test against, or to ship inside a program. Thread rule: any thread.

    ``store`` is its directory, made where it is missing; without one it is temporary and goes with :meth:`close`.
    ``settings`` are keys of RocketMQ's broker, store and name server, over
    :data:`gantrymq.embedded.restartable_broker.DEFAULTS` (raises ConfigError). Ports 0 are free ones. ``clock`` is
    the broker's: moving it makes delayed messages due.

    Ready when the broker's route answers. Raises what BrokerServer.start raises: StoreLockedError, RemotingError, …
    """

    def __init__(
        self,
        store: str | Path | None = None,
        *,
        settings: Settings | None = None,
        namesrv_port: int = 0,
        listen_port: int = 0,
    ) -> None:
        path = Path(store or "")
        self._life = RestartableBroker(path, settings or {}, namesrv_port=namesrv_port, listen_port=listen_port)
        self._loop: LoopThread | None = None
        self._drops: list[finalize[..., EmbeddedBroker]] = []
        self._is_closed = False
        self._pid = os.getpid()
        self._remove: finalize[..., EmbeddedBroker] | None = None
        if store is None:
            self._make_temporary()
        self._lock = threading.RLock()  # one life begins or ends at a time, in one loop

    def __enter__(self) -> Self:
        """Started; where that fails, closed."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closed."""
        self.close()

    # Where it is

    @property
    def namesrv(self) -> str:
        """The name server's address, for clients."""
        return self._life.pair.namesrv_address

    @property
    def address(self) -> str:
        """The broker's address."""
        return self._life.pair.broker_address

    @property
    def store_path(self) -> Path:
        """The store's directory."""
        return self._life.store_path

    @property
    def clock(self) -> ShiftedClock:
        """The broker's clock: ``clock.advance(3_600_000)`` makes it an hour later for the broker and its store."""
        return self._life.clock

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return self._life.is_running

    # Its lives

    def start(self) -> None:
        """Start it; harmless where it runs."""
        self._change(self._life.start())

    def stop(self) -> None:
        """Shut it down cleanly; it can be started again on the same store and ports. Harmless where nothing runs."""
        if self._loop is not None:
            self._change(self._life.stop())

    def kill(self) -> None:
        """End it as SIGKILL ends a process: connections break, and nothing more is written.

        What was written stays, as the page cache keeps it; offsets and topics that were not yet saved, the checkpoint
        that would have been, are lost, and the next start recovers.
        """
        if self._loop is not None:
            self._change(self._life.kill())

    def restart(self) -> None:
        """Stop it where it runs, and start it again on the same store and ports."""
        self._change(self._life.restart())

    def close(self) -> None:
        """Stop it, and remove its directory where that is temporary: a start after that has a new one.

        Closing twice is harmless.
        """
        if os.getpid() != self._pid:  # a fork's copy: thread, broker and directory are the parent's
            return
        with self._lock:
            loop, self._loop, self._is_closed = self._loop, None, True
            try:
                if loop is not None:
                    loop.close(self._life.stop())
            finally:
                if self._remove is not None:
                    self._remove()

    # What is in it

    def create_topic(self, topic: str, queues: int = 4, *, order: bool = False) -> None:
        """Make a topic, or give it another number of queues; returns when it has a route.

        Raises MQBrokerError, and RemotingError where the broker does not run.
        """
        self._running().run(self._life.create_topic(topic, queues, order=order))

    def messages(self, topic: str) -> list[StoredMessage]:
        """Everything stored under a topic, queue by queue, each in its order; also of a broker that was killed.

        Bodies are decompressed, and ``sys_flag`` then lacks the COMPRESSED bit, as a consumer gets them. A body that
        cannot be decompressed, or that is larger than maxDecompressedBodySize then, is as it is stored.

        A fork's copy reads the files, as of a killed one: nothing moves in its copy of the store.
        """
        if self._is_closed and self._remove is not None:
            raise StoreClosedError(self.store_path, "the embedded broker was closed, and its temporary store removed")
        store = self._life.store if os.getpid() == self._pid else None
        limit = self._life.max_decompressed_body_size
        if store is not None:
            return stored.messages_of(store, topic, limit)
        return stored.read_messages(self.store_path, topic, self._life.store_config)

    def bodies(self, topic: str) -> list[bytes]:
        """The bodies of :meth:`messages`. Raises ValueError where one cannot be decompressed."""
        limit = self._life.max_decompressed_body_size
        return [stored.body_of(message, limit) for message in self.messages(topic)]

    def wait_for_messages(self, topic: str, count: int, *, timeout_s: float = 10) -> list[StoredMessage]:
        """Wait until ``count`` messages are stored under a topic, and no more; raises AssertionError showing them."""
        deadline = time.monotonic() + timeout_s
        while len(found := self.messages(topic)) < count and time.monotonic() < deadline:
            time.sleep(_LOOK_AGAIN_S)
        if len(found) != count:
            raise AssertionError(f"{topic} has {len(found)} messages, not {count}:\n{stored.table(found)}")
        return found

    def consumer_offsets(self, group: str, topic: str) -> dict[int, int]:
        """How far a group has consumed a topic: the next offset by queue, as the broker knows it now."""
        return self._running().run(self._life.consumer_offsets(group, topic))

    def _running(self) -> LoopThread:
        if self._loop is None:
            raise RemotingError("the embedded broker does not run: start it, or enter it with `with`")
        return self._loop

    def _change(self, life: Coroutine[Any, Any, None]) -> None:
        with self._lock:
            self._thread().submit(life).result()  # who is interrupted leaves no life half begun or half ended

    def _thread(self) -> LoopThread:
        with self._lock:
            if self._loop is None:
                self._is_closed = False
                if self._remove is not None and not self._remove.alive:
                    self._make_temporary()  # after a close, which took both
                self._loop = LoopThread("embedded broker")
                last = None if self._remove is None else partial(_remove, self._life.store_path, self._pid)
                self._drops.append(close_when_dropped(self, self._loop, self._life.stop, last, at_exit=False))
            return self._loop

    def _make_temporary(self) -> None:
        self._life.store_path = directory = Path(mkdtemp(prefix="gantrymq-"))
        self._drops = []
        self._remove = finalize(self, _remove_unless_dropped, directory, self._pid, self._drops)


def _remove_unless_dropped(directory: Path, pid: int, drops: list[finalize[..., EmbeddedBroker]]) -> None:
    """What a close does, and the end of the process; where the broker was dropped its thread does so once it ended.

    Of two finalizers the one that was made last is called first.
    """
    if all(drop.alive for drop in drops):
        _remove(directory, pid)


def _remove(directory: Path, pid: int) -> None:
    """Remove a directory that ``pid`` made: a process that was forked from it forgets its copy, or ends, as well."""
    if os.getpid() != pid:
        return
    _open(directory)
    for parent, names, _ in os.walk(directory):  # from the top: each is opened before it is listed
        for name in names:
            _open(Path(parent, name))
    shutil.rmtree(directory, ignore_errors=True)


def _open(directory: Path) -> None:
    """Give it to its owner again: a test may have made it read-only. What a link leads to is not ours."""
    if not directory.is_symlink():
        with suppress(OSError):
            directory.chmod(stat.S_IRWXU)
