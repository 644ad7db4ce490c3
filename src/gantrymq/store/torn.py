"""Records of a batch that a power cut has torn; what that means stands in ``gantrymq.kernels.torn``."""

from __future__ import annotations

from gantrymq.kernels import api
from gantrymq.store.record_batch import RecordBatch


def first_torn(batch: RecordBatch) -> int:
    """Which record of the batch is the first torn one; ``batch.count`` where none is."""
    if batch.digest is not None:
        return batch.digest.whole
    return int(api.first_torn(batch.buffer, batch.columns, batch.count))
