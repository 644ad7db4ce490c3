"""Cuts what a slave has and its master does not have, and keeps it beside the store.

The cut records go into ``STORE/diverged/CUT-END/commitlog``, at their own offsets in files of the same names, the rest
of which is a hole: ``store salvage`` makes a store of them. If an earlier cut has the directory, the next one is
``CUT-END-2``, and so on. The steps, each durable before the next one, so that a
crash leaves the whole log, or a cut that the next start finishes:

1. the files of the cut records, under a temporary name, and then under their own
2. ``config/divergence.json`` says that a cut has begun
3. the log files after the cut are removed, newest first, and the rest of the file with the cut reads as zeros
4. a recovery drops the units and the index entries of the cut records
5. ``config/divergence.json`` is emptied

Thread rule: one thread, and no other process has the store open.
"""

from __future__ import annotations

from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import StoreError
from gantrymq.format.names import COMMIT_LOG, DIVERGED, LOCK_TEXT, offset_name
from gantrymq.fs.api import FileSystem
from gantrymq.ha.divergence import Divergence, DivergenceFile
from gantrymq.store.geometry import find_file_sizes
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.message_store import MessageStore
from gantrymq.store.opening import write_abort
from gantrymq.store.paths import StorePaths

_PIECE_BYTES = 1 << 20
_TEMPORARY = ".tmp"


class Cut(NamedTuple):
    """What a cut has removed, and the directory that has it now."""

    divergence: Divergence
    directory: Path

    @property
    def size_bytes(self) -> int:
        """The number of bytes that were cut."""
        return self.divergence.end_offset - self.divergence.cut_offset


def finish_cut(path: Path, config: MessageStoreConfig, fs: FileSystem) -> None:
    """Finish a cut that a crash has interrupted. Call it before a store is opened. Raises what :func:`cut` raises."""
    paths = StorePaths.of(path, config)
    if fs.exists(paths.config):
        divergence = DivergenceFile(fs, paths.config).load()
        if divergence is not None and divergence.is_cutting:
            _cut(path, config, fs, divergence)


def cut(path: Path, config: MessageStoreConfig, fs: FileSystem) -> Cut | None:
    """Cut what ``config/divergence.json`` names; None if it names nothing.

    Raises StoreLockedError, StoreError, DiskFullError before anything is cut. After another error the next call, or
    :func:`finish_cut`, continues.
    """
    divergence = DivergenceFile(fs, StorePaths.of(path, config).config).load()
    if divergence is None:
        return None
    if not divergence.is_cutting and _recovered_end(path, config, fs) > divergence.end_offset:
        # It was a master since, or another one's slave.
        raise StoreError(path, "its log has grown since it was found to differ; start it again as a slave")
    return _cut(path, config, fs, divergence)


def _cut(path: Path, config: MessageStoreConfig, fs: FileSystem, divergence: Divergence) -> Cut:
    paths = StorePaths.of(path, config)
    note = DivergenceFile(fs, paths.config)
    lock = fs.lock(paths.lock, LOCK_TEXT)
    try:
        log = CommitLog(fs, paths, find_file_sizes(fs, paths, config, ()).mapped_file_size_commit_log)
        log.load()
        try:
            if not divergence.is_cutting:
                _require_inside(path, log, divergence)
                name = _keep(fs, log, divergence, path / DIVERGED)
                divergence = divergence._replace(is_cutting=True, directory=name)
                note.save(divergence)
            write_abort(fs, paths)
            log.queue.truncate_dirty(divergence.cut_offset, wipe=True)
            log.queue.flush_all()
        finally:
            log.close()
    finally:
        lock.release()
    _recovered_end(path, config, fs)
    note.clear()
    return Cut(divergence, path / DIVERGED / divergence.directory)


def _recovered_end(path: Path, config: MessageStoreConfig, fs: FileSystem) -> int:
    """Recover the store. Returns the end of its log."""
    with MessageStore.open(path, config, fs=fs, housekeeping=False, accepts_missing_end=True) as store:
        return store.max_phy_offset


def _require_inside(path: Path, log: CommitLog, divergence: Divergence) -> None:
    if not log.min_offset < divergence.cut_offset < log.queue.max_offset:  # retention may have removed what is before
        raise StoreError(path, f"its log does not have the offset {divergence.cut_offset}, at which it was to be cut")


def _keep(fs: FileSystem, log: CommitLog, divergence: Divergence, directory: Path) -> str:
    """Write the bytes from the cut to the end into files below ``directory``; durable on return.

    Returns the name of the directory that has them, which is new: another cut may have had the same offsets.
    """
    first = f"{divergence.cut_offset}-{divergence.end_offset}"
    made = directory / f"{first}{_TEMPORARY}"
    files = made / COMMIT_LOG
    fs.make_directory(files)
    for file in log.queue.files:
        begin = max(divergence.cut_offset - file.file_from_offset, 0)
        end = min(divergence.end_offset - file.file_from_offset, log.file_size)
        if begin >= end:
            continue
        target = fs.open(files / offset_name(file.file_from_offset), writable=True, create=True)
        try:
            target.resize(log.file_size)
            for at in range(begin, end, _PIECE_BYTES):
                target.write_at(at, file.file.read_at(at, min(_PIECE_BYTES, end - at)))
            target.sync()
        finally:
            target.close()
    fs.sync_directory(files, made)
    names = chain([first], (f"{first}-{number}" for number in count(2)))
    name = next(name for name in names if not fs.exists(directory / name))
    fs.rename(made, directory / name)
    fs.sync_directory(directory, directory.parent)
    return name
