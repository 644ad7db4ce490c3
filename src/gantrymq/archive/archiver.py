"""Archives a store round by round, so that the archive is a store at every moment.

The order of one round, if anything has changed::

    abort        from now on a reader treats the archive as a store that was not closed
    commitlog/   the new whole log files
    queues, index, config/, checkpoint    those that have changed, each replaced in one step
    archive.json the summary of all files
    abort        leaves: the archive has exactly the files of its summary

A kill leaves the archive before the round, or one with more of the log, and ``abort``. A start of a broker on a copy of
that dispatches the rest of the log, as after any crash. The next archiver completes it: a log file that is there
already is kept if its checksum is right.

A round takes at most 8 new log files, so that little work is lost.

Thread rule: one thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from gantrymq.archive.source import ArchiveSource, HeldFiles, StreamEnds, chunks_of_file, edges_of, held
from gantrymq.archive.staging import LogRead, Staging
from gantrymq.archive.summary import (
    NAME,
    ArchivedFile,
    ArchiveSummary,
    DamagedPart,
    decode_summary,
    is_signed,
    log_base,
    log_name,
)
from gantrymq.archive.tables import ArchivedEnd, ArchivedTables
from gantrymq.archive.target import ArchiveTarget, chunks_of, content_now, described, read_small, reading
from gantrymq.archive.work_directory import WorkDirectory
from gantrymq.clock import Clock
from gantrymq.errors import ArchiveError
from gantrymq.format import names
from gantrymq.fs.api import File
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.recovery.recovery import Progress

_FILES_A_ROUND = 8
_OWN = {NAME, names.ARCHIVE_WRITER, names.LOCK, names.ABORT}
_TABLES = f"{names.CONFIG}/"


@dataclass(slots=True)
class Round:
    """What a round did: the new log files, how many bytes it wrote, and the tables that could not be used."""

    log_files: list[str] = field(default_factory=list)
    written_bytes: int = 0
    unusable: list[str] = field(default_factory=list)
    is_last: bool = True


class Archiver:
    """Archives ``source`` to ``target``; use it as a context manager. ``key`` signs the summary.

    ``summary`` is what the archive has.
    """

    def __init__(self, source: ArchiveSource, target: ArchiveTarget, clock: Clock, key: bytes | None = None) -> None:
        self._source, self._target, self._clock, self._key = source, target, clock, key
        self._fs = RealFileSystem()
        config = source.config
        sizes = config.mapped_file_size_commit_log, config.mapped_file_size_consume_queue
        self.summary = ArchiveSummary(*sizes, config.max_hash_slot_num, config.max_index_num)
        self._is_unfinished = False
        self._sizes: dict[str, int] = {}
        self._known: dict[str, ArchivedFile] = {}  # what is staged, without the tables
        self._broken: set[str] = set()  # log files of the summary that the place no longer has as they were

    def __enter__(self) -> Archiver:
        """Become the only writer, and take up the archive that is there.

        Raises StoreLockedError, and ArchiveError if the place has something else, or an archive of another log.
        """
        raw = self._require_place()
        if raw is not None:  # refuse before the claim, which writes
            summary = decode_summary(raw, self._key, self._target.text)
            self._source.require_same_log(summary, self._source.files(), self._target.text)
        self._target.claim()
        try:
            self._directory = WorkDirectory()
            try:
                self._take_up()
            except BaseException:
                self._directory.remove()
                raise
        except BaseException:
            self._target.release()
            raise
        return self

    def _require_place(self) -> bytes | None:
        raw = read_small(self._target, NAME)
        others = () if raw is not None else sorted(set(self._target.sizes()) - _OWN)
        if others := [name for name in others if not name.startswith(f"{names.ARCHIVE_WORK}/")]:
            raise ArchiveError(self._target.text, f"is not an archive, and not empty: it has {others[0]}")
        if raw is not None and self._key is None and is_signed(raw):
            raise ArchiveError(self._target.text, "is signed: give the key, too (--sign-key)")
        return raw

    def _take_up(self) -> None:
        raw = self._require_place()
        self._sizes = self._target.sizes()
        self._is_unfinished = names.ABORT in self._sizes
        self._work = self._directory.path
        if raw is None:
            self._staging = Staging(self._fs, self._work, self._source.config)
            return
        self.summary = summary = decode_summary(raw, self._key, self._target.text)
        config = replace(
            self._source.config,
            mapped_file_size_commit_log=summary.log_size,
            mapped_file_size_consume_queue=summary.queue_size,
            max_hash_slot_num=summary.index_slots,
            max_index_num=summary.index_entries,
        )
        self._staging = Staging(self._fs, self._work, config)
        listed = self._sizes if self._is_unfinished else summary.files
        fetched = self._staging.fetch(self._target, listed, summary.files)
        if not self._is_unfinished:
            self._require_unchanged(fetched)

    def _require_unchanged(self, fetched: list[str]) -> None:
        self._known = {name: file_of(self._work / name) for name in fetched}
        for name, file in self.summary.files.items():
            is_same = self._sizes.get(name) == file.size and self._known.get(name, file) == file
            if log_base(name) is not None:
                if not is_same or self._edges(name, file.size) != self.summary.edges[name]:
                    self._broken.add(name)
            elif not is_same:
                text = "is not as the summary says; `gantrymq archive check` names all. Archive to another place"
                raise ArchiveError(f"{self._target.text}/{name}", text)

    def _edges(self, name: str, size: int) -> str:
        with reading(self._target, name) as stream:
            return edges_of(StreamEnds(stream), size)

    def __exit__(self, *_: object) -> None:
        """Let another archiver write."""
        self._directory.remove()
        self._target.release()

    def run_round(self, progress: Progress | None = None) -> Round:
        """Archive what is whole now, at most 8 log files, and the tables as they are now.

        Raises ArchiveError, DiskFullError, and the errors of reading the store. The archive is valid then.
        """
        files = self._source.files()
        self._source.require_same_log(self.summary, files, self._target.text)
        self._mend(files)
        end = self.summary.max_offset
        has_log = bool(self.summary.edges)
        new = [file for file in self._source.whole_files(files) if not has_log or file.base >= end]
        is_last = len(new) <= _FILES_A_ROUND
        with held(self._source.fs, new[:_FILES_A_ROUND]) as opened:
            new = [file for file in new[:_FILES_A_ROUND] if file.path in opened]
            if new and has_log and new[0].base != end:
                raise ArchiveError(self._target.text, f"the log file at {end} was deleted before it was archived")
            done = self._archive(new, opened, progress)
        done.is_last = is_last
        return done

    def _mend(self, files: list[LogFile]) -> None:
        """Put log files again that the place lost or changed. Raises ArchiveError if the store has them no longer."""
        for name in sorted(self._broken):
            file = next((file for file in files if log_name(file.base) == name), None)
            with held(self._source.fs, [file] if file is not None else []) as opened:
                expected = self.summary.files[name]
                for each in opened.values():
                    if described(chunks_of_file(each, expected.size)) == expected:
                        self._target.put(name, chunks_of_file(each, expected.size))
                        self._broken.discard(name)
            if name in self._broken:
                text = "is not as the summary says, and the store no longer has it; archive to another place"
                raise ArchiveError(f"{self._target.text}/{name}", text)

    def _archive(self, new: list[LogFile], opened: Mapping[Path, File], progress: Progress | None) -> Round:
        done, before = Round(), self.summary
        read = LogRead(before.max_offset, before.stored_ms, marks=list(before.marks))
        if new:
            held_fs = HeldFiles(self._source.fs, opened).as_file_system()
            self._staging.dispatch(held_fs, self._source, self._source.own(new), read, progress)
        elif not before.files:
            StoreCheckpoint(self._fs, self._staging.paths.checkpoint).flush()
        at = ArchivedEnd(read.end, read.settled_offset, read.settled_ms)
        done.unusable = ArchivedTables(self._source, self._fs, self._staging.paths).copy(at, self._staging.ends())
        staged = self._staged(is_extended=bool(new))
        changed = [name for name, file in staged.items() if self._is_unfinished or before.files.get(name) != file]
        removed = self._removed_names(before.files, staged)
        if new or changed or removed or self._is_unfinished:
            self._begin()
            for name in removed:  # before the new ones: units of a queue that began again must not precede old ones
                self._target.remove(name)
            files = {name: file for name, file in before.files.items() if name not in removed} | staged
            edges = dict(before.edges)
            for file in new:
                name = log_name(file.base)
                files[name], edges[name] = self._put_log(name, opened[file.path], file.size_bytes, done, progress)
            for name in changed:
                done.written_bytes += self._target.put(name, _chunks(self._work / name)).size
            self.summary = self._extended(read, files, edges)
            self._end()
        self._staging.prune()
        return done

    def _extended(self, read: LogRead, files: Mapping[str, ArchivedFile], edges: Mapping[str, str]) -> ArchiveSummary:
        size = self.summary.log_size
        damage = (
            DamagedPart(log_name(gap.start - gap.start % size), gap.start, gap.end, str(gap.reason))
            for gap in read.lost
        )
        bases = [base for name in edges if (base := log_base(name)) is not None]
        return replace(
            self.summary,
            min_offset=min(bases, default=0),
            max_offset=read.end,
            stored_ms=read.stored_ms,
            made_ms=self._clock.now_ms(),
            files=files,
            edges=edges,
            damage=(*self.summary.damage, *damage),
            marks=tuple(read.marks),
        )

    def _staged(self, *, is_extended: bool) -> dict[str, ArchivedFile]:
        """The staged files. Queues and index are read again only if the log was extended."""
        staged = {}
        for name in self._staging.files():
            is_table = name.startswith(_TABLES)
            known = None if is_extended or is_table else self._known.get(name)
            staged[name] = known or file_of(self._work / name)
        self._known = {name: file for name, file in staged.items() if not name.startswith(_TABLES)}
        return staged

    @staticmethod
    def _removed_names(before: Mapping[str, ArchivedFile], staged: Mapping[str, ArchivedFile]) -> set[str]:
        """The files of the archive that leave: lost tables, and the files of queues that began again."""
        removed = {name for name in before if name.startswith(_TABLES) and name not in staged}
        of_queues: dict[str, list[str]] = {}
        for name in before:
            if name.startswith(f"{names.CONSUME_QUEUE}/"):
                of_queues.setdefault(name.rpartition("/")[0], []).append(name)
        for each in of_queues.values():
            if max(each) not in staged:  # the last one is staged as long as the queue goes on
                removed.update(name for name in each if name not in staged)
        return removed

    def _begin(self) -> None:
        self._target.require_claim()
        if not self.summary.made_ms and NAME not in self._sizes:  # so that the place is known as an archive
            self._target.put(NAME, [self.summary.encode(self._key)])
        self._target.put(names.ABORT, [str(os.getpid()).encode()])
        self._is_unfinished = True

    def _put_log(
        self, name: str, file: File, size: int, done: Round, progress: Progress | None
    ) -> tuple[ArchivedFile, str]:
        """Archive a log file, unless it is there already. Returns the file, and the checksum of its ends."""
        done.log_files.append(name)
        if self._sizes.get(name) == size:
            own = described(chunks_of_file(file, size))
            with suppress(FileNotFoundError):
                if content_now(self._target, name) == own:
                    return own, edges_of(file, size)
        done.written_bytes += size
        chunks = _reported(chunks_of_file(file, size), f"Copying {name}", size, progress)
        return self._target.put(name, chunks), edges_of(file, size)

    def _end(self) -> None:
        self._target.require_claim()
        self._target.put(NAME, [self.summary.encode(self._key)])
        self._target.remove(names.ABORT)
        self._is_unfinished = False
        self._sizes = {}


def file_of(path: Path) -> ArchivedFile:
    """The size and checksum of a file of this machine."""
    return described(_chunks(path))


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        yield from chunks_of(stream)


def _reported(chunks: Iterator[bytes], step: str, size: int, progress: Progress | None) -> Iterator[bytes]:
    done = 0
    for chunk in chunks:
        yield chunk
        done += len(chunk)
        if progress is not None:
            progress(step, done, size)
