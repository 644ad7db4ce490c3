"""A limit for the bytes that all connections of a server buffer together.

A limit per connection alone limits nothing, since a client may open any number of connections. Above the limit the
connections that hold the most bytes for the longest time are closed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

_LEAST_AGE_S = 0.05
_SPARE = 8


@dataclass(slots=True)
class _Held:
    size_bytes: int
    since: float


class BufferBudget(Generic[T]):
    """Bytes by holder. Above ``limit_bytes`` in total, ``cut_off`` is called for holders until the total is below it.

    ``measure`` returns what a holder has now, which may be less than it noted last. Holders are cut off in the order of
    bytes times seconds since they last released some, so that a large message of a fast sender is kept and a frame that
    trickles in is not.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self, limit_bytes: int, measure: Callable[[T], int], cut_off: Callable[[T, int], None], now: Callable[[], float]
    ) -> None:
        self._limit_bytes, self._measure, self._cut_off, self._now = limit_bytes, measure, cut_off, now
        self._holders: dict[T, _Held] = {}
        self.size_bytes = 0

    def note(self, holder: T, size_bytes: int, added_bytes: int = 0) -> None:
        """Note that a holder has ``size_bytes``, ``added_bytes`` of them since the last event. May call ``cut_off``."""
        held = self._holders.get(holder)
        if held is None:
            if not size_bytes:
                return
            self._holders[holder] = _Held(size_bytes, self._now())
            self.size_bytes += size_bytes
        elif size_bytes:
            self.size_bytes += size_bytes - held.size_bytes
            if size_bytes - added_bytes < held.size_bytes:
                held.since = self._now()
            held.size_bytes = size_bytes
        else:
            self.forget(holder)
        if self.size_bytes > self._limit_bytes:
            self._shrink()

    def forget(self, holder: T) -> None:
        """Remove a holder that buffers nothing any more."""
        held = self._holders.pop(holder, None)
        if held is not None:
            self.size_bytes -= held.size_bytes

    def _shrink(self) -> None:
        now = self._now()
        for holder, held in list(self._holders.items()):
            size_bytes = self._measure(holder)
            if size_bytes < held.size_bytes:
                held.since = now
            self.size_bytes += size_bytes - held.size_bytes
            held.size_bytes = size_bytes
            if not size_bytes:
                del self._holders[holder]
        if self.size_bytes <= self._limit_bytes:
            return

        def weight(holder: T) -> float:
            held = self._holders[holder]
            return held.size_bytes * (now - held.since + _LEAST_AGE_S)

        # A margin, so that not every further byte starts another search.
        target_bytes = self._limit_bytes - self._limit_bytes // _SPARE
        for holder in sorted(self._holders, key=weight, reverse=True):
            if self.size_bytes <= target_bytes:
                return
            size_bytes = self._holders[holder].size_bytes
            self.forget(holder)
            self._cut_off(holder, size_bytes)
