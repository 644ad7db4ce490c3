"""How many pending messages are due when: a histogram over a span of time that is not known in advance.

Memory is bounded. A bar begins with a width of a second. When there are too many bars, all widths double.

Thread rule: one thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

from gantrymq.tools.pending.waiting import PendingKind, PendingMessage

_MAX_BARS = 2_048
_SECOND_MS = 1_000


class DueBar(NamedTuple):
    """The messages that are due in [``begin_ms``, ``end_ms``), by kind."""

    begin_ms: int
    end_ms: int
    counts: dict[PendingKind, int]


class DueTimes:
    """Counts messages by due time. Messages that are due at ``now_ms`` or before it are only in ``overdue``."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.overdue: Counter[PendingKind] = Counter()
        self._width_ms = _SECOND_MS
        self._counts: Counter[tuple[int, PendingKind]] = Counter()

    def counted(self, messages: Iterator[PendingMessage]) -> Iterator[PendingMessage]:
        """Yield the messages, and count each."""
        for message in messages:
            if message.due_ms <= self.now_ms:
                self.overdue[message.kind] += 1
            else:
                self._counts[(message.due_ms - self.now_ms) // self._width_ms, message.kind] += 1
                while len(self._counts) > _MAX_BARS * len(PendingKind):
                    self._widen()
            yield message

    def _widen(self) -> None:
        self._width_ms *= 2
        counts, self._counts = self._counts, Counter()
        for (number, kind), count in counts.items():
            self._counts[number // 2, kind] += count

    def later(self, within_ms: int) -> int:
        """The number of messages that are due ``within_ms`` after now or later."""
        return sum(count for (number, _), count in self._counts.items() if number * self._width_ms >= within_ms)

    def bars(self, max_count: int, steps_ms: Collection[int], within_ms: int) -> list[DueBar]:
        """At most ``max_count`` bars of one width, from now to the last message that is not :meth:`later`.

        The width is the smallest of ``steps_ms`` that suffices, or a multiple of the largest one. Bars without a
        message are among them.
        """
        near = {key: count for key, count in self._counts.items() if key[0] * self._width_ms < within_ms}
        if not near:
            return []
        last_ms = max(number for number, _ in near) * self._width_ms + 1
        fitting = (step for step in sorted(steps_ms) if step >= self._width_ms and step * max_count >= last_ms)
        largest = max(steps_ms)
        width_ms = next(fitting, -(-last_ms // (max_count * largest)) * largest)
        width_ms = -(-width_ms // self._width_ms) * self._width_ms
        bars = [
            DueBar(self.now_ms + at * width_ms, self.now_ms + (at + 1) * width_ms, {})
            for at in range(-(-last_ms // width_ms))
        ]
        for (number, kind), count in near.items():
            counts = bars[number * self._width_ms // width_ms].counts
            counts[kind] = counts.get(kind, 0) + count
        return bars
