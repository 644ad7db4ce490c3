"""The table that numbers queues. Kernels use it in ``queues``. Nothing here imports Numba."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.kernels.arrays import Bytes, Int64s

COUNT, POOLED = 0, 1


class QueueTable(NamedTuple):
    """An open-addressing hash table of queues, in arrays that the caller owns.

    ``slots`` (a power of two, at least twice the number of queues) hold ordinal + 1, or 0. For each ordinal there is a
    hash, a queue id, and the position of its topic in ``pool``. ``counts`` has the number of queues and the used bytes
    of the pool.
    """

    slots: Int64s
    hashes: NDArray[np.uint64]
    queue_ids: Int64s
    topic_at: Int64s
    topic_length: Int64s
    pool: Bytes
    counts: Int64s


def new_table(queues: int = 512, pool_bytes: int = 1 << 16) -> QueueTable:
    """Return an empty table.

    ``queues`` is a power of two; ``pool_bytes`` is at least 32767, so that any topic fits.
    """
    ids, at, length = (np.zeros(queues, np.int64) for _ in range(3))
    slots, hashes = np.zeros(2 * queues, np.int64), np.zeros(queues, np.uint64)
    return QueueTable(slots, hashes, ids, at, length, np.zeros(pool_bytes, np.uint8), np.zeros(2, np.int64))


def grow(table: QueueTable) -> QueueTable:
    """Return a table of twice the size with the same queues under the same ordinals."""
    larger = new_table(2 * table.queue_ids.size, 2 * table.pool.size)
    arrays: Any = zip(table, larger, strict=True)
    for old, new in arrays:
        new[: old.size] = old
    larger.slots[:] = 0
    mask = larger.slots.size - 1
    waiting = np.arange(queue_count(table))
    wanted = (table.hashes[waiting] & np.uint64(mask)).astype(np.int64)
    while len(waiting):  # each takes its slot if that is free, or tries the next one
        _, first = np.unique(wanted, return_index=True)
        first = first[larger.slots[wanted[first]] == 0]
        larger.slots[wanted[first]] = waiting[first] + 1
        waiting, wanted = np.delete(waiting, first), np.delete(wanted, first) + 1 & mask
    return larger


def queue_count(table: QueueTable) -> int:
    """Return how many queues the table has; their ordinals are 0 to one less."""
    return int(table.counts[COUNT])


def queue_of(table: QueueTable, ordinal: int) -> tuple[bytes, int]:
    """Return the topic's bytes and the queue id of a queue."""
    at = int(table.topic_at[ordinal])
    return table.pool[at : at + int(table.topic_length[ordinal])].tobytes(), int(table.queue_ids[ordinal])
