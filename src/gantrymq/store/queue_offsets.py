"""Which queue offsets of a run of records to believe.

No CRC covers a record's queue offset, and one flipped bit of it must neither move the messages behind it nor make a
queue of a billion empty slots. In the order of the log the offsets of a queue rise by one. Where a record breaks that
and the next one does not, the record is wrong; where the next one agrees with it, something is missing or repeated,
and the offsets stand. But where a record steps forward (or says 0) and the next one says what should have stood
there, it is of another queue: it gets the slot of the record in front, which is taken. Believed, it would keep all
behind it out of the queue. A restart at 0 (topic deleted and recreated) takes two records that show it: one flipped
bit must not drop a queue. At the end of a run, where no next one is known, a large step is not believed. And no
offset can be larger than the number of records that fit in front of it into the log. The first record of a queue has
none before it: two that agree overrule it, unless the log has room for what they say is missing in between.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.record import MIN_RECORD_SIZE
from gantrymq.kernels.arrays import Int64s

_BELIEVABLE_STEP = 4096
_RANKS = np.arange(4096)


def believable(offsets: Int64s, phy_offsets: Int64s, expected: int | None) -> Int64s:
    """The queue offsets (int64) of records that follow each other in one queue, those that cannot be true mended.

    ``phy_offsets`` is where the records lie; ``expected`` the next offset of the queue, None where it is empty.
    """
    count = len(offsets)
    first = int(offsets[0]) if expected is None else expected
    ranks = _RANKS[:count] if count <= len(_RANKS) else np.arange(count)
    # The offset that the first record would have, by the word of each record.
    origins = offsets - ranks
    if (origins == first).all() and 0 <= first <= int(phy_offsets[0]) // MIN_RECORD_SIZE:
        return offsets
    possible = (offsets >= 0) & (offsets <= phy_offsets // MIN_RECORD_SIZE)
    before = _origin_of_first(origins, possible, phy_offsets) if expected is None else expected
    for i in range(count):
        origin = int(origins[i])
        after = int(origins[i + 1]) if i + 1 < count and possible[i + 1] else None
        is_lonely_zero = offsets[i] == 0 and after != origin
        if (is_lonely_zero or origin > before) and _is_of_another(offsets, i, before + int(ranks[i])):
            origins[i] = before - 1
            before -= 1
            continue
        if origin != before and (
            is_lonely_zero or not possible[i] or after == before or _is_wild(origin - before, after)
        ):
            origin = before
        elif origin != before:
            before = origin
        origins[i] = before
    return origins + ranks


def going_on(offsets: Int64s, phy_offsets: Int64s, begins: Int64s, expected: Int64s) -> NDArray[np.bool_]:
    """Of many queues at once: whether each just goes on, so that :func:`believable` would mend nothing.

    Their records stand one queue behind the other, from ``begins`` on; a queue of which -1 is expected does not go on.
    """
    lengths = np.diff(begins, append=len(offsets))
    as_expected = offsets - np.arange(len(offsets)) == np.repeat(expected - begins, lengths)
    is_possible = (expected >= 0) & (expected <= phy_offsets[begins] // MIN_RECORD_SIZE)
    return is_possible & np.logical_and.reduceat(as_expected, begins)


def _origin_of_first(origins: Int64s, possible: NDArray[np.bool_], phy_offsets: Int64s) -> int:
    """What to believe of the first record of a queue, by the next two."""
    own = int(origins[0])
    if len(origins) == 1 or not possible[1]:
        return own if possible[0] else 0
    after = int(origins[1])
    if after < 0:  # the queue begins with the second one, anew, and nothing can stand in front of that
        return own if possible[0] else 0
    is_outvoted = len(origins) > 2 and after == origins[2]
    most_missing = (phy_offsets[1] - phy_offsets[0]) // MIN_RECORD_SIZE - 1
    is_gap = 0 < after - own <= most_missing
    return after if not possible[0] or (is_outvoted and not is_gap) else own


def _is_of_another(offsets: Int64s, row: int, expected: int) -> bool:
    """Whether behind a record, and those that go on from it, the queue goes on with ``expected``.

    Where it goes on from these records, it is the one in between that lies in a wrong place.
    """
    behind = row + 1
    while behind < len(offsets) and offsets[behind] == offsets[behind - 1] + 1:
        behind += 1
    if behind == len(offsets) or offsets[behind] != expected or expected == 0:
        return False
    if behind + 1 < len(offsets):
        return bool(offsets[behind + 1] == expected + 1)
    return bool(offsets[row] != expected + 1)


def _is_wild(step: int, after: int | None) -> bool:
    """Whether a step that nothing confirms is too large."""
    return after is None and abs(step) > _BELIEVABLE_STEP
