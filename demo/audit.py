"""Compares a store with its input: every row is there once, unchanged, in order, and found by its key.

One writer at a time stores the rows in the order of the file. So a store without losses and duplicates holds the rows 0
to n-1 for some n, and storing continues at n. The audit reads every message through the consume queues to check this.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from demo.failure import DifferenceError
from demo.messages import row_of, uniq_key
from demo.store_settings import open_reader
from gantrymq.model.message import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY, StoredMessage
from gantrymq.store.reader import StoreReader

Progress = Callable[[int], None]
_REPORT_EVERY = 2000
_KEYS_ASKED = 200


@dataclass(slots=True)
class Holding:
    """All messages of a store: an array or a column for each property, with one element for each message."""

    rows: NDArray[np.int64]
    queue_ids: NDArray[np.int64]
    queue_offsets: NDArray[np.int64]
    columns: pa.Table

    @classmethod
    def read(cls, reader: StoreReader, progress: Progress) -> Holding:
        """Read every message, in queue order."""
        numbers: list[tuple[int, int, int]] = []
        texts: list[tuple[str, str, str, bytes]] = []
        for message in reader.messages():
            properties = message.properties
            row = row_of(properties.get(PROPERTY_UNIQ_KEY, ""))
            numbers.append((row, message.queue_id, message.queue_offset))
            tags, keys = properties.get(PROPERTY_TAGS, ""), properties.get(PROPERTY_KEYS, "")
            texts.append((message.topic, tags, keys, message.body))
            if len(numbers) % _REPORT_EVERY == 0:
                progress(len(numbers))
        array = np.array(numbers, np.int64).reshape(-1, 3)
        types = (pa.string(), pa.string(), pa.string(), pa.binary())
        columns = [pa.chunked_array([column], kind) for column, kind in zip(_turned(texts), types, strict=True)]
        table = pa.table(dict(zip(("topic", "tags", "keys", "body"), columns, strict=True)))
        return cls(array[:, 0], array[:, 1], array[:, 2], table)


def _turned(rows: list[tuple[str, str, str, bytes]]) -> list[tuple[str | bytes, ...]]:
    return list(zip(*rows, strict=True)) if rows else [()] * 4


@dataclass(frozen=True, slots=True)
class Audit:
    """The result: all ``stored`` rows are there exactly once; ``acknowledged`` of them had been acknowledged."""

    stored: int
    acknowledged: int
    keys_asked: int

    @property
    def unacknowledged(self) -> int:
        """The number of rows that were stored although the writer was killed before it acknowledged them."""
        return self.stored - self.acknowledged


def audit_store(path: Path, conf: Path, given: pa.Table, acknowledged: int, seed: int, progress: Progress) -> Audit:
    """Read the store at ``path`` (settings in ``conf``) and compare it with the messages ``given``.

    The first ``acknowledged`` of them must be there. Raises DifferenceError with every loss, duplicate and change.
    """
    with open_reader(path, conf) as reader:
        holding = Holding.read(reader, progress)
        differences = list(_differences(holding, given, acknowledged))
        asked = 0
        if not differences:
            rows = random.Random(seed).sample(range(len(holding.rows)), min(_KEYS_ASKED, len(holding.rows)))
            asked = len(rows)
            differences = [line for row in rows for line in _lost_from_index(reader, given, row)]
    if differences:
        raise DifferenceError(f"{path} does not contain what it was given", differences)
    return Audit(len(holding.rows), acknowledged, asked)


def _differences(holding: Holding, given: pa.Table, acknowledged: int) -> Iterator[str]:
    rows = holding.rows
    is_ours = (rows >= 0) & (rows < given.num_rows)
    for place in np.flatnonzero(~is_ours):
        where = f"{holding.columns['topic'][place]} queue {holding.queue_ids[place]} at {holding.queue_offsets[place]}"
        yield f"a message that was not in the input: {where}, keys {str(holding.columns['keys'][place])!r}"
    counts = np.bincount(rows[is_ours], minlength=given.num_rows)
    stored = int(np.flatnonzero(counts)[-1]) + 1 if counts.any() else 0
    for row in np.flatnonzero(counts[: max(stored, acknowledged)] == 0):
        promised = "acknowledged" if row < acknowledged else "not acknowledged, but later rows are there"
        yield f"row {row} is lost ({promised})"
    for row in np.flatnonzero(counts > 1):
        yield f"row {row} is there {counts[row]} times"
    if not is_ours.all():
        return
    yield from _changes(holding, given)
    yield from _disorder(holding)


def _changes(holding: Holding, given: pa.Table) -> Iterator[str]:
    """Report rows whose message differs from the input."""
    expected = given.select(["topic", "tags", "keys", "body"]).take(pa.array(holding.rows))
    for name in expected.column_names:
        found, wanted = holding.columns[name], expected[name]
        if not found.equals(wanted):
            for place in np.flatnonzero(~_equal(found, wanted)):
                yield f"row {holding.rows[place]} has another {name}: {found[place]} instead of {wanted[place]}"
    wanted_ids = given["queue_id"].to_numpy()[holding.rows]
    for place in np.flatnonzero(holding.queue_ids != wanted_ids):
        yield f"row {holding.rows[place]} is in queue {holding.queue_ids[place]} instead of {wanted_ids[place]}"


def _equal(found: pa.ChunkedArray, wanted: pa.ChunkedArray) -> NDArray[np.bool_]:
    import pyarrow.compute as pc

    equal: NDArray[np.bool_] = pc.fill_null(pc.equal(found, wanted), False).to_numpy()
    return equal


def _disorder(holding: Holding) -> Iterator[str]:
    """Report rows of a queue that are out of order or leave a gap in the queue offsets."""
    topics = holding.columns["topic"].combine_chunks().dictionary_encode().indices.to_numpy()
    same_queue = (np.diff(topics) == 0) & (np.diff(holding.queue_ids) == 0)
    wrong = same_queue & ((np.diff(holding.rows) <= 0) | (np.diff(holding.queue_offsets) != 1))
    for place in np.flatnonzero(wrong):
        yield f"row {holding.rows[place + 1]} comes after row {holding.rows[place]} in its queue"


def _lost_from_index(reader: StoreReader, given: pa.Table, row: int) -> Iterator[str]:
    topic, key = given["topic"][row].as_py(), uniq_key(row)
    # After a crash the index may return one message twice, as RocketMQ's does, so distinct messages are counted.
    found = {message.phy_offset for message in reader.query(topic, key) if _is(message, key)}
    if len(found) != 1:
        yield f"the index finds {len(found)} messages of row {row} under {topic} {key}"


def _is(message: StoredMessage, key: str) -> bool:
    """Whether the message has the key. The index searches by hash, so it may return messages of other keys."""
    return message.properties.get(PROPERTY_UNIQ_KEY) == key
