"""Consume queues and index files anew from the commit log.

What is made is what the store itself would have made by dispatching: the same dispatchers make it, byte for byte, from
every whole record of the log. They write beside the store, into ``rebuild.tmp``; only when all of it is on the disk do
the new files take the places of the old ones. Before the first one moves, ``abort`` and a checkpoint that vouches for
nothing are on the disk: a store whose rebuild was killed half-way is one that was not closed, and opening it, here or
with RocketMQ, dispatches the whole log again.

The log is never changed. Damage in it is passed over and reported; the slots of lost messages are filled, so that
offsets keep their meaning. A queue without a single record in the log is left as it is: its files know its next offset.

Thread rule: one rebuild of a store at a time, which its lock sees to. Three threads read, as in recovery.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from gantrymq.clock import SystemClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import StoreError
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.format.names import LOCK_TEXT
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.commit_log import CommitLog
from gantrymq.store.consume_queues import ConsumeQueues
from gantrymq.store.geometry import require_store
from gantrymq.store.index_dispatch import IndexDispatcher
from gantrymq.store.index_service import IndexService
from gantrymq.store.log_scanner import RecordBatch, one_ahead
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue_dispatch import QueueDispatcher
from gantrymq.tools.file_swap import FileSwap, clear_directory
from gantrymq.tools.intact_records import IntactRecords, LostRange
from gantrymq.tools.log_files import log_files
from gantrymq.tools.store_sizes import store_sizes
from gantrymq.tools.verify import Progress

STEP = "Rebuilding"
WORK_DIRECTORY = "rebuild.tmp"


@dataclass(slots=True)
class RebuildReport:
    """What was made of what. ``lost`` are the places of the log where no whole record lies, but for its end."""

    queues_rebuilt: bool
    index_rebuilt: bool
    last_exit_ok: bool = True
    min_phy_offset: int = -1
    max_phy_offset: int = 0
    records: int = 0
    queues: int = 0
    queue_units: int = 0
    queue_files: int = 0
    index_files: int = 0
    index_entries: int = 0
    removed_files: int = 0
    lost: list[LostRange] = field(default_factory=list)
    steps_ms: dict[str, float] = field(default_factory=dict)


class _Rebuild:
    """One rebuild under the lock of the store."""

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        config: MessageStoreConfig,
        given: Collection[str],
        progress: Progress | None,
        report: RebuildReport,
    ) -> None:
        self._fs = fs
        self._paths = StorePaths(path)
        self._work = StorePaths(path / WORK_DIRECTORY)
        self._config = config
        self._given = given
        self._progress = progress
        self._report = report
        self._clock = SystemClock()
        self._index_flushed_ms = 0

    def run(self) -> None:
        report = self._report
        report.last_exit_ok = not self._fs.exists(self._paths.abort)
        config = store_sizes(self._fs, self._paths, self._config, self._given, index=report.index_rebuilt)
        # What the store refuses to open must not look as if it were mended.
        CommitLog(self._fs, self._paths.commit_log, config.mapped_file_size_commit_log).load()
        files, _ = log_files(self._fs, self._paths.commit_log)
        if not files:
            raise StoreError(self._paths.commit_log, "there is no commit log to rebuild from")
        clear_directory(self._fs, self._work.root)
        with self._step("read"):
            scratch = self._build(IntactRecords(self._fs, files), config)
        with self._step("swap"):
            self._swap(scratch)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        began_s = self._clock.monotonic_s()
        yield
        self._report.steps_ms[name] = round((self._clock.monotonic_s() - began_s) * 1000, 3)

    # Beside the store

    def _build(self, records: IntactRecords, config: MessageStoreConfig) -> StoreCheckpoint:
        """Make the files; they are on the disk when this returns."""
        report, scratch = self._report, StoreCheckpoint(self._fs, self._work.checkpoint)
        queues = ConsumeQueues(self._fs, self._work, config)
        dispatcher = QueueDispatcher(queues, config.delay_levels_ms, scratch)
        index = IndexService(
            self._fs, self._work.index, config.max_hash_slot_num, config.max_index_num, self._note_full_file
        )
        indexer = IndexDispatcher(index, 0)
        try:
            with ThreadPoolExecutor(1, "IndexDispatcher") as pool:
                for batch in one_ahead(records):
                    indexing = pool.submit(indexer.dispatch, batch, None) if report.index_rebuilt else None
                    if report.queues_rebuilt:
                        dispatcher.dispatch(batch)
                    if indexing is not None:
                        indexing.result()
                    self._report_progress(records, batch)
            queues.flush()
            index.flush()
        finally:
            queues.close()
            report.index_files = len(index.files)
            index.close()
        report.min_phy_offset, report.max_phy_offset = records.min_offset, records.end_offset
        report.records, report.lost = records.records, records.lost()
        report.queues, report.queue_units, report.index_entries = len(queues), dispatcher.added, indexer.added
        return scratch

    def _note_full_file(self, end_timestamp_ms: int) -> None:
        self._index_flushed_ms = end_timestamp_ms

    def _report_progress(self, records: IntactRecords, batch: RecordBatch) -> None:
        if self._progress is not None:
            self._progress(STEP, batch.end_offset - records.min_offset, records.total_bytes)

    # Into it

    def _swap(self, scratch: StoreCheckpoint) -> None:
        paths, work, report = self._paths, self._work, self._report
        swap = FileSwap(self._fs)
        if report.queues_rebuilt:
            swap.add_below(work.consume_queue, paths.consume_queue)
            swap.add_below(work.consume_queue_ext, paths.consume_queue_ext)
            report.queue_files = swap.count
        if report.index_rebuilt:
            swap.add(work.index, paths.index)
        checkpoint = StoreCheckpoint(self._fs, paths.checkpoint)
        before = replace(checkpoint.page)
        self._distrust(checkpoint)
        report.removed_files = swap.run()
        checkpoint.page = self._page(before, scratch)
        checkpoint.flush()
        if report.last_exit_ok:
            self._fs.remove(paths.abort)
        self._fs.sync_directory(paths.root)
        clear_directory(self._fs, work.root)

    def _distrust(self, checkpoint: StoreCheckpoint) -> None:
        """From here on whoever opens the store dispatches all of the log again."""
        file = self._fs.open(self._paths.abort, writable=True, create=True)
        try:
            file.sync()
        finally:
            file.close()
        self._fs.sync_directory(self._paths.root)
        checkpoint.page = Checkpoint()
        checkpoint.flush()

    def _page(self, before: Checkpoint, scratch: StoreCheckpoint) -> Checkpoint:
        """What the checkpoint may vouch for now."""
        page = replace(before)
        if self._report.queues_rebuilt:
            page.logics_msg_timestamp_ms = scratch.tmp_logics_msg_timestamp_ms
            page.logics_physical_offset = scratch.tmp_logics_physical_offset
        if self._report.index_rebuilt:
            page.index_msg_timestamp_ms = self._index_flushed_ms
        return page


def rebuild_store(
    path: str | Path,
    config: MessageStoreConfig | None = None,
    *,
    queues: bool = True,
    index: bool = True,
    given: Collection[str] = (),
    fs: FileSystem | None = None,
    progress: Progress | None = None,
) -> RebuildReport:
    """Make consume queues and index files of the store at ``path`` anew; arguments as with ``MessageStore.open``.

    Without messageIndexEnable there is no index to make. A store that was not closed stays so: the next open recovers
    it. Raises NotAStoreError, StoreLockedError, WrongFileSizeError (where the log could not be opened),
    AmbiguousGeometryError, DiskFullError, StorePermissionError; after any of them the store is as it was, or as one
    that was not closed.
    """
    fs, path = fs or RealFileSystem(), Path(path)
    require_store(fs, path)
    config = config or MessageStoreConfig()
    report = RebuildReport(queues, index and config.message_index_enable)
    lock = fs.lock(StorePaths(path).lock, LOCK_TEXT)
    try:
        _Rebuild(fs, path, config, given, progress, report).run()
    finally:
        lock.release()
    return report
