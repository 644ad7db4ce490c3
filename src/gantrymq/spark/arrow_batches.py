"""Records as Arrow batches stand in :mod:`gantrymq.tools.arrow_batches`; the name here is for those who knew it."""

from gantrymq.tools.arrow_batches import ArrowBatches

__all__ = ["ArrowBatches"]
