"""A new, clean store from every whole record of a damaged one, which is only read.

Records keep their physical offsets and their queue offsets: message ids, half messages and consumers' offsets stay
true (:mod:`gantrymq.tools.log_copy` says what stands in the gaps). Queues and index are made anew from the copy; the
slots of lost messages are filled, so that consumers pass over them. The old queues, index and checkpoint are not
believed, with one exception: a queue of which the log has no record keeps its last file where that is sound, for it
knows the queue's next offset. The JSON of ``config/`` comes along where it can be read.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import StoreError
from gantrymq.format.properties import CRC_PROPERTY_SIZE, encode_crc_property
from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, UNIT_SIZE
from gantrymq.format.record import PHY_OFFSET_AT
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.kernels import codes
from gantrymq.model.message import PROPERTY_CRC32
from gantrymq.store.config_file import parse_config
from gantrymq.store.geometry import INDEX_KEYS
from gantrymq.store.log_scanner import RecordBatch, one_ahead
from gantrymq.store.paths import StorePaths
from gantrymq.tools.intact_records import IntactRecords, LostRange
from gantrymq.tools.log_copy import LogCopy
from gantrymq.tools.log_files import LogFile, log_files
from gantrymq.tools.queue_files import QueueFiles, as_units, queue_directories
from gantrymq.tools.rebuild import RebuildReport, rebuild_store
from gantrymq.tools.store_sizes import log_file_size, queue_file_size, store_sizes
from gantrymq.tools.verify import Progress

STEP = "Salvaging"
_CRC_PROPERTY = PROPERTY_CRC32.encode() + b"\x01"
_SIZE_KEYS = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", *INDEX_KEYS)


@dataclass(slots=True)
class SalvageReport:
    """What was saved and what was not. ``lost`` are the places of the log, but for its end, that held no whole record.

    ``mended`` counts records that said that they lay elsewhere; ``kept_queues`` those without a record whose last
    file was taken over, ``lost_queues`` (topic, queue id) those that begin at offset 0 again. ``skipped_files`` have a
    name that is no multiple of the file size; ``tail_bytes`` is what was written behind the last whole record.
    """

    records: int = 0
    record_bytes: int = 0
    mended: int = 0
    min_phy_offset: int = -1
    max_phy_offset: int = 0
    tail_bytes: int = 0
    skipped_files: list[Path] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    queues: int = 0
    queue_units: int = 0
    index_entries: int = 0
    kept_queues: int = 0
    lost_queues: list[tuple[str, int]] = field(default_factory=list)
    config_files: int = 0
    broken_config_files: list[str] = field(default_factory=list)

    @property
    def lost_bytes(self) -> int:
        """How many bytes the lost places have."""
        return sum(one.end - one.start for one in self.lost)


class _Salvage:
    """One salvage of ``source`` into ``target``."""

    def __init__(
        self,
        fs: FileSystem,
        source: Path,
        target: Path,
        config: MessageStoreConfig,
        given: Collection[str],
        progress: Progress | None,
    ) -> None:
        self._fs = fs
        self._source = StorePaths(source)
        self._target = StorePaths(target)
        self._config = config
        self._given = given
        self._progress = progress
        self._report = SalvageReport()

    def run(self) -> SalvageReport:
        files = self._files()
        sizes = self._sizes()
        self._mark_unfinished()
        self._copy_log(files, sizes.mapped_file_size_commit_log)
        self._copy_config()
        rebuilt = rebuild_store(self._target.root, sizes, given=_SIZE_KEYS, fs=self._fs, progress=self._progress)
        self._note_rebuilt(rebuilt)
        self._keep_queues(sizes.mapped_file_size_consume_queue)
        self._fs.remove(self._target.abort)
        self._fs.sync_directory(self._target.root)
        return self._report

    def _sizes(self) -> MessageStoreConfig:
        """The sizes that most files have; where index files are broken beyond knowing, those of the settings."""
        try:
            return store_sizes(self._fs, self._source, self._config, self._given, index=True)
        except StoreError:
            return replace(
                self._config,
                mapped_file_size_commit_log=log_file_size(self._fs, self._source, self._config, self._given),
                mapped_file_size_consume_queue=queue_file_size(self._fs, self._source, self._config, self._given),
            )

    def _files(self) -> list[LogFile]:
        """The log's files, each as long as files are to be at most: what is behind that overlaps the next."""
        files, _ = log_files(self._fs, self._source.commit_log)
        size = log_file_size(self._fs, self._source, self._config, self._given)
        wanted = [replace(file, size_bytes=min(file.size_bytes, size)) for file in files if file.base % size == 0]
        self._report.skipped_files = [file.path for file in files if file.base % size]
        if not any(file.size_bytes for file in wanted):
            raise StoreError(self._source.commit_log, "there is no commit log to salvage")
        return wanted

    def _mark_unfinished(self) -> None:
        """Whoever opens what is there before the end has to recover it."""
        self._fs.make_directory(self._target.root)
        self._fs.open(self._target.abort, writable=True, create=True).close()
        self._fs.sync_directory(self._target.root)

    # The log

    def _copy_log(self, files: list[LogFile], file_size: int) -> None:
        records = IntactRecords(self._fs, files)
        copy: LogCopy | None = None
        for batch in one_ahead(records):
            if copy is None:
                append_crc = self._config.enabled_append_prop_crc or _has_crc_property(batch)
                copy = LogCopy(self._fs, self._target.commit_log, file_size, append_crc=append_crc)
                self._report.min_phy_offset = batch.start_offset - batch.start_offset % file_size
            self._copy_batch(copy, batch)
            if self._progress is not None:
                self._progress(STEP, batch.end_offset - records.min_offset, records.total_bytes)
        if copy is None:
            raise StoreError(self._source.commit_log, "there is no whole record in the commit log")
        copy.finish()
        report = self._report
        report.max_phy_offset = copy.position
        report.lost += records.found.lost()
        report.lost.sort(key=lambda one: one.start)
        report.tail_bytes = sum(one.end - one.start for one in records.found.tail() if one.reason != "zeros")

    def _copy_batch(self, copy: LogCopy, batch: RecordBatch) -> None:
        """Copy run by run of records that follow each other."""
        columns = batch.columns[:, : batch.count]
        starts = columns[codes.POS]
        ends = starts + columns[codes.SIZE]
        buffer = self._mended(batch, starts)
        cuts = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        for rows in np.split(np.arange(batch.count), cuts):
            self._copy_run(copy, batch, buffer, rows, starts, ends)

    def _copy_run(
        self,
        copy: LogCopy,
        batch: RecordBatch,
        buffer: NDArray[np.uint8],
        rows: NDArray[np.int64],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> None:
        base = batch.base
        # Only of a file of an odd size: a record that leaves no room for what must stand before or behind it.
        while len(rows) and not copy.can_take(base + int(starts[rows[0]]), base + int(ends[rows[0]])):
            rows = self._drop(rows, base, starts, ends, first=True)
        while len(rows) and not copy.can_take(base + int(starts[rows[0]]), base + int(ends[rows[-1]])):
            rows = self._drop(rows, base, starts, ends, first=False)
        if not len(rows):
            return
        start, end = int(starts[rows[0]]), int(ends[rows[-1]])
        stored_ms = int(batch.columns[codes.STORE_TIMESTAMP, rows[0]])
        copy.write(base + start, buffer[start:end].data, stored_ms)
        self._report.records += len(rows)
        self._report.record_bytes += end - start

    def _drop(
        self, rows: NDArray[np.int64], base: int, starts: NDArray[np.int64], ends: NDArray[np.int64], *, first: bool
    ) -> NDArray[np.int64]:
        row = rows[0 if first else -1]
        reason = "no room for filler in front of it" if first else "no room for a blank behind it"
        lost = LostRange(self._source.commit_log, base + int(starts[row]), base + int(ends[row]), reason)
        self._report.lost.append(lost)
        return rows[1:] if first else rows[:-1]

    def _mended(self, batch: RecordBatch, starts: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The bytes of the batch, with every record saying where it lies."""
        wrong = np.flatnonzero(batch.columns[codes.PHY_OFFSET, : batch.count] != starts + batch.base)
        if not len(wrong):
            return batch.buffer
        buffer = batch.buffer.copy()
        for row in wrong.tolist():
            at, size = int(starts[row]), int(batch.columns[codes.SIZE, row])
            place = (batch.base + at).to_bytes(8, "big")
            buffer[at + PHY_OFFSET_AT : at + PHY_OFFSET_AT + 8] = np.frombuffer(place, np.uint8)
            end = at + size
            if buffer[end - CRC_PROPERTY_SIZE : end].tobytes().startswith(_CRC_PROPERTY):
                crc = zlib.crc32(buffer[at : end - CRC_PROPERTY_SIZE].tobytes()) & 0x7FFFFFFF
                buffer[end - CRC_PROPERTY_SIZE : end] = np.frombuffer(encode_crc_property(crc), np.uint8)
        self._report.mended += len(wrong)
        return buffer

    # What stands around it

    def _note_rebuilt(self, rebuilt: RebuildReport) -> None:
        self._report.queues, self._report.queue_units = rebuilt.queues, rebuilt.queue_units
        self._report.index_entries = rebuilt.index_entries

    def _copy_config(self) -> None:
        for entry in self._fs.scan(self._source.config):
            if entry.is_directory or not entry.name.endswith((".json", ".json.bak")):
                continue
            file = self._fs.open(self._source.config / entry.name)
            try:
                raw = file.read_at(0, entry.size_bytes)
                parse_config(raw)
            except (OSError, ValueError):
                self._report.broken_config_files.append(entry.name)
                continue
            finally:
                file.close()
            self._write(self._target.config / entry.name, raw)
            self._report.config_files += 1

    def _keep_queues(self, file_size: int) -> None:
        """Take over the last files of queues that the log has no record of any more."""
        found, _ = queue_directories(self._fs, self._source.consume_queue)
        for topic, queue_id, directory in found:
            target = self._target.consume_queue / topic / str(queue_id)
            if self._fs.scan(target):
                continue
            files = QueueFiles(self._fs, directory, topic, queue_id, file_size)
            files.load()
            if files.end == files.first:
                continue
            base = (files.end - 1) * UNIT_SIZE // file_size * file_size
            if files.sizes.get(base) == file_size and self._is_sound(files, base // UNIT_SIZE):
                self._write(target / f"{base:020d}", files.units(base // UNIT_SIZE, (base + file_size) // UNIT_SIZE))
                self._report.kept_queues += 1
            else:
                self._report.lost_queues.append((topic, queue_id))

    def _is_sound(self, files: QueueFiles, first: int) -> bool:
        """Whether every unit of the last file points in front of the saved log, in rising order."""
        units = as_units(files.units(first, files.end))
        offsets = units["phy_offset"].astype(np.int64)[units["size"] != BLANK_UNIT_SIZE]
        is_rising = bool((np.diff(offsets) > 0).all())
        return len(offsets) > 0 and is_rising and offsets[0] >= 0 and int(offsets[-1]) < self._report.min_phy_offset

    def _write(self, path: Path, data: bytes | NDArray[np.uint8]) -> None:
        self._fs.make_directory(path.parent)
        file = self._fs.open(path, writable=True, create=True)
        try:
            file.write_at(0, data if isinstance(data, bytes) else data.data)
            file.sync()
        finally:
            file.close()
        self._fs.sync_directory(path.parent)


def _has_crc_property(batch: RecordBatch) -> bool:
    """Whether the store closes its records with a CRC of the whole."""
    end = int(batch.columns[codes.POS, 0] + batch.columns[codes.SIZE, 0])
    return batch.buffer[end - CRC_PROPERTY_SIZE : end].tobytes().startswith(_CRC_PROPERTY)


def salvage_store(
    source: str | Path,
    target: str | Path,
    config: MessageStoreConfig | None = None,
    *,
    given: Collection[str] = (),
    fs: FileSystem | None = None,
    progress: Progress | None = None,
) -> SalvageReport:
    """Make a clean store at ``target`` of every whole record at ``source``; arguments as with ``MessageStore.open``.

    ``target`` must be missing or an empty directory; ``source`` is only read, and its lock is not taken. Raises
    StoreError where there is nothing to salvage or ``target`` is not empty, DiskFullError, StorePermissionError.
    After an error ``target`` holds what there was until then, marked as not closed.
    """
    fs, source, target = fs or RealFileSystem(), Path(source), Path(target)
    if not fs.exists(source):
        raise StoreError(source, "does not exist")
    if fs.scan(target):
        raise StoreError(target, "is not empty; a salvaged store needs a directory of its own")
    if target.absolute().is_relative_to(source.absolute()):
        raise StoreError(target, "lies in the store that is to be salvaged, which is only read")
    return _Salvage(fs, source, target, config or MessageStoreConfig(), given, progress).run()
