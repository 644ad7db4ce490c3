"""The queues, the index, the tables and the checkpoint that belong to the whole log files of an archive.

The obvious way copies the source's own queues and index, and cuts what points behind the last whole log file. It copies
their damage, and what a broker is writing at that moment. Here the store's own dispatchers make them of the log, while
it is read to check its CRCs, so they are byte for byte what a store with this log has. Only the last file of each queue
and of the index changes when the log grows. These files wait in a directory of this machine between two rounds; when an
archiver begins, it fetches them from the archive.

Two kinds of queues are copied from the source: those of which the log has no record, because their files have their
next offset, and light queues, which no dispatcher makes.

Thread rule: one thread; the index is written by a second one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from gantrymq.archive.source import ArchiveSource
from gantrymq.archive.tables import ArchivedTables
from gantrymq.archive.target import ArchiveTarget, chunks_of, reading
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format import names
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.format.names import is_index_name, offset_name, parse_offset_name
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.format.record import CheckCRC
from gantrymq.fs.api import FileSystem
from gantrymq.kernels import codes
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.index.index_dispatch import IndexDispatcher, IndexWorker
from gantrymq.store.index.index_service import IndexService
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.log.record_batch import LARGE_BATCH_RECORDS, DigestScan, RecordBatch
from gantrymq.store.log.scan_ahead import ScanAhead
from gantrymq.store.paths import StorePaths, offset_files
from gantrymq.store.queue.consume_queues import ConsumeQueues, is_light
from gantrymq.store.queue.queue_dispatch import QueueDispatcher
from gantrymq.store.recovery.recovery import Progress
from gantrymq.tools.read.intact_records import IntactRecords
from gantrymq.tools.read.queue_files import QueueFiles, begin_of, loaded_queues, queue_directories
from gantrymq.tools.reports import LostRange

STEP = "Archiving"
SETTLED_MS, _MARK_EVERY_MS = 600_000, 10_000
_QUEUES, _INDEX = f"{names.CONSUME_QUEUE}/", f"{names.INDEX}/"


@dataclass(slots=True)
class LogRead:
    """What the log was read to: its end, the ranges without a whole record, and the store time of the newest record.

    ``records_end`` is after the last record: where a start sees the end of a log whose last file a blank closes.
    ``marks`` has the store times and physical offsets of some records of the last ten minutes, and of one before.
    """

    end: int
    stored_ms: int = 0
    records_end: int = 0
    marks: list[tuple[int, int]] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)

    @property
    def settled_ms(self) -> int:
        """Ten minutes before the newest record."""
        return max(self.stored_ms - SETTLED_MS, 0)

    @property
    def settled_offset(self) -> int:
        """Where the log was then, at the latest."""
        return max((offset for stored_ms, offset in self.marks if stored_ms <= self.settled_ms), default=0)

    def note(self, batch: RecordBatch) -> None:
        """Take over the times of a batch."""
        times, offsets = batch.columns[[codes.STORE_TIMESTAMP, codes.PHY_OFFSET], : batch.count]
        self.stored_ms, self.records_end = max(self.stored_ms, int(times.max())), batch.end_offset
        if not self.marks or times[0] >= self.marks[-1][0] + _MARK_EVERY_MS:
            self.marks.append((int(times[0]), int(offsets[0])))
        older = sum(stored_ms <= self.settled_ms for stored_ms, _ in self.marks)
        del self.marks[: max(older - 1, 0)]


class Staging:
    """The files below ``work``, an empty directory of the local file system ``fs``; ``config`` has the file sizes."""

    def __init__(self, fs: FileSystem, work: Path, config: MessageStoreConfig) -> None:
        self._fs, self.paths = fs, StorePaths(work)
        self._config = replace(
            config,
            enable_consume_queue_ext=False,  # extended units only hold tags codes, which the records have too
            store_path_commit_log="",
            read_only_commit_log_store_paths="",
        )

    def fetch(self, target: ArchiveTarget, listed: Collection[str], summed_up: Collection[str]) -> list[str]:
        """Fetch what may still change of the ``listed`` files: the last one of each queue and of the index, checkpoint.

        ``summed_up`` are those that a finished round has written: what is later, or was the last one, is fetched, too.
        Returns the names.
        """
        present = sorted(filter(_is_growing, listed))
        last = {_directory(name): name for name in present}
        finished = {_directory(name): name for name in sorted(filter(_is_growing, summed_up))}
        fetched = [name for name in present if name >= min(finished.get(_directory(name), ""), last[_directory(name)])]
        fetched += [name for name in listed if name == names.CHECKPOINT]
        for name in fetched:
            path = self.paths.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with reading(target, name) as stream, path.open("wb") as out:
                for chunk in chunks_of(stream):
                    out.write(chunk)
        return fetched

    def files(self) -> dict[str, int]:
        """The length in bytes of each file, by its path in the archive. Backups of tables are left out."""
        files = {}
        for path in sorted(self.paths.root.rglob("*")):
            if path.is_file() and not path.name.endswith((".bak", ".tmp")):
                files[path.relative_to(self.paths.root).as_posix()] = path.stat().st_size
        return files

    def dispatch(
        self, fs: FileSystem, source: ArchiveSource, files: list[LogFile], read: LogRead, progress: Progress | None
    ) -> None:
        """Read whole log files, the next ones of the archive, and extend the queues and the index by them.

        ``fs`` has the files, ``read`` is extended. Raises DiskFullError and DiskError of the local disk.
        """
        config, tables = self._config, ArchivedTables(source, self._fs, self.paths)
        check = CheckCRC.WHOLE_RECORD if config.force_verify_prop_crc else CheckCRC.BODY
        scan = partial(DigestScan, codes.CHECK_MARK, config.delay_levels_ms, LARGE_BATCH_RECORDS)
        queues = ConsumeQueues(self._fs, self.paths, config)
        checkpoint = StoreCheckpoint(self._fs, self.paths.checkpoint)
        deleted = tables.deleted_ends(files[-1].end)
        full_files_ms: list[int] = []
        geometry = config.max_hash_slot_num, config.max_index_num
        index = IndexService(self._fs, self.paths.index, *geometry, full_files_ms.append, streams=True)
        with closing(queues), closing(index), ScanAhead(partial(scan, sets=1)) as ahead:
            queues.load()
            queues.recover(files[-1].end)
            queues.drop_deleted(deleted)
            index.load()
            dispatcher = QueueDispatcher(
                queues,
                config.delay_levels_ms,
                checkpoint,
                begin_of=partial(begin_of, fs, source.paths.consume_queue, config.mapped_file_size_consume_queue),
                deleted_ends=lambda: deleted,
            )
            indexer = IndexDispatcher(index, max(files[0].base, index.end_phy_offset + 1 if index.files else 0))
            records = IntactRecords(fs, files, scan(), ahead, moves_records=False, check=check)
            with IndexWorker(indexer if config.message_index_enable else None) as beside:
                for batch in records:
                    beside.dispatch(batch)
                    dispatcher.dispatch(batch)
                    read.note(batch)
                    if progress is not None:
                        progress(STEP, batch.end_offset - files[0].base, records.total_bytes)
            if (full := indexer.disk_full()) is not None:
                raise full
            queues.flush()
            index.flush()
        read.end = files[-1].end
        read.lost += [gap for gap in (*records.contents.gaps, *records.contents.misplaced) if gap.start < gap.end]
        self._note(checkpoint, read, full_files_ms)
        self._copy_queues(source, files, read.end)

    def _note(self, checkpoint: StoreCheckpoint, read: LogRead, full_files_ms: list[int]) -> None:
        before, queued_offset = checkpoint.page, checkpoint.tmp_logics_physical_offset
        queued_ms = checkpoint.tmp_logics_msg_timestamp_ms
        # A time without an offset would cover every record of that millisecond (StoreCheckpoint.queues_flushed).
        checkpoint.page = Checkpoint(
            physic_msg_timestamp_ms=read.stored_ms,
            logics_msg_timestamp_ms=queued_ms if queued_offset > 0 else before.logics_msg_timestamp_ms,
            index_msg_timestamp_ms=full_files_ms[-1] if full_files_ms else before.index_msg_timestamp_ms,
            confirm_phy_offset=max(read.records_end, before.confirm_phy_offset),
            logics_physical_offset=queued_offset if queued_offset > 0 else before.logics_physical_offset,
        )
        checkpoint.flush()

    def _copy_queues(self, source: ArchiveSource, files: list[LogFile], end: int) -> None:
        size = self._config.mapped_file_size_consume_queue
        for queue in loaded_queues(source.fs, source.paths.consume_queue, size):
            directory = self.paths.consume_queue / queue.topic / str(queue.queue_id)
            light = is_light(queue.topic)
            if queue.end == queue.first or (self._fs.scan(directory) and not light):
                continue
            bases = sorted(base for base in queue.sizes if base < queue.end * UNIT_SIZE)
            for base in bases if light else bases[-1:]:
                self._copy_cut(queue, base, directory / offset_name(base), end)

    def _copy_cut(self, queue: QueueFiles, base: int, path: Path, end: int) -> None:
        """Copy a file of a queue up to its first unit that points to ``end`` or behind."""
        size = self._config.mapped_file_size_consume_queue
        units = queue.units(base // UNIT_SIZE, (base + size) // UNIT_SIZE)
        behind = np.flatnonzero(~units.is_filler & (units.phy_offsets + units.sizes > end))
        remaining = units.raw[: int(behind[0]) * UNIT_SIZE] if len(behind) else units.raw
        if (
            units.is_filler[: len(remaining) // UNIT_SIZE] | (units.phy_offsets[: len(remaining) // UNIT_SIZE] < 0)
        ).all():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            out.write(remaining.tobytes())
            out.truncate(size)

    def ends(self) -> Mapping[tuple[str, int], int]:
        """Where each queue ends."""
        size = self._config.mapped_file_size_consume_queue
        return {
            (queue.topic, queue.queue_id): queue.end
            for queue in loaded_queues(self._fs, self.paths.consume_queue, size)
        }

    def prune(self) -> None:
        """Remove the files that do not change any more: all but the last one of each queue and of the index."""
        for path in self._unchanging():
            path.unlink()

    def _unchanging(self) -> Iterator[Path]:
        for _, _, directory in queue_directories(self._fs, self.paths.consume_queue)[0]:
            yield from (file.path for file in offset_files(self._fs, [directory])[:-1])
        yield from sorted(self.paths.index.glob("*"))[:-1]


def _directory(name: str) -> str:
    return name.rpartition("/")[0]


def _is_growing(name: str) -> bool:
    """Whether a path is that of a file of a queue or of the index."""
    base = name.rpartition("/")[2]
    is_of_queue = name.startswith(_QUEUES) and parse_offset_name(base) is not None
    return is_of_queue or (name.startswith(_INDEX) and is_index_name(base))
