"""The entries that an index file in doubt holds, confirmed one after the other by the log.

Invariant: the entries in front of those that the header numbers count are right by themselves. Their chains are known
to be right at :meth:`HeldEntries.end`, which makes them right where they are not.

Thread rule: one dispatcher.
"""

from __future__ import annotations

import os

import numpy as np

from gantrymq.format.index import SLOT_SIZE
from gantrymq.fs.api import Bytes
from gantrymq.kernels import codes
from gantrymq.kernels.api import index_balance, index_clear, index_confirm, index_repair
from gantrymq.kernels.arrays import Int64s
from gantrymq.store.record_batch import IndexEntries


class HeldEntries:
    """What the mapped file ``array`` of this geometry holds, of which its old header counted ``index_count``."""

    def __init__(self, array: Bytes, slots: int, entries: int, index_count: int) -> None:
        self._array = array
        self._slots = slots
        self._entries = entries
        # More may be behind those that the header counted, but nothing leads to them.
        self._end = min(index_count + 1, entries)
        self._seed = int.from_bytes(os.urandom(8), "big") >> 1  # the module secrets brings in all of OpenSSL
        self._balance: int = index_balance(array, slots, self._seed)

    def confirm(self, numbers: Int64s, entries: IndexEntries, start: int) -> int:
        """How many of ``entries`` from ``start`` on come next in the file; ``numbers`` then count them."""
        where, known = (self._array, self._slots, self._entries, numbers), (self._seed, self._balance)
        done, self._balance = index_confirm(*where, *entries, start, len(entries.hashes), *known)
        return int(done)

    def end(self, numbers: Int64s) -> None:
        """Let the file hold what was confirmed, but for its header, which ``numbers`` become."""
        count = int(numbers[codes.INDEX_COUNT])
        if self._balance:
            table = np.zeros(self._slots * SLOT_SIZE, np.uint8)
            numbers[codes.SLOT_COUNT] = index_repair(self._array, table, self._slots, count)
        index_clear(self._array, self._slots, count, self._end)
