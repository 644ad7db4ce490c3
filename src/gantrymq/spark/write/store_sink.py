"""Puts staged rows into a store, exactly once. Runs on the driver, one commit at a time.

The obvious way, putting rows and then recording the batch, stores rows twice after a kill in between. A commit
therefore has four steps, each durable before the next:

1. ``pending`` records where the log ends and which files are put.

2. The rows are put, in order, and the store is closed.

3. The ledger records that the batch is in the store.

4. The staged files are removed, then ``pending``, and last the ledger's line of a name that is not used again.

After a kill in between, the next commit of any writer finishes the job. The rows of ``pending`` that are already in the
log are its first ones, from the recorded end on, so the commit puts the rest. A batch in the ledger is not put again.
Because the files of the *first* attempt are finished, a repeated batch may even have its rows in another order.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gantrymq.errors import StoreError, StoreLockedError
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.status import PutMessageStatus
from gantrymq.spark.write.ledger import Committed, Ledger, Pending, StoreKeys
from gantrymq.spark.write.options import WriteOptions
from gantrymq.spark.write.staging import finished, forget_abandoned, give_up, remove, require_staged, staged_tables
from gantrymq.store.geometry import require_store
from gantrymq.store.message_store import MessageStore
from gantrymq.store.paths import StorePaths

_LOCK_WAIT_S = 30.0
_LOCK_POLL_S = 0.1
_PUT_ROWS = 20_000
_DELAYED = "delay_level"
_LOGGER = logging.getLogger(__name__)


class StoreSink:
    """Commits batches to the store that ``options`` name."""

    def __init__(self, options: WriteOptions) -> None:
        assert options.path is not None
        self._options = options
        self._path = options.path
        self._ledger = Ledger(self._path)

    def make_store(self) -> None:
        """Create the store if it does not exist, before anything is staged in it. Raises NotAStoreError."""
        if not self._path.is_dir() or not any(self._path.iterdir()):
            self._open().close()
        config, _ = self._options.store_settings()
        require_store(RealFileSystem(), StorePaths.of(self._path, config))

    def commit(self, app: str, batch: int, files: Sequence[Path], query: str | None = None) -> bool:
        """Put the rows of ``files``. Returns False if the batch was in the store already.

        ``query`` is the id of a stream's query. Raises StoreLockedError, DiskFullError; the next commit finishes what
        was begun. Raises StoreError, with nothing left to finish, if one of ``files`` is missing or damaged, or if
        another query used the batch number.
        """
        with self._ledger.locked():
            is_new = self._commit(app, batch, files, query)
            forget_abandoned(self._path, time.time())
            return is_new

    def _commit(self, app: str, batch: int, files: Sequence[Path], query: str | None) -> bool:
        pending = self._ledger.pending()
        with self._open(None if pending is None else pending.store_keys) as store:
            if pending is not None:
                self._put_rest(store, pending)
        if pending is not None:
            self._done(pending)
        before = self._ledger.committed(app)
        if query is not None:
            self._require_repeat(app, batch, query, before)
        if before.batch >= batch:
            self._log_repeat(app, batch, files, before)
            remove([*files, *finished(self._path, app, batch)])
            return False
        require_staged(self._path, app, batch, files)
        with _noting_next_step(self._ledger, files), self._open() as store:
            names = tuple(str(path.relative_to(self._path)) for path in files)
            pending = Pending(app, batch, max(store.max_phy_offset, 0), names, self._options.store_keys, query)
            self._ledger.begin(pending)
            self._put(store, staged_tables(files), 0)
        self._done(pending)
        return True

    def _require_repeat(self, app: str, batch: int, query: str, before: Committed) -> None:
        """Raise StoreError if a stream's batch has a number that another batch used, so that its rows would be skipped.

        A query repeats at most its last batch, if the checkpoint does not have it yet.
        """
        if before.query not in (None, query):
            raise StoreError(
                self._path,
                f"batches of txnAppId {app} up to {before.batch} are of query {before.query}, and this is batch "
                f"{batch} of query {query}, which has another checkpoint: give it a txnAppId of its own",
            )
        if batch < before.batch:
            raise StoreError(
                self._path,
                f"this is batch {batch} of query {query}, but the store has its batches up to {before.batch}: its "
                "checkpoint is older than that. Restore the newer checkpoint, or give a new txnAppId to write these "
                "rows again",
            )

    def _log_repeat(self, app: str, batch: int, files: Sequence[Path], before: Committed) -> None:
        """Log that the rows of a batch are not put again.

        It is a warning if the rows cannot be those that are in the store.
        """
        rows = sum(table.num_rows for table in staged_tables(path for path in files if path.exists()))
        is_same = (batch, rows) == (before.batch, before.rows)
        _LOGGER.log(
            logging.INFO if is_same else logging.WARNING,
            "%s has %d rows of batch %d of %s already: the %d rows of batch %d, which were written again, are skipped",
            *(self._path, before.rows, before.batch, app, rows, batch),
        )

    def abort(self, files: Sequence[Path]) -> None:
        """Remove staged files, except those that a commit has begun to put: the next commit needs them."""
        pending = self._ledger.pending()
        pending_paths = set() if pending is None else {self._path / name for name in pending.files}
        remove(path for path in files if path not in pending_paths)

    def give_up(self, app: str) -> None:
        """Remove everything that is staged under a name that is not used again, and refuse later staging."""
        self.abort(give_up(self._path, app))

    def _open(self, store_keys: StoreKeys | None = None) -> MessageStore:
        """Open the store, with the settings of another writer if ``store_keys`` is given."""
        options = self._options if store_keys is None else replace(self._options, store_keys=store_keys)
        config, given = options.store_settings()
        deadline = time.monotonic() + _LOCK_WAIT_S
        while True:
            try:
                return MessageStore.open(self._path, config, given=given, housekeeping=False)
            except StoreLockedError as error:
                if time.monotonic() > deadline:
                    hint = "to write to a running broker give its nameserver instead of path"
                    raise StoreLockedError(self._path, f"{error.reason}; {hint}") from error
                time.sleep(_LOCK_POLL_S)

    def _done(self, pending: Pending) -> None:
        """Finish a commit whose rows are durable in the closed store."""
        files = [self._path / name for name in pending.files]
        if self._ledger.committed(pending.app).batch < pending.batch:
            self._ledger.commit(pending, sum(table.num_rows for table in staged_tables(files)))
        remove([*files, *finished(self._path, pending.app, pending.batch)])
        self._ledger.end()
        self._ledger.drop_unconfirmed()

    def _put_rest(self, store: MessageStore, pending: Pending) -> None:
        """Put the rows that a killed driver had not put yet."""
        if self._ledger.committed(pending.app).batch >= pending.batch:
            return
        if pending.begin < store.min_phy_offset:
            reason = f"batch {pending.batch} of {pending.app} was begun at {pending.begin}, which retention has deleted"
            raise StoreError(self._path, f"{reason}: which of its rows were put is unknown")
        files = [self._path / name for name in pending.files]
        require_staged(self._path, pending.app, pending.batch, files)
        there = _rows_there(store, pending.begin, _rows(files))
        self._put(store, staged_tables(files), there)

    def _put(self, store: MessageStore, tables: Iterator[Any], skip: int) -> None:
        for table in tables:
            skipped = min(skip, table.num_rows)
            skip -= skipped
            for start in range(skipped, table.num_rows, _PUT_ROWS):
                part = table.slice(start, _PUT_ROWS)
                result = store.put_batch(_without_empty(part))
                if result.status is not PutMessageStatus.PUT_OK or result.rejected:
                    why = next(iter(result.rejected.values()), result.status)
                    raise StoreError(self._path, f"a row was not put: {why.value}")


@contextmanager
def _noting_next_step(ledger: Ledger, files: Sequence[Path]) -> Iterator[None]:
    """Add a note to an error that it does not undo a write that was begun.

    Without the note, running the job again would seem natural, and would store the rows twice.
    """
    try:
        yield
    except Exception as error:
        if ledger.pending() is None:
            raise
        rows = sum(table.num_rows for table in staged_tables(files))
        what = f"{rows} rows were put in part, and stay staged: the next commit into this store, by any writer, puts"
        error.add_note(f"{what} the rest. Do not run a write without txnAppId again")
        raise


def _without_empty(table: Any) -> Any:
    """The table without columns of only nulls: a batch without extra columns is put faster."""
    return table.select([name for name in table.column_names if table.column(name).null_count < table.num_rows])


def _rows(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for table in staged_tables(files):
        yield from table.select(["topic", "body", _DELAYED, "born_timestamp_ms"]).to_pylist()


def _rows_there(store: MessageStore, begin: int, rows: Iterator[dict[str, Any]]) -> int:
    """The number of ``rows`` that the log has from ``begin`` on. Rows are put without a gap."""
    messages = _messages_from(store, begin)
    there = 0
    for row, message in zip(rows, messages, strict=False):
        same_topic = bool(row[_DELAYED]) or message.topic == row["topic"]
        if not same_topic or message.body != row["body"] or message.born_timestamp_ms != row["born_timestamp_ms"]:
            break
        there += 1
    return there


def _messages_from(store: MessageStore, offset: int) -> Iterator[Any]:
    file_size = store.config.mapped_file_size_commit_log
    while offset < store.max_phy_offset:
        message = store.message_at(offset)
        if message is None:
            offset += file_size - offset % file_size
        else:
            yield message
            offset += message.size_bytes
