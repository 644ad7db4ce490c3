"""Ids for messages whose producer gave them none: ip 4 | process 2 | random 4 | milliseconds of the month 4 | count 2.

Source: MessageClientIDSetter.
"""

import itertools
import os
import struct
from datetime import datetime

_COUNT = itertools.count()
_HEAD = struct.Struct(">4sHI")
_TAIL = struct.Struct(">IH")


class UniqueIds:
    """Makes ids for the broker at ``ip`` (4 or 16 bytes, of which 4 are used)."""

    def __init__(self, ip: bytes) -> None:
        self._fixed = _HEAD.pack(ip[-4:], os.getpid() & 0xFFFF, int.from_bytes(os.urandom(4), "big"))

    def next(self, now_ms: int) -> str:
        """A new id: 32 upper-case hexadecimal digits."""
        month = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        since_ms = now_ms - int(month.timestamp() * 1000)
        return (self._fixed + _TAIL.pack(since_ms & 0xFFFFFFFF, next(_COUNT) & 0xFFFF)).hex().upper()
