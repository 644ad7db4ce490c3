"""A batch of records of the commit log, on its way from the file to Arrow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantrymq.kernels.arrays import Bytes, Int64s


@dataclass(slots=True)
class LogBatch:
    """Records of one file: ``columns[:, :count]`` as ``gantrymq.kernels.codes`` names the rows.

    ``buffer`` is the whole file, read-only; ``base`` the offset of its first byte. The columns are written over by
    the next batch.
    """

    path: str
    base: int
    buffer: Bytes
    columns: Int64s
    count: int

    def row(self, code: int) -> Int64s:
        """One field of every record (int64, ``count`` long)."""
        return self.columns[code, : self.count]

    def take(self, keep: NDArray[np.bool_]) -> LogBatch:
        """The records where ``keep`` (``count`` long) says so."""
        columns = np.ascontiguousarray(self.columns[:, : self.count][:, keep])
        return LogBatch(self.path, self.base, self.buffer, columns, columns.shape[1])
