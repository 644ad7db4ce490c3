"""Checks and restores archives by their summary: every file is read, and compared with its size and SHA-256.

A restored store is made beside its place, and gets its name when all of it is durable. Without this program a restore
is a plain copy of the directory, because an archive is a store at every moment.

Thread rule: one thread.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from gantrymq.archive.summary import NAME, ArchivedFile, ArchiveSummary, decode_summary
from gantrymq.archive.target import ArchiveTarget, chunks_of, content_now, described, read_small, reading
from gantrymq.errors import ArchiveError, StoreError
from gantrymq.format import names
from gantrymq.fs.api import FileSystem
from gantrymq.store.recovery.recovery import Progress

CHECK_STEP, RESTORE_STEP = "Checking the archive", "Restoring"
_UNFINISHED = "; an archiver is writing, or was ended: run `gantrymq archive` again"
_ATTEMPTS = 3


def read_summary(target: ArchiveTarget, key: bytes | None) -> ArchiveSummary:
    """The summary of an archive. Raises ArchiveError if there is none, or if its signature is wrong."""
    raw = read_small(target, NAME)
    if raw is None:
        raise ArchiveError(target.text, f"is not an archive: it has no {NAME}")
    return decode_summary(raw, key, target.text)


def check_archive(
    target: ArchiveTarget, summary: ArchiveSummary, progress: Progress | None
) -> Iterator[tuple[str, str]]:
    """Yield (path, what is wrong) for each file that is not as the summary says. Raises ArchiveError."""
    done, total = 0, sum(file.size for file in summary.files.values())
    suffix = _UNFINISHED if names.ABORT in target.sizes() else ""
    for name, file in sorted(summary.files.items()):
        try:
            is_same = content_now(target, name) == file
        except FileNotFoundError:
            yield name, f"is missing{suffix}"
            continue
        if not is_same:
            yield name, f"does not have the size and checksum of the summary{suffix}"
        done += file.size
        if progress is not None:
            progress(CHECK_STEP, done, total)


def restore_archive(
    target: ArchiveTarget, directory: Path, fs: FileSystem, key: bytes | None, progress: Progress | None
) -> ArchiveSummary:
    """Make a store at ``directory``, which is missing or empty, of an archive. Returns its summary.

    An archiver may be writing: if it replaced a file meanwhile, the files that differ are fetched again. Raises
    ArchiveError, and StoreError for the directory; nothing is there under its name then.
    """
    if fs.exists(directory) and fs.scan(directory):
        raise StoreError(directory, "is not empty; restore to a new directory")
    directory = directory.absolute()
    fresh = directory.with_name(f".{directory.name}.restoring")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        summary = _fetched(target, fresh, fs, key, progress)
        os.replace(fresh, directory)
        fs.sync_directory(directory.parent)
    except OSError as error:
        raise StoreError(directory, " ".join((error.strerror or str(error)).split())) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return summary


def _fetched(
    target: ArchiveTarget, fresh: Path, fs: FileSystem, key: bytes | None, progress: Progress | None
) -> ArchiveSummary:
    have: dict[str, ArchivedFile] = {}
    wrong = ""
    for _ in range(_ATTEMPTS):
        summary = read_summary(target, key)
        total = sum(file.size for file in summary.files.values())
        wrong = ""
        for name, file in summary.files.items():
            if have.get(name) != file:
                have[name] = _fetch(target, name, fresh / name, fs)
                wrong = wrong or (name if have[name] != file else "")
            if progress is not None:
                progress(RESTORE_STEP, sum(each.size for each in have.values()), total)
        if not wrong:
            for name in set(have) - set(summary.files):
                (fresh / name).unlink()
            fs.sync_directory(*{(fresh / name).parent for name in summary.files}, fresh)
            return summary
    text = "does not have the size and checksum of the summary"
    raise ArchiveError(f"{target.text}/{wrong}", text + (_UNFINISHED if names.ABORT in target.sizes() else ""))


def _fetch(target: ArchiveTarget, name: str, path: Path, fs: FileSystem) -> ArchivedFile:
    fs.make_directory(path.parent)
    try:
        with reading(target, name) as stream, path.open("wb") as out:

            def copied() -> Iterator[bytes]:
                for chunk in chunks_of(stream):
                    out.write(chunk)
                    yield chunk

            file = described(copied())
            out.flush()
            os.fsync(out.fileno())
    except FileNotFoundError:
        return ArchivedFile(-1, "")
    return file
