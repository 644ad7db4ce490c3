"""What was put into a store by whom: one line of truth for each query, and at most one commit under way.

``spark/ledger/QUERY.json`` says up to which batch a query's rows are in the store, for ever; but the line of
a plain batch write, whose name is not used again, goes when its commit has ended. ``spark/pending.json`` is there while
a batch is being put: where the log ended before, and which staged files are put from there on. Both are replaced in one
step and are durable before the next step begins.
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

    ``store_keys`` are the settings that it is put with, so that whoever finishes it has the same; None: not noted.
    ``query`` is the id of the query that a stream's batch is of.
    """

    app: str
    batch: int
    begin: int
    files: tuple[str, ...]
    store_keys: StoreKeys | None = None
    query: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The last batch of a writer whose rows are all in the store. ``query`` is None for one of none, or not noted."""

    batch: int = -1
    rows: int = 0
    query: str | None = None


class Ledger:
    """The ledger of a store. Whoever changes it is ``alone``, from the first look to the last change."""

    def __init__(self, store: Path) -> None:
        self._store, self._root = store, store / DIRECTORY
        self._lines = self._root / "ledger"
        self._pending = self._root / "pending.json"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process commits, and keep them all waiting; one that is killed lets go.

        The lock of the store does not do for it: the store is closed before the ledger says that a batch is in.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def committed(self, app: str) -> Committed:
        """The last batch of ``app``; number -1 before the first."""
        found = self._read(self._file(app))
        if found is None:
            return Committed()
        return Committed(int(found["batch"]), int(found["rows"]), found.get("query"))

    def commit(self, pending: Pending, rows: int) -> None:
        """Say that a batch is in the store, to the last row and for good."""
        line = {"app": pending.app, "batch": pending.batch, "rows": rows, "endPhyOffset": pending.begin}
        self._write(self._file(pending.app), line if pending.query is None else line | {"query": pending.query})

    def pending(self) -> Pending | None:
        """The batch that was being put when a driver was killed."""
        found = self._read(self._pending)
        if found is None:
            return None
        keys = found.get("store_keys")  # an older version did not write them
        store_keys = None if keys is None else tuple((str(key), str(value)) for key, value in keys)
        files, query = tuple(found["files"]), found.get("query")
        return Pending(str(found["app"]), int(found["batch"]), int(found["begin"]), files, store_keys, query)

    def begin(self, pending: Pending) -> None:
        """Say that a batch is going to be put."""
        self._write(self._pending, asdict(pending))

    def end(self) -> None:
        """Say that no batch is being put."""
        self._pending.unlink(missing_ok=True)
        sync_names(self._root, self._root)

    def forget_made_up(self) -> None:
        """Remove the lines of writes without a name; only when the end of what was begun is durable.

        Until then a line says of its batch that the rows are in. Afterwards nobody asks for it.
        """
        for line in self._lines.glob("batch-*"):
            if is_made_up(line.stem):
                with suppress(OSError):  # the batch is in: there is no failing any more
                    line.unlink(missing_ok=True)

    def _file(self, app: str) -> Path:
        return self._lines / f"{file_name(app)}{LINE}"

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            found = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise StoreError(path, f"is no JSON ({error}); whoever changed it broke the ledger") from None
        if not isinstance(found, dict):
            raise StoreError(path, "is no ledger")
        return found

    def _write(self, path: Path, value: dict[str, object]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        with open(new, "w", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        sync_names(self._store, path.parent)
