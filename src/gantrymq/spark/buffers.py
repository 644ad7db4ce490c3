"""Memory for kernels and Arrow stand in :mod:`gantrymq.tools.buffers`; the name here is for those who knew it."""

from gantrymq.tools.buffers import ValueBuffer, byte_buffer, offset_buffer, validity

__all__ = ["ValueBuffer", "byte_buffer", "offset_buffer", "validity"]
