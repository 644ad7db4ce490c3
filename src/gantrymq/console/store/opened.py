"""The store as the pages see it: a view that a thread opens, and opens again when the store has changed.

Opening recovers a private view of the files. That is fast for a store that was closed or that a broker has open. After
a crash it reads the log from the checkpoint on, so no page waits for it: until it is there, pages show its progress.
Of a store that a broker writes to, a page shows the state at the time of the last opening, and tells that time.

An open view keeps the files that retention deletes meanwhile, and their space. So a view that no page has used for a
while is closed, and the next page opens another.

Thread rule: any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from gantrymq.clock import Clock
from gantrymq.config.reading import Reading
from gantrymq.console.store.groups import StoreGroupLag, lags_of
from gantrymq.errors import GantrymqError, StoreClosedError, StoreError
from gantrymq.format.names import CONSUMER_OFFSET
from gantrymq.fs.lock_holder import lock_holder
from gantrymq.model.message import StoredMessage
from gantrymq.store.config_files import ConfigFile
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.group_offsets import read_group_offsets
from gantrymq.store.reader import StoreReader
from gantrymq.tools.pending.pending import holds_pending
from gantrymq.tools.summary import StoreSummary, summarize

_MIN_AGE_S = 10.0
_COST_SHARE = 20  # a view that took 1 s to open is used for 20 s
IDLE_S = 60.0
_OPEN_WAIT_S = 1.5
_INDEX_WAIT_S = 1.5


@dataclass(frozen=True, slots=True)
class OpeningProgress:
    """How far the opening of a view is: ``done`` of ``total`` bytes of ``step``; a total of 0 is unknown."""

    began_ms: int
    step: str = ""
    done: int = 0
    total: int = 0


class StillOpeningError(GantrymqError):
    """The view is not open yet."""

    def __init__(self, opening: OpeningProgress) -> None:
        super().__init__("the store is being opened")
        self.opening = opening


class IndexOpeningError(GantrymqError):
    """The index is being recovered."""


@dataclass
class Snapshot:
    """An open view of the store at one time. Valid inside of :meth:`OpenStore.look`."""

    reader: StoreReader
    summary: StoreSummary
    opened_ms: int
    took_ms: float
    fingerprint: object
    _users: int = 1  # the store itself
    _index_thread: threading.Thread | None = None
    _index_error: Exception | None = None
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def queues(self) -> dict[str, list[ConsumeQueue]]:
        """The queues of each topic, sorted."""
        by_topic: dict[str, list[ConsumeQueue]] = {}
        for queue in self.reader.consume_queues:
            by_topic.setdefault(queue.topic, []).append(queue)
        return by_topic

    @cached_property
    def lags(self) -> dict[str, StoreGroupLag]:
        """The progress of all groups, by name."""
        tables = read_group_offsets(self.reader.fs, self.reader.paths)
        return lags_of((table for table in tables if table.group), self.queues)  # a delay level has no group

    @cached_property
    def lags_of_topic(self) -> dict[str, list[StoreGroupLag]]:
        """The progress of the groups of each topic, in that topic."""
        by_topic: dict[str, dict[str, StoreGroupLag]] = {}
        for lag in self.lags.values():
            for queue in lag.queues:
                own = by_topic.setdefault(queue.topic, {}).setdefault(lag.group, StoreGroupLag(lag.group))
                own.queues.append(queue)
                own.behind += queue.behind
        return {topic: sorted(of.values(), key=lambda lag: lag.group) for topic, of in by_topic.items()}

    @cached_property
    def group_problem(self) -> str:
        """Why the committed offsets are not shown; empty if they are."""
        file = ConfigFile(self.reader.fs, self.reader.paths.config / CONSUMER_OFFSET)
        try:
            table = file.read(dict, keeps_edits=True)
        except (StoreError, OSError) as error:
            return str(error)
        return "" if table is not None else f"{file.path}: there is no such file, so no committed offset is known"

    @cached_property
    def first(self) -> StoredMessage | None:
        """The first message of the log; None if no readable record begins there."""
        return self._at(self.reader.min_phy_offset)

    @cached_property
    def last(self) -> StoredMessage | None:
        """The last message that a queue leads to; None if it cannot be read."""
        return self._at(self.reader.consume_queues.last_phy_offset)

    def _at(self, phy_offset: int) -> StoredMessage | None:
        with suppress(StoreError):
            return self.reader.message_at(phy_offset) if phy_offset >= 0 else None
        return None

    def find_key(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        """The physical offsets that the index has for a key, newest first.

        The first call opens the index, which recovers it after a crash. Raises IndexOpeningError if that takes longer
        than a page may wait, and the errors of :meth:`StoreReader.query_offsets`.
        """
        with self._guard:
            if self._index_thread is None:
                self._index_thread = threading.Thread(target=self._open_index, name="console-index", daemon=True)
                self._index_thread.start()
        self._index_thread.join(_INDEX_WAIT_S)
        if self._index_thread.is_alive():
            raise IndexOpeningError("the index is being recovered from the log")
        if self._index_error is not None:
            raise self._index_error
        return self.reader.query_offsets(topic, key, begin_ms=begin_ms, end_ms=end_ms, max_num=limit)

    def _open_index(self) -> None:
        try:
            self.reader.query_offsets("", "", max_num=0)
        except (GantrymqError, OSError) as error:
            self._index_error = error

    def hold(self) -> None:
        """Keep the view open until :meth:`release`."""
        with self._guard:
            self._users += 1

    def release(self) -> None:
        """Close the view if nothing uses it any more."""
        with self._guard:
            self._users -= 1
            is_last = self._users == 0
        if is_last:
            if self._index_thread is not None:
                self._index_thread.join()
            self.reader.close()


class OpenStore:
    """The store at ``path`` with the settings of ``reading``."""

    def __init__(self, path: Path, reading: Reading, clock: Clock) -> None:
        self.path, self.reading, self.clock = path, reading, clock
        self.paths = StorePaths.of(path, reading.config)
        self._guard = threading.Condition()
        self._snapshot: Snapshot | None = None
        self._opening: OpeningProgress | None = None
        self._failure: Exception | None = None
        self._failed_s = self._began_s = self._used_s = 0.0
        self._idle_timer: threading.Timer | None = None
        self._is_closed = False

    @property
    def failure(self) -> Exception | None:
        """The error of the last opening; None if it succeeded."""
        return self._failure

    @property
    def opening(self) -> OpeningProgress | None:
        """The opening that is at work."""
        return self._opening

    @contextmanager
    def look(self) -> Iterator[Snapshot]:
        """The newest view. A new one is opened beside it if the store has changed since.

        Raises StillOpeningError, and the error of the opening if there is no view.
        """
        snapshot = self._held() or self._first()
        try:
            if self._is_outdated(snapshot):
                self.open_again()
            yield snapshot
        finally:
            snapshot.release()

    def _held(self) -> Snapshot | None:
        with self._guard:
            self._used_s = self.clock.monotonic_s()
            if self._snapshot is not None:
                self._snapshot.hold()
            return self._snapshot

    def _first(self) -> Snapshot:
        """Open the first view, and return it if a page may wait for it."""
        with self._guard:
            failure = self._failure
            is_recent = self.clock.monotonic_s() - self._failed_s < _MIN_AGE_S
        if failure is not None and is_recent:
            raise failure
        self.open_again()
        with self._guard:
            waited_s = self.clock.monotonic_s() - self._began_s
            self._guard.wait_for(lambda: self._opening is None, max(_OPEN_WAIT_S - waited_s, 0.0))
            opening, failure = self._opening, self._failure
        if opening is not None:
            raise StillOpeningError(opening)
        if failure is not None:
            raise failure
        if (snapshot := self._held()) is None:
            raise StoreClosedError(self.path, "is not shown any more: the console stops")
        return snapshot

    def _is_outdated(self, snapshot: Snapshot) -> bool:
        age_ms = self.clock.now_ms() - snapshot.opened_ms
        if 0 <= age_ms < max(_MIN_AGE_S * 1000, _COST_SHARE * snapshot.took_ms):
            return False
        return snapshot.fingerprint != self._fingerprint()

    def _fingerprint(self) -> object:
        """A value that changes when a writer works on the store, or another tool has changed it."""
        paths = self.paths
        watched = (paths.root, *paths.commit_logs, paths.consume_queue, paths.index, paths.config, paths.checkpoint)
        return lock_holder(paths.lock), tuple(map(_changed_ns, watched))

    def open_again(self) -> None:
        """Begin to open a new view, unless that is at work."""
        with self._guard:
            if self._opening is not None or self._is_closed:
                return
            self._opening = OpeningProgress(self.clock.now_ms())
            self._began_s = self.clock.monotonic_s()
        threading.Thread(target=self._open, name="console-open", daemon=True).start()

    def _open(self) -> None:
        snapshot: Snapshot | None = None
        failure: Exception | None = None
        try:
            snapshot = self._new_snapshot()
        except Exception as error:  # whatever it is, the pages must show it and the next opening must be possible
            failure = error
        with self._guard:
            old, self._failure, self._failed_s = self._snapshot, failure, self.clock.monotonic_s()
            if snapshot is not None and not self._is_closed:
                self._snapshot = snapshot
                self._close_later(max(IDLE_S, _COST_SHARE * snapshot.took_ms / 1000))
            else:
                old = snapshot
            self._opening = None
            self._guard.notify_all()
        if old is not None:
            old.release()

    def _new_snapshot(self) -> Snapshot:
        began_s = self.clock.monotonic_s()
        fingerprint = self._fingerprint()  # before the files are read: a change meanwhile counts as one after it
        with ExitStack() as opened:
            reader = StoreReader.open(
                self.path,
                self.reading.config,
                given=self.reading.given,
                progress=self._note_progress,
                trusts_writer=True,
                skips_lost=True,
                reads_queue=holds_pending,
            )
            opened.callback(reader.close)
            took_ms = (self.clock.monotonic_s() - began_s) * 1000
            snapshot = Snapshot(reader, summarize(self.path, reader), self.clock.now_ms(), took_ms, fingerprint)
            opened.pop_all()
        return snapshot

    def _close_later(self, after_s: float) -> None:
        """Close the view when it has not been used for ``after_s``. The caller has the guard."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = threading.Timer(after_s, self._close_idle, (after_s,))
        self._idle_timer.daemon = True
        self._idle_timer.start()

    def _close_idle(self, after_s: float) -> None:
        with self._guard:
            if self._is_closed:
                return
            if self._opening is not None or self.clock.monotonic_s() - self._used_s < after_s:
                self._close_later(after_s)
                return
            snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.release()

    @property
    def is_open(self) -> bool:
        """Whether there is a view."""
        return self._snapshot is not None

    def _note_progress(self, step: str, done: int, total: int) -> None:
        opening = self._opening
        if opening is not None:
            self._opening = OpeningProgress(opening.began_ms, step, done, total)

    def close(self) -> None:
        """Close the view when no page uses it."""
        with self._guard:
            self._is_closed = True
            snapshot, self._snapshot = self._snapshot, None
            if self._idle_timer is not None:
                self._idle_timer.cancel()
        if snapshot is not None:
            snapshot.release()


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return -1
