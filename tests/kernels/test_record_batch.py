"""Parts of a batch that was digested against the same records of one that was only scanned."""

from __future__ import annotations

import random

import numpy as np
from kernel_cases import random_log, seeds

from gantrymq.kernels import codes
from gantrymq.kernels.arrays import read_only
from gantrymq.model.java import decode_utf8
from gantrymq.store.index.index_dispatch import index_entries
from gantrymq.store.log.record_batch import DigestScan, RecordBatch, RecordScan
from gantrymq.store.queue.queue_units import QueueNumbers

BASE = 1 << 30
LEVELS = [1000, 5000]


def both(raw: bytes) -> tuple[RecordBatch, RecordBatch]:
    """The digested batch, and the scanned one."""
    where = (read_only(raw), BASE, 0, len(raw), len(raw))
    return DigestScan(codes.CHECK_OFF, LEVELS, 4096)(*where).batch, RecordScan(codes.CHECK_OFF)(*where).batch


def assert_same(digested: RecordBatch, scanned: RecordBatch) -> None:
    for batch in (digested, scanned):
        batch.trust_positions()
    assert digested.digest is not None
    assert digested.count == scanned.count
    rows = slice(0, codes.N_DISPATCH_COLUMNS)
    np.testing.assert_array_equal(digested.columns[rows, : digested.count], scanned.columns[rows, : scanned.count])
    for ours, plain in zip(index_entries(digested), index_entries(scanned), strict=True):
        np.testing.assert_array_equal(ours, plain)
    queues: tuple[list[tuple[str, int]], ...] = ([], [])
    numbers = [
        QueueNumbers().assign(batch, lambda topic, id, into=into: into.append((decode_utf8(topic), id))).tolist()
        for batch, into in zip((digested, scanned), queues, strict=True)
    ]
    named = [[into[n] if n >= 0 else None for n in found] for found, into in zip(numbers, queues, strict=True)]
    assert named[0] == named[1]


@seeds(10)
def test_first_records_of_batch_equal_scan(seed: int, rng: random.Random) -> None:
    digested, scanned = both(random_log(rng, 60))
    for count in (0, 1, rng.randrange(60), 59, 60):
        assert_same(digested.head(count), scanned.head(count))
        assert digested.head(count).digest.whole <= count


@seeds(10)
def test_selected_records_of_batch_equal_scan(seed: int, rng: random.Random) -> None:
    digested, scanned = both(random_log(rng, 60))
    for share in (0, 0.1, 0.5, 0.9, 1):
        keep = np.array([rng.random() < share for _ in range(60)])
        assert_same(digested.take(keep), scanned.take(keep))
        assert_same(digested.take(keep).head(int(keep.sum()) // 2), scanned.take(keep).head(int(keep.sum()) // 2))


@seeds(5)
def test_queue_named_only_by_excluded_records_is_not_created(seed: int, rng: random.Random) -> None:
    digested, _ = both(random_log(rng, 60))
    made: list[tuple[str, int]] = []
    QueueNumbers().assign(digested.head(5), lambda topic, queue_id: made.append((decode_utf8(topic), queue_id)))
    names = [digested.digest.queues.names[n] for n in digested.digest.ordinals[:5].tolist() if n >= 0]
    assert sorted(made) == sorted({(decode_utf8(topic), queue_id) for topic, queue_id in names})
