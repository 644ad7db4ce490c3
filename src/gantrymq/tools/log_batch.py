"""A batch of records of the commit log, on its way from the file to Arrow."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        if keep.all():
            return self
        columns = np.ascontiguousarray(self.columns[:, : self.count][:, keep])
        return replace(self, columns=columns, count=columns.shape[1], queues=self.queues[keep])
