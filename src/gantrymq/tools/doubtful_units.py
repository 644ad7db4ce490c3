"""The part of an old consume queue that says nothing, or nothing true, about what was there.

A file that is missing, short, or holds entries that cannot be true or lead elsewhere than the records of their offsets
(its bytes have moved, or are of another file) is no witness. The result has what the log has for these slots, and a
slot without a record is named by its neighbours; so this is told, and is no loss.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.names import offset_name
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.tools.bad_pages import joined
from gantrymq.tools.loss import NotCompared
from gantrymq.tools.queue_files import QueueFiles

_EMPTY = "are empty or cannot be true"
_ELSEWHERE = "lead elsewhere than the records of their offsets"


class DoubtfulUnits:
    """What of the files of one old queue could not be compared with the result."""

    def __init__(self, files: QueueFiles) -> None:
        self._files = files
        self._units: dict[tuple[int, str], tuple[int, int]] = {}  # file and fault: how many slots, and the first

    def see(self, first: int, is_false: NDArray[np.bool_], is_contradicted: NDArray[np.bool_]) -> None:
        """Take note of the slots from ``first`` on whose unit says nothing true, or something else than the log."""
        if not (is_false.any() or is_contradicted.any()):
            return
        files = self._files
        slots = np.arange(first, first + len(is_false))
        bases = slots * UNIT_SIZE // files.file_size * files.file_size
        is_there = (slots >= files.first) & (slots < files.end) & np.isin(bases, list(files.sizes))
        for rows, fault in ((is_false & is_there, _EMPTY), (is_contradicted & is_there, _ELSEWHERE)):
            for base in np.unique(bases[rows]).tolist():
                of_file = slots[rows & (bases == base)]
                count, begin = self._units.get((base, fault), (0, int(of_file[0])))
                self._units[base, fault] = count + len(of_file), begin

    def found(self, first: int, end: int, *, is_closed: bool) -> Iterator[NotCompared]:
        """All of it, by file. The messages of the result are among the slots [first, end); -1 where there is none."""
        files = self._files
        told: set[Path] = set()
        for (base, begin, stop), reason in joined(files.unreadable):
            path = files.directory / offset_name(base)
            yield NotCompared(path, f"bytes {begin} to {stop} cannot be read: {reason}")
            told.add(path)
        for path, reason in (*self._of_files(is_closed=is_closed), *self._of_ends(first, end, is_closed=is_closed)):
            if path not in told:
                yield NotCompared(path, reason, is_damage=False)
                told.add(path)

    def _of_files(self, *, is_closed: bool) -> Iterator[tuple[Path, str]]:
        files = self._files
        for begin, end in files.missing():
            yield files.path_of(begin), f"missing: offsets {begin} to {end - 1}"
        for base, size in sorted(files.sizes.items()):
            if size != files.file_size and (size or is_closed):  # a kill leaves an empty one
                yield files.directory / offset_name(base), f"is {size} bytes long, not {files.file_size}"
        for base in sorted({base for base, _ in self._units}):
            faults = [
                (fault, self._units[base, fault]) for fault in (_EMPTY, _ELSEWHERE) if (base, fault) in self._units
            ]
            texts = [f"{count} of its entries {fault}, the first at offset {begin}" for fault, (count, begin) in faults]
            yield files.directory / offset_name(base), "; ".join(texts)

    def _of_ends(self, first: int, end: int, *, is_closed: bool) -> Iterator[tuple[Path, str]]:
        files = self._files
        if first < 0 or not is_closed:  # a kill leaves queues that end early
            return
        if first < files.first:
            yield files.path_of(first), f"missing: offsets {first} to {files.first - 1}"
        if end > files.end:
            begin = max(first, files.end)
            reason = f"missing, or ends early: offsets {begin} to {end - 1}, which the log has"
            yield files.path_of(begin), reason
