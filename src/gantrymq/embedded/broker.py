"""RocketMQ inside a Python program: a name server and a broker in a thread, on free ports of 127.0.0.1.

    with EmbeddedBroker() as broker:
        with Producer(broker.namesrv) as producer:
            producer.send(Message("orders", b"hello"))
        broker.wait_for_messages("orders", 1)

RocketMQ clients in any language can connect to it.
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
from gantrymq.client.runtime.loop_thread import LoopThread, close_when_dropped
from gantrymq.clock import ShiftedClock
from gantrymq.embedded import stored
from gantrymq.embedded.restartable_broker import RestartableBroker, Settings
from gantrymq.embedded.users import Users
from gantrymq.errors import RemotingError, StoreClosedError
from gantrymq.model.limits import MAX_QUEUES
from gantrymq.model.message import StoredMessage

_LOOK_AGAIN_S = 0.02


@checks_arguments(
    topic=text,
    queues=number(1, MAX_QUEUES),
    count=number(0),
    timeout_s=seconds,
    order=flag,
    message_type=text,
    group=text,
    max_retries=number(-1),
    console=flag,
    grpc=flag,
)
class EmbeddedBroker:
    """A broker for tests, or as part of a program. Thread rule: any thread.

    ``store`` is its directory, created if it is missing. Without one it is temporary, and :meth:`close` removes it.
    ``settings`` are keys of RocketMQ's broker, store and name server, which override
    :data:`gantrymq.embedded.restartable_broker.DEFAULTS` (raises ConfigError, and NotHonouredError for a key that
    cannot be honoured: see ``acceptWithoutEffect`` in docs/broker.md). Port 0 means a free one. ``clock`` is
    the broker's clock: advancing it makes delayed messages due. With ``console`` the web console is served at
    :attr:`console`; it needs the extra ``console``, and changes nothing. With ``grpc`` the broker also answers the
    clients of RocketMQ 5, which speak gRPC; that needs the extra ``grpc`` (raises ConfigError). ``users`` maps names to
    passwords of super users, or to objects (:mod:`gantrymq.embedded.users`): with them each client must sign as one of
    these, and needs its permissions.

    The start returns when the broker has a route. Raises what BrokerServer.start raises: StoreLockedError,
    RemotingError, …
    """

    def __init__(
        self,
        store: str | Path | None = None,
        *,
        settings: Settings | None = None,
        namesrv_port: int = 0,
        listen_port: int = 0,
        console: bool = False,
        grpc: bool = False,
        users: Users | None = None,
    ) -> None:
        path = Path(store or "")
        self._life = RestartableBroker(
            path,
            settings or {},
            namesrv_port=namesrv_port,
            listen_port=listen_port,
            console=console,
            grpc=grpc,
            users=users,
        )
        self._loop: LoopThread | None = None
        self._drops: list[finalize[..., EmbeddedBroker]] = []
        self._is_closed = False
        self._pid = os.getpid()
        self._remove: finalize[..., EmbeddedBroker] | None = None
        if store is None:
            self._make_temporary()
        self._lock = threading.RLock()  # one start or stop at a time

    def __enter__(self) -> Self:
        """Start the broker. If that fails, close it."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the broker."""
        self.close()

    # Addresses and state

    @property
    def namesrv(self) -> str:
        """The name server's address, for clients."""
        return self._life.pair.namesrv_address

    @property
    def address(self) -> str:
        """The broker's address."""
        return self._life.pair.broker_address

    @property
    def console(self) -> str:
        """The address of the web console, from the first start to :meth:`close`."""
        return self._life.console_url

    @property
    def grpc(self) -> str:
        """The address for clients of gRPC. Raises RemotingError unless the broker was made with ``grpc=True``."""
        address = self._life.pair.grpc_address
        if address is None:
            raise RemotingError("this embedded broker does not speak gRPC: make it with grpc=True")
        return address

    @property
    def metrics_url(self) -> str:
        """The URL of Prometheus' metrics. Empty unless ``settings`` have ``metricsExporterType=PROM``."""
        address = self._life.pair.broker.metrics.address
        return f"http://{address}/metrics" if address else ""

    @property
    def store_path(self) -> Path:
        """The store's directory."""
        return self._life.store_path

    @property
    def clock(self) -> ShiftedClock:
        """The broker's clock. ``clock.advance(3_600_000)`` moves the broker and its store one hour ahead."""
        return self._life.clock

    @property
    def is_running(self) -> bool:
        """Whether the broker runs."""
        return self._life.is_running

    # Start and stop

    def start(self) -> None:
        """Start the broker. Has no effect if it runs."""
        self._change(self._life.start())

    def stop(self) -> None:
        """Shut the broker down cleanly. It can be started again on the same store and ports.

        The ports stay reserved until :meth:`close`: connections are refused, and other processes cannot listen on them.
        Has no effect if it is stopped.
        """
        if self._loop is not None:
            self._change(self._life.stop())

    def kill(self) -> None:
        """End the broker as SIGKILL ends a process: connections break, and nothing more is written.

        Written data stays, as in the page cache. Offsets and topics that were not saved yet are lost, and so is the
        checkpoint of a clean stop: the next start performs a recovery.
        """
        if self._loop is not None:
            self._change(self._life.kill())

    def restart(self) -> None:
        """Stop the broker if it runs, and start it again on the same store and ports."""
        self._change(self._life.restart())

    def close(self) -> None:
        """Stop the broker, and remove its directory if it is temporary. A later start gets a new directory.

        A second call has no effect.
        """
        if os.getpid() != self._pid:  # in a fork: thread, broker and directory belong to the parent
            return
        with self._lock:
            loop, self._loop, self._is_closed = self._loop, None, True
            try:
                if loop is not None:
                    loop.close(self._life.close())
            finally:
                if self._remove is not None:
                    self._remove()

    # Contents

    def create_topic(
        self, topic: str, queues: int = 4, *, order: bool = False, message_type: str | None = None
    ) -> None:
        """Create a topic, or change its number of queues. Returns when it has a route.

        ``message_type`` says what clients of gRPC may send: NORMAL (the default), FIFO, DELAY, TRANSACTION or PRIORITY.
        Raises MQBrokerError, or RemotingError if the broker does not run.
        """
        self._running().run(self._life.create_topic(topic, queues, order=order, message_type=message_type))

    def create_group(self, group: str, *, order: bool = False, max_retries: int = 16) -> None:
        """Create a consumer group, or change it. Groups that are only used need not be created.

        With ``order`` the clients of gRPC get the messages of a message group one after the other. A message that
        failed ``max_retries`` times again goes to the dead letters. Raises as :meth:`create_topic` does.
        """
        self._running().run(self._life.create_group(group, order=order, max_retries=max_retries))

    def messages(self, topic: str) -> list[StoredMessage]:
        """All messages stored under a topic, queue by queue in order. Works after :meth:`kill` too.

        Bodies are decompressed, and ``sys_flag`` then lacks the COMPRESSED bit, as in a consumer. A body that cannot be
        decompressed, or exceeds maxDecompressedBodySize, is returned as it is stored. In a forked process the files are
        read, because the open store of the parent does not change there.
        """
        if self._is_closed and self._remove is not None:
            raise StoreClosedError(self.store_path, "the embedded broker was closed, and its temporary store removed")
        store = self._life.store if os.getpid() == self._pid else None
        limit = self._life.max_decompressed_body_size
        if store is not None:
            return stored.messages_of(store, topic, limit)
        return stored.read_messages(self.store_path, topic, self._life.store_config)

    def bodies(self, topic: str) -> list[bytes]:
        """The bodies of :meth:`messages`. Raises ValueError if one cannot be decompressed."""
        limit = self._life.max_decompressed_body_size
        return [stored.body_of(message, limit) for message in self.messages(topic)]

    def wait_for_messages(self, topic: str, count: int, *, timeout_s: float = 10) -> list[StoredMessage]:
        """Wait until exactly ``count`` messages are stored under a topic. Raises AssertionError, which shows them."""
        deadline = time.monotonic() + timeout_s
        while len(messages := self.messages(topic)) < count and time.monotonic() < deadline:
            time.sleep(_LOOK_AGAIN_S)
        if len(messages) != count:
            raise AssertionError(f"{topic} has {len(messages)} messages, not {count}:\n{stored.table(messages)}")
        return messages

    def consumer_offsets(self, group: str, topic: str) -> dict[int, int]:
        """The committed offsets of a group on a topic: the next offset by queue number."""
        return self._running().run(self._life.consumer_offsets(group, topic))

    def _running(self) -> LoopThread:
        if self._loop is None:
            raise RemotingError("the embedded broker does not run: start it, or enter it with `with`")
        return self._loop

    def _change(self, life: Coroutine[Any, Any, None]) -> None:
        with self._lock:
            # Not LoopThread.run(): an interrupted caller must not cancel a start or stop halfway.
            self._thread().submit(life).result()

    def _thread(self) -> LoopThread:
        with self._lock:
            if self._loop is None:
                self._is_closed = False
                if self._remove is not None and not self._remove.alive:
                    self._make_temporary()  # a close has removed the old one
                self._loop = LoopThread("embedded broker")
                last = None if self._remove is None else partial(_remove, self._life.store_path, self._pid)
                self._drops.append(close_when_dropped(self, self._loop, self._life.close, last, at_exit=False))
            return self._loop

    def _make_temporary(self) -> None:
        self._life.store_path = directory = Path(mkdtemp(prefix="gantrymq-"))
        self._drops = []
        self._remove = finalize(self, _remove_unless_dropped, directory, self._pid, self._drops)


def _remove_unless_dropped(directory: Path, pid: int, drops: list[finalize[..., EmbeddedBroker]]) -> None:
    """Remove the directory at a close or at the process's end, unless the thread of a dropped broker does so.

    The finalizer that was made last is called first.
    """
    if all(drop.alive for drop in drops):
        _remove(directory, pid)


def _remove(directory: Path, pid: int) -> None:
    """Remove a directory that ``pid`` made. A forked process, which runs the same finalizer, must not."""
    if os.getpid() != pid:
        return
    _open(directory)
    for parent, names, _ in os.walk(directory):  # from the top: each is opened before it is listed
        for name in names:
            _open(Path(parent, name))
    shutil.rmtree(directory, ignore_errors=True)


def _open(directory: Path) -> None:
    """Make a directory writable for its owner, because a test may have made it read-only.

    Symbolic links are ignored.
    """
    if not directory.is_symlink():
        with suppress(OSError):
            directory.chmod(stat.S_IRWXU)
