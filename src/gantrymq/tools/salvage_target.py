"""The directory that a salvage fills: a store only when it is whole.

The new store is made in ``OUT/salvage.tmp``. A mark, ``OUT/salvage.unfinished``, is on the disk before the first byte
of it and goes when the last one is durable; whatever opens a store refuses one with the mark. RocketMQ does not know
the mark, and so the commit log is the last part that moves to its place: before that RocketMQ finds no store.

OUT is empty when the mark is made, so all that is beside it later was made by a salvage, and the next one may clear it.
What is in OUT without the mark, or has a name that no salvage gives, is never touched.

Thread rule: one thread.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from gantrymq.errors import StoreError
from gantrymq.format import names
from gantrymq.fs.api import FileSystem
from gantrymq.store.recovery.swap_journal import clear_directory

_WORK = "salvage.tmp"
# In the order in which they move to their places.
_PARTS = (
    *(names.CONFIG, names.CONSUME_QUEUE, names.CONSUME_QUEUE_EXT, names.INDEX, names.CHECKPOINT, names.LOCK),
    names.COMMIT_LOG,
)


class SalvageTarget:
    """The directory ``root``, missing or empty or left by a salvage that was interrupted."""

    def __init__(self, fs: FileSystem, root: Path) -> None:
        self._fs = fs
        self._root = root
        self._mark = root / names.SALVAGE_MARK
        self.work = root / _WORK

    def require_free(self) -> None:
        """Raise StoreError where something is there that no salvage has made."""
        found = {entry.name for entry in self._fs.scan(self._root)}
        if found and names.SALVAGE_MARK not in found:
            raise StoreError(self._root, "is not empty; a salvaged store needs a directory of its own")
        if foreign := found - {names.SALVAGE_MARK, _WORK, *_PARTS}:
            text = "was not made by the salvage that was interrupted in this directory; move it, or name another one"
            raise StoreError(self._root / min(foreign), text)

    def begin(self, source: Path) -> None:
        """Clear what an interrupted salvage has left, and make the directory to work in, under the mark."""
        self._fs.make_directory(self._root)
        mark = self._fs.open(self._mark, writable=True, create=True)
        try:
            mark.write_at(
                0,
                f"gantrymq store salvage of {source} was not finished: run it again\n".encode(errors="surrogateescape"),
            )
            mark.sync()
        finally:
            mark.close()
        self._fs.sync_directory(self._root)
        self._clear()
        self._fs.make_directory(self.work)

    def finish(self) -> None:
        """Let the parts of the new store, all of which are durable, take their places; then the mark goes."""
        made = {entry.name for entry in self._fs.scan(self.work)}
        for name in _PARTS:
            if name in made:
                self._fs.rename(self.work / name, self._root / name)
        self._fs.sync_directory(self.work, self._root)
        clear_directory(self._fs, self.work)
        self._remove_mark()

    def give_up(self) -> None:
        """The salvage has failed: what it made goes. Where that fails too, the mark stays."""
        with suppress(StoreError, OSError):
            self._clear()
            self._remove_mark()

    def _clear(self) -> None:
        for directory in (self.work, *(self._root / name for name in _PARTS)):
            entry = next((one for one in self._fs.scan(self._root) if one.name == directory.name), None)
            if entry is not None and entry.is_directory and not entry.is_link:
                clear_directory(self._fs, directory)
            elif entry is not None:
                self._fs.remove(directory)
        self._fs.sync_directory(self._root)

    def _remove_mark(self) -> None:
        self._fs.sync_directory(self._root)
        self._fs.remove(self._mark)
        self._fs.sync_directory(self._root)
