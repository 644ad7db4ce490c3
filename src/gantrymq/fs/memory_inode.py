"""A file of the file system in memory: the bytes that programs see, and the bytes that are durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gantrymq.fs.api import Bytes

PAGE_SIZE = 4096
_Item = TypeVar("_Item", np.uint8, np.bool_)


class MemoryInode:
    """The live and the durable bytes of one file. ``reserved`` has a flag for each page: whether its space is reserved.

    A directory is an inode without bytes.
    """

    def __init__(self, content: Bytes, *, is_directory: bool = False) -> None:
        self.is_directory = is_directory
        self.live = content
        self.durable = content.copy()
        self.reserved: NDArray[np.bool_] = np.any(in_units(content, PAGE_SIZE), axis=1)
        self.is_mapped = False
        self.modified_ms = 0
        self.given_up: dict[int, bytes] = {}

    def copy(self) -> MemoryInode:
        """A copy of the file that is not mapped."""
        copy = MemoryInode(self.live.copy(), is_directory=self.is_directory)
        copy.durable, copy.reserved, copy.modified_ms = self.durable.copy(), self.reserved.copy(), self.modified_ms
        copy.given_up = dict(self.given_up)
        return copy

    def make_durable(self) -> None:
        """Make every page durable except those that were given up and not written since."""
        before, self.durable = resized(self.durable, len(self.live)), self.live.copy()
        self.given_up = {page: was for page, was in self.given_up.items() if was == self.live[_page(page)].tobytes()}
        for page in self.given_up:
            self.durable[_page(page)] = before[_page(page)]

    def give_up(self) -> None:
        """Simulate a failed fdatasync of Linux: dirty pages become clean, and no later sync writes them."""
        live, durable = in_units(self.live, PAGE_SIZE), in_units(resized(self.durable, len(self.live)), PAGE_SIZE)
        for page in np.flatnonzero((live != durable).any(axis=1)).tolist():
            self.given_up[page] = self.live[_page(page)].tobytes()

    def wrote(self, position: int, end: int) -> None:
        """Mark the pages of written bytes as dirty, even if the bytes are unchanged."""
        for page in range(position // PAGE_SIZE, -(-end // PAGE_SIZE)):
            self.given_up.pop(page, None)

    def after_power_cut(self, length: int, chance: Callable[[int], NDArray[np.bool_]], unit_bytes: int) -> MemoryInode:
        """The file after a power cut, with ``length`` bytes.

        ``chance(n)`` draws which of n unsynced units the disk kept.
        """
        content = resized(self.durable, length)
        newer, older = in_units(resized(self.live, length), unit_bytes), in_units(content, unit_bytes)
        dirty = np.flatnonzero((newer != older).any(axis=1))
        got = dirty[chance(len(dirty))]
        older[got] = newer[got]
        return MemoryInode(older.reshape(-1)[:length].copy(), is_directory=self.is_directory)


def _page(number: int) -> slice:
    return slice(number * PAGE_SIZE, (number + 1) * PAGE_SIZE)


def resized(array: NDArray[_Item], length: int) -> NDArray[_Item]:
    """A copy of ``array`` with ``length`` items, cut off or padded with zeros."""
    out = np.zeros(length, array.dtype)
    kept = min(len(array), length)
    out[:kept] = array[:kept]
    return out


def in_units(content: Bytes, unit_bytes: int) -> NDArray[np.uint8]:
    """The content as rows of ``unit_bytes``, padded with zeros."""
    return resized(content, -(-len(content) // unit_bytes) * unit_bytes).reshape(-1, unit_bytes)
