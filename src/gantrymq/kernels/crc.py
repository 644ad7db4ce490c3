"""CRC-32 as in zlib and java.util.zip.CRC32 (reflected polynomial 0xedb88320), computed by ISA-L.

Decision 0003 has the reasons for using ISA-L.
"""

from typing import Any

from gantrymq.kernels.arrays import Bytes
from gantrymq.kernels.intrinsics import crc32_gzip_refl
from gantrymq.kernels.jit import helper, kernel


@helper
def crc_of(buf: Bytes, start: int, stop: int) -> Any:
    """Return the CRC-32 of ``buf[start:stop]`` (uint8) as a uint32, for other kernels.

    The caller ensures 0 <= start <= stop <= buf.size.
    """
    return crc32_gzip_refl(buf, start, stop - start)


@kernel
def crc32(buf: Bytes, start: int, stop: int) -> Any:
    """:func:`crc_of` for callers outside kernels."""
    return crc_of(buf, start, stop)
