"""Rows on their way into a store: files that executors write, and that the driver puts when all of them are there.

They lie in the store, below ``spark/staging/QUERY``, as Arrow files whose names begin with the number of their batch. A
staged file is durable before its task reports it, and nothing in a store looks at it before the driver does. What a
driver that was killed left here is removed by a later commit, by whomever, when it is a week old.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from gantrymq.errors import StoreError
from gantrymq.format.names import ABORT, CHECKPOINT, COMMIT_LOG, CONSUME_QUEUE, LOCK
from gantrymq.fs.real import RealFileSystem
from gantrymq.spark.write.writer_names import file_name

DIRECTORY = "spark"
_STAGING = "staging"
_GIVEN_UP = "given-up"
_OF_A_STORE = (COMMIT_LOG, CONSUME_QUEUE, CHECKPOINT, ABORT, LOCK)
_KEPT_S = 7 * 24 * 3600  # longer than a driver waits for one task, or a task outlives its driver


def staging_directory(store: Path, app: str) -> Path:
    """Where the files of a query, or of another writer of this name, lie."""
    return store / DIRECTORY / _STAGING / file_name(app)


def give_up(store: Path, app: str) -> list[Path]:
    """Let nothing be staged any more under a name that is not used again; the files that there are.

    A job that failed may have tasks that are still at work, of which its driver never hears.
    """
    directory = staging_directory(store, app)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _GIVEN_UP).touch()
    return sorted(directory.glob("*.arrow"))


def forget_abandoned(store: Path, now_s: float) -> None:
    """Remove the files, and the marks, of batches for which nothing was staged for long; none may be ``pending``.

    Nobody comes back for what a killed driver left: a repeated batch stages its rows anew. A batch is as old as its
    newest file, for a driver that is at work waits for its slowest task.
    """
    with suppress(OSError):  # others take files back meanwhile; the next commit looks again
        files = sorted((store / DIRECTORY / _STAGING).glob("*/*"), key=_batch_of)
        for _, batch in groupby(files, key=_batch_of):
            of_batch = list(batch)
            if max(file.stat().st_mtime for file in of_batch) < now_s - _KEPT_S:
                remove(of_batch)


def _batch_of(file: Path) -> tuple[Path, str]:
    """What a file belongs to; one of an older version, which wrote no number, stands for itself."""
    return file.parent, file.name.partition("-")[0]


def stage(store: Path, app: str, batch: int, tables: Iterable[pa.Table], schema: pa.Schema) -> Path:
    """Write ``tables`` into a new file and return its path; what fails leaves none behind.

    Raises StoreError where the name was given up meanwhile, and where this host does not have the store.
    """
    _require_store(store)
    directory = staging_directory(store, app)
    path = directory / f"{batch}-{uuid.uuid4().hex}.arrow"
    try:
        with _new_file(path) as file:
            with pa.ipc.new_file(file, schema) as writer:
                for table in tables:
                    writer.write_table(table)
            file.flush()
            os.fsync(file.fileno())
        sync_names(store, directory)
        _require_wanted(directory)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _new_file(path: Path) -> BinaryIO:
    """A file in a directory that a commit may clear away, where it is empty, as long as the file is not there."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        _require_wanted(path.parent)
        with suppress(FileNotFoundError):
            return open(path, "xb")


def finished(store: Path, app: str, batch: int) -> list[Path]:
    """The files of the batches up to ``batch``: once the ledger knows that one, nobody puts them any more.

    Those of a later batch may be on their way to a driver that is about to commit it.
    """
    files = sorted(staging_directory(store, app).glob("*-*.arrow"))
    return [path for path in files if int(path.name.partition("-")[0]) <= batch]


def require_staged(store: Path, app: str, batch: int, files: Iterable[Path]) -> None:
    """Raise StoreError where a file of a batch is not whole: what is begun without it could never be ended."""
    for path in files:
        if not path.exists():
            raise StoreError(
                store,
                f"{path.relative_to(store)} is gone: the rows of batch {batch} of {app} cannot be put. Does the host "
                "of each executor have this store under this path?",
            )
        for _ in staged_tables([path]):
            pass


def _require_store(store: Path) -> None:
    """Raise StoreError where an executor does not have the store that the driver has made or found."""
    if not any((store / name).exists() for name in _OF_A_STORE):
        raise StoreError(
            store, f"on host {socket.gethostname()} is no store: mount the driver's store there, then write again"
        )


def _require_wanted(directory: Path) -> None:
    if (directory / _GIVEN_UP).exists():
        raise StoreError(directory, "the write was aborted while this task was at work")


def staged_tables(paths: Iterable[Path]) -> Iterator[pa.Table]:
    """The rows of staged files, batch by batch, in order; raises StoreError where one cannot be read."""
    for path in paths:
        try:
            with pa.memory_map(str(path)) as file:
                reader = pa.ipc.open_file(file)
                for number in range(reader.num_record_batches):
                    yield pa.Table.from_batches([reader.get_batch(number)])
        except pa.ArrowInvalid as error:
            raise StoreError(path, f"cannot be read ({error}): its rows are lost; write them again") from None


def remove(paths: Iterable[Path]) -> None:
    """Remove staged files, and their directories where these are empty then.

    What does not go stays until it is old: the rows are in, and a job that failed for its leftovers would be run again.
    """
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)
            path.parent.rmdir()


def sync_names(store: Path, directory: Path) -> None:
    """Return when the names in a directory, and those on the way to it from the store, would survive a power cut.

    Whoever made a directory of these may not have come to it yet.
    """
    for one in (directory, *directory.parents):
        RealFileSystem().sync_directory(one)
        if one == store:
            break
