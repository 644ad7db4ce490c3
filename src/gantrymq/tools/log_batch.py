"""A batch of records of the commit log, on its way from the file to Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gantrymq.kernels.arrays import Bytes, Int64s


@dataclass(slots=True)
class LogBatch:
    """Records of one file: ``columns[:, :count]`` as ``gantrymq.kernels.codes`` names the rows.

    A batch lives until the next one: buffer and columns are used again.

    ``buffer`` holds a part of the file, read-only; ``base`` is the offset of its first byte. ``queues`` (int64,
    ``count`` long) are the numbers of the records' queues, ``topics`` (strings) the topic of each number.
    """

    path: str
    base: int
    buffer: Bytes
    columns: Int64s
    count: int
    queues: Int64s
    topics: pa.Array

    def row(self, code: int) -> Int64s:
        """One field of every record (int64, ``count`` long)."""
        return self.columns[code, : self.count]

    def take(self, keep: NDArray[np.bool_]) -> LogBatch:
        """The records where ``keep`` (``count`` long) says so; itself where that is all of them."""
        return self if keep.all() else self._rows(np.flatnonzero(keep))

    def by(self, first: Int64s, second: Int64s) -> Iterator[tuple[int, int, LogBatch]]:
        """The records of each pair of values, in their order: (value of ``first``, of ``second``, records).

        Both are ``count`` long; the pairs come sorted.
        """
        order = np.lexsort((second, first))
        first, second = first[order], second[order]
        cuts = np.flatnonzero((np.diff(first) != 0) | (np.diff(second) != 0)) + 1
        for begin, end in pairwise([0, *cuts.tolist(), self.count]):
            rows = self if end - begin == self.count else self._rows(order[begin:end])
            yield int(first[begin]), int(second[begin]), rows

    def _rows(self, rows: Int64s) -> LogBatch:
        columns = np.ascontiguousarray(self.columns[:, rows])
        return replace(self, columns=columns, count=len(rows), queues=self.queues[rows])
