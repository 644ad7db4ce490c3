"""A batch of records stand in :mod:`gantrymq.tools.log_batch`; the name here is for those who knew it."""

from gantrymq.tools.log_batch import LogBatch

__all__ = ["LogBatch"]
