"""The id that a producer gives a message (UNIQ_KEY): 16 bytes in upper-case hexadecimal.

======  =======================================================
bytes   field
======  =======================================================
4       the host's IPv4 address
2       the process id, its low 16 bits
4       the maker within the process; here drawn at random, again whenever the clock was set back
4       milliseconds since the month began, local time
2       a counter
======  =======================================================

Source: MessageClientIDSetter.
"""

from __future__ import annotations

import itertools
import os
import secrets
import socket
from datetime import datetime

from gantrymq.clock import Clock

_MASK_32 = 0xFFFFFFFF
_MASK_16 = 0xFFFF


class UniqueIdGenerator:
    """Makes ids. Thread rule: any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._process = socket.inet_aton(local_ip()) + (os.getpid() & _MASK_16).to_bytes(2, "big")
        self._fixed, self._latest_ms = self._draw(), 0
        self._counter = itertools.count()
        self._month_ms = self._next_month_ms = 0

    def new(self) -> str:
        """An id that is unique over all processes for a month."""
        now_ms = self._clock.now_ms()
        if now_ms < self._latest_ms:
            self._fixed = self._draw()  # before the next line, because another thread may run this code too
        self._latest_ms = now_ms
        if not self._month_ms <= now_ms < self._next_month_ms:
            self._month_ms, self._next_month_ms = _month_of(now_ms)
        since = now_ms - self._month_ms & _MASK_32
        return f"{self._fixed}{since:08X}{next(self._counter) & _MASK_16:04X}"

    def _draw(self) -> str:
        return (self._process + secrets.token_bytes(4)).hex().upper()


def _month_of(now_ms: int) -> tuple[int, int]:
    """The begin of this month and of the next, in local time, in milliseconds since the epoch."""
    now = datetime.fromtimestamp(now_ms / 1000)
    first = datetime(now.year, now.month, 1)
    following = datetime(now.year + now.month // 12, now.month % 12 + 1, 1)
    return int(first.timestamp()) * 1000, int(following.timestamp()) * 1000


def local_ip() -> str:
    """The IPv4 address that other hosts most likely see. Nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
