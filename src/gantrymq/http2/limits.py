"""What a client may cost an HTTP/2 server.

Nearly every attack on HTTP/2 is a stream of frames that are cheap to send and expensive to answer: rapid reset
(CVE-2023-44487), floods of PING, SETTINGS, PRIORITY, empty DATA or CONTINUATION frames (CVE-2019-9512 to 9518,
CVE-2024-27316), and windows that are opened by a byte at a time (CVE-2019-9511). A limit for each kind needs a
threshold for each kind. So :class:`CostBudget` is one account of a connection: each such frame is charged, work that is
delivered is a deposit, and the balance grows slowly with time. A client that works normally deposits more than it is
charged.

| what | balance |
|---|---|
| PING, PRIORITY, RST_STREAM, WINDOW_UPDATE, CONTINUATION, an empty DATA, a frame of unknown type | - 1 |
| a stream that is refused or malformed | - 2 |
| SETTINGS | - 10, and 1 more for each 100 open streams |
| a response that was sent to its end | + 4 |
| 1 KiB of sent DATA | + 1 |
| a second | + 100, to at most 1,000 in all |
"""

from __future__ import annotations

from dataclasses import dataclass

from gantrymq.http2.frames import ConnectionFault, ErrorCode


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one connection.

    ``max_header_bytes`` holds for a header block before and after it is decoded. ``max_pending_bytes`` is what a client
    may leave unread before its further requests are refused.
    """

    max_streams: int = 4_096
    max_header_bytes: int = 16 << 10
    stream_window_bytes: int = 64 << 10
    connection_window_bytes: int = 1 << 20
    max_pending_bytes: int = 16 << 20
    budget: int = 1_000
    budget_per_s: int = 100


class CostBudget:
    """The account of one connection."""

    def __init__(self, limits: Limits, now_s: float) -> None:
        self._max, self._per_s = limits.budget, limits.budget_per_s
        self._balance, self._now_s = float(limits.budget), now_s

    def pass_time(self, now_s: float) -> None:
        """Note what time it is."""
        self.deposit((now_s - self._now_s) * self._per_s)
        self._now_s = now_s

    def deposit(self, amount: float) -> None:
        """Note work that was delivered."""
        self._balance = min(self._balance + amount, self._max)

    def charge(self, amount: int, what: str) -> None:
        """Note a frame that costs. Raises ConnectionFault if the account is empty."""
        self._balance -= amount
        if self._balance < 0:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"too many frames that only cost: {what}")
