"""Records which batches are in a store: one line for each writer, and at most one commit in progress.

``spark/ledger/QUERY.json`` has the last batch of a query whose rows are in the store, permanently. The line of a plain
batch write, whose name is not used again, is deleted when its commit has ended. ``spark/pending.json`` exists while a
batch is being put. It has the end of the log before the batch, and the staged files that are put from there on. Both
files are replaced atomically and are durable before the next step begins.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gantrymq.errors import StoreError
from gantrymq.spark.write.staging import DIRECTORY, sync_names
from gantrymq.spark.write.writer_names import LINE, file_name, is_made_up

StoreKeys = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Pending:
    """A batch that is being put, or was when its driver was killed. ``files`` are relative to the store.

    ``store_keys`` are the settings of the writer, so that another process finishes the batch with the same ones; None:
    not recorded. ``query`` is the id of a stream's query.
    """

    app: str
    batch: int
    begin: int
    files: tuple[str, ...]
    store_keys: StoreKeys | None = None
    query: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The last batch of a writer whose rows are all in the store.

    ``query`` is None outside of a stream, or if it was not recorded.
    """

    batch: int = -1
    rows: int = 0
    query: str | None = None


class Ledger:
    """The ledger of a store. Hold :meth:`locked` from the first read to the last change."""

    def __init__(self, store: Path) -> None:
        self._store, self._root = store, store / DIRECTORY
        self._lines = self._root / "ledger"
        self._pending = self._root / "pending.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """A context manager that excludes all other committing processes, and waits for them. A kill releases it.

        The store's lock would not do: the store is closed before the ledger records the batch.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def committed(self, app: str) -> Committed:
        """The last batch of ``app``; its number is -1 before the first."""
        record = self._read(self._file(app))
        if record is None:
            return Committed()
        return Committed(int(record["batch"]), int(record["rows"]), record.get("query"))

    def commit(self, pending: Pending, rows: int) -> None:
        """Record that a batch is in the store, completely and durably."""
        line = {"app": pending.app, "batch": pending.batch, "rows": rows, "endPhyOffset": pending.begin}
        self._write(self._file(pending.app), line if pending.query is None else line | {"query": pending.query})

    def pending(self) -> Pending | None:
        """The batch that was being put when a driver was killed, or None."""
        record = self._read(self._pending)
        if record is None:
            return None
        keys = record.get("store_keys")  # missing in files of an older version
        store_keys = None if keys is None else tuple((str(key), str(value)) for key, value in keys)
        files, query = tuple(record["files"]), record.get("query")
        return Pending(str(record["app"]), int(record["batch"]), int(record["begin"]), files, store_keys, query)

    def begin(self, pending: Pending) -> None:
        """Record that a batch is about to be put."""
        self._write(self._pending, asdict(pending))

    def end(self) -> None:
        """Record that no batch is being put."""
        self._pending.unlink(missing_ok=True)
        sync_names(self._root, self._root)

    def drop_unconfirmed(self) -> None:
        """Remove the lines of writes without a name. Call it only when :meth:`end` is durable.

        Until then the line is needed: it shows that the rows of the batch are in the store. Later nothing reads it.
        """
        for line in self._lines.glob("batch-*"):
            if is_made_up(line.stem):
                with suppress(OSError):  # the batch is in the store, so the commit must not fail now
                    line.unlink(missing_ok=True)

    def _file(self, app: str) -> Path:
        return self._lines / f"{file_name(app)}{LINE}"

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            value = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise StoreError(path, f"is no JSON ({error}): another program changed the ledger") from None
        if not isinstance(value, dict):
            raise StoreError(path, "is no ledger")
        return value

    def _write(self, path: Path, value: dict[str, object]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        with open(new, "w", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        sync_names(self._store, path.parent)
