"""Staged rows: files that executors write, and that the driver puts into the store when all of them are complete.

They are Arrow files in the store, below ``spark/staging/QUERY``. Their names begin with the number of their batch. A
staged file is durable before its task reports it, and no other code reads it before the driver does. Leftovers of a
killed driver are removed by a later commit of any writer, when they are a week old.
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
_KEPT_S = 7 * 24 * 3600  # longer than a driver waits for a task, or a task outlives its driver


def staging_directory(store: Path, app: str) -> Path:
    """The directory of the staged files of a query or another writer."""
    return store / DIRECTORY / _STAGING / file_name(app)


def give_up(store: Path, app: str) -> list[Path]:
    """Refuse further staging under a name that is not used again. Returns the existing files.

    A failed job may have tasks that are still running, whose results the driver never gets.
    """
    directory = staging_directory(store, app)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _GIVEN_UP).touch()
    return sorted(directory.glob("*.arrow"))


def forget_abandoned(store: Path, now_s: float) -> None:
    """Remove the files and marks of batches for which nothing was staged for a week. None may be ``pending``.

    Leftovers of a killed driver are never used again, because a repeated batch stages its rows again. A batch is as old
    as its newest file, because a running driver waits for its slowest task.
    """
    with suppress(OSError):  # other processes remove files meanwhile; the next commit tries again
        files = sorted((store / DIRECTORY / _STAGING).glob("*/*"), key=_batch_of)
        for _, batch in groupby(files, key=_batch_of):
            of_batch = list(batch)
            if max(file.stat().st_mtime for file in of_batch) < now_s - _KEPT_S:
                remove(of_batch)


def _batch_of(file: Path) -> tuple[Path, str]:
    """The key of a file's batch. A file of an older version has no number and is its own batch."""
    return file.parent, file.name.partition("-")[0]


def stage(store: Path, app: str, batch: int, tables: Iterable[pa.Table], schema: pa.Schema) -> Path:
    """Write ``tables`` to a new file and return its path. A failure leaves no file.

    Raises StoreError if the name was given up meanwhile, or if this host does not have the store.
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
    """Create a file. Retries, because a commit may remove the directory while it is empty."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        _require_wanted(path.parent)
        with suppress(FileNotFoundError):
            return open(path, "xb")


def finished(store: Path, app: str, batch: int) -> list[Path]:
    """The files of the batches up to ``batch``. Once the ledger has that batch, they are not needed any more.

    Files of a later batch may belong to a commit that is about to begin.
    """
    files = sorted(staging_directory(store, app).glob("*-*.arrow"))
    return [path for path in files if int(path.name.partition("-")[0]) <= batch]


def require_staged(store: Path, app: str, batch: int, files: Iterable[Path]) -> None:
    """Raise StoreError if a file of a batch is missing or damaged.

    A commit that began without it could never be finished.
    """
    for path in files:
        if not path.exists():
            raise StoreError(
                store,
                f"{path.relative_to(store)} is missing: rows of batch {batch} of {app} cannot be put. Does the host "
                "of each executor have this store under this path?",
            )
        for _ in staged_tables([path]):
            pass


def _require_store(store: Path) -> None:
    """Raise StoreError if this executor's host does not have the driver's store."""
    if not any((store / name).exists() for name in _OF_A_STORE):
        raise StoreError(
            store, f"on host {socket.gethostname()} is no store: mount the driver's store there, then write again"
        )


def _require_wanted(directory: Path) -> None:
    if (directory / _GIVEN_UP).exists():
        raise StoreError(directory, "the write was aborted while this task was at work")


def staged_tables(paths: Iterable[Path]) -> Iterator[pa.Table]:
    """Yield the rows of staged files, batch by batch, in order. Raises StoreError if a file is unreadable."""
    for path in paths:
        try:
            with pa.memory_map(str(path)) as file:
                reader = pa.ipc.open_file(file)
                for number in range(reader.num_record_batches):
                    yield pa.Table.from_batches([reader.get_batch(number)])
        except pa.ArrowInvalid as error:
            raise StoreError(path, f"cannot be read ({error}): its rows are lost; write them again") from None


def remove(paths: Iterable[Path]) -> None:
    """Remove staged files, and their directories if these are then empty.

    Errors are ignored: the rows are in the store, and a job that failed because of leftovers would be run again.
    """
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)
            path.parent.rmdir()


def sync_names(store: Path, directory: Path) -> None:
    """Sync a directory and all directories between it and the store, so that the names survive a power cut.

    Another process may have created one of them and not synced it yet.
    """
    for parent in (directory, *directory.parents):
        RealFileSystem().sync_directory(parent)
        if parent == store:
            break
