"""The process that stores the messages and is killed: ``python -m demo.writer`` with five arguments.

It puts the messages of the Arrow file MESSAGES into STORE (settings from CONF), from FIRST_ROW on, BATCH at a time, and
reports acknowledged rows on its standard output (:mod:`demo.pipe`). After the last row it waits for its standard input,
so that a kill, however late it comes, always hits an open store.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa

from demo.failure import WriterFailedError
from demo.pipe import Acknowledged, Closed, Finished, Ready, Word, encode
from demo.store_settings import open_store
from gantrymq.clock import SystemClock
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.message_store import MessageStore

_STDOUT = 1


def read_messages(path: Path) -> pa.Table:
    """The messages of an Arrow file, mapped: data is read when it is put."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        return file.read_all()


def write_messages(messages: pa.Table, path: Path) -> None:
    """The inverse of :func:`read_messages`."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, messages.schema) as file:
        file.write_table(messages)


def store_messages(store: MessageStore, messages: pa.Table, first_row: int, batch: int) -> None:
    """Put the rows from ``first_row`` on and report each batch. Raises WriterFailedError if one is rejected."""
    clock = SystemClock()
    _say(Ready(clock.monotonic_s(), first_row))
    for begin in range(first_row, messages.num_rows, batch):
        rows = messages.slice(begin, batch)
        result = store.put_batch(rows)
        if result.rejected or result.status is not PutMessageStatus.PUT_OK:
            raise WriterFailedError(f"batch at row {begin}: {result.status.value}, rejected {result.rejected}")
        _say(Acknowledged(clock.monotonic_s(), begin, begin + rows.num_rows, result.end_offset))
    _say(Finished(clock.monotonic_s(), messages.num_rows))


def _say(word: Word) -> None:
    """Write a line without a buffer, which a kill would lose."""
    os.write(_STDOUT, encode(word))


def main(arguments: list[str]) -> int:
    """Store, wait, close; ``arguments`` are STORE MESSAGES CONF FIRST_ROW BATCH."""
    store_path, messages_path, conf, first_row, batch = arguments
    messages = read_messages(Path(messages_path))
    with open_store(Path(store_path), Path(conf)) as store:
        store_messages(store, messages, int(first_row), int(batch))
        sys.stdin.readline()
    if store.failures:
        name, error = store.failures[0]
        raise WriterFailedError(f"{name} failed while storing: {error}")
    _say(Closed(SystemClock().monotonic_s()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
