"""One consume queue as files in a directory, of which some may be missing or short.

Thread rule: belongs to one thread. No file stays open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import StoreError
from gantrymq.format.names import offset_name, parse_offset_name
from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, UNIT_SIZE, decode_entry
from gantrymq.fs.api import Entry, File, FileSystem
from gantrymq.fs.reads import ask_twice, cause_of, read_by_pages
from gantrymq.store.paths import StorePaths, offset_files
from gantrymq.store.queue.consume_queue import UNIT_DTYPE
from gantrymq.store.queue.consume_queue_ext import REBUILD_EXT
from gantrymq.store.queue.consume_queues import is_topic_storable
from gantrymq.store.queue.queue_listing import is_topic_name, queue_id_of, scan_topic
from gantrymq.tools.check.findings import Finding, Kind
from gantrymq.tools.read.bad_disk import joined

_LOOK_BYTES = 1 << 20


@dataclass(slots=True)
class QueueFiles:
    """The files of queue ``queue_id`` of ``topic``; ``sizes`` has their lengths in bytes by the offset in their name.

    ``first`` is the first queue offset that a file holds, ``end`` is after the last unit that is not all zeros.
    ``unreadable`` maps (file's offset, begin, end) of unreadable bytes to the reason; they read as zeros.
    """

    fs: FileSystem
    directory: Path
    topic: str
    queue_id: int
    file_size: int
    sizes: dict[int, int] = field(default_factory=dict)
    others: list[Entry] = field(default_factory=list)
    unreadable: dict[tuple[int, int, int], str] = field(default_factory=dict)
    first: int = 0
    end: int = 0

    def load(self) -> None:
        """List the directory and find the end of the units."""
        for entry in self.fs.scan(self.directory):
            base = None if entry.is_directory or entry.is_special else parse_offset_name(entry.name)
            if base is None:
                self.others.append(entry)
            else:
                self.sizes[base] = entry.size_bytes
        if self.sizes:
            self.first = min(self.sizes) // UNIT_SIZE
            self.end = self._find_end()

    def look_again(self) -> None:
        """Forget the first files that a writer's retention has deleted meanwhile."""
        found = {entry.name for entry in self.fs.scan(self.directory)}
        for base in sorted(self.sizes):
            if offset_name(base) in found:
                self.first = base // UNIT_SIZE
                return
            if len(self.sizes) > 1:  # retention never deletes the last one
                del self.sizes[base]

    def _find_end(self) -> int:
        for base in sorted(self.sizes, reverse=True):
            last = self.sizes[base] - self.sizes[base] % UNIT_SIZE
            for start in range((last - 1) // _LOOK_BYTES * _LOOK_BYTES, -1, -_LOOK_BYTES):
                if self._is_hole(base, start, min(_LOOK_BYTES, last - start)):
                    continue
                raw = self._read_file(base, start, min(_LOOK_BYTES, last - start))
                if written := len(raw.rstrip(b"\0")):
                    return (base + start + written - 1) // UNIT_SIZE + 1
        return self.first

    def _is_hole(self, base: int, start: int, length: int) -> bool:
        """Whether the file system reports these bytes as a hole, as most of a new file is."""
        try:
            file = ask_twice(lambda: self.fs.open(self.directory / offset_name(base)))
        except FileNotFoundError:
            return True
        except StoreError as error:
            self._note(base, 0, self.sizes[base], cause_of(error))
            return True
        try:
            return file.data_from(start) >= start + length
        except (OSError, StoreError):
            return False
        finally:
            file.close()

    def path_of(self, queue_offset: int) -> Path:
        """The path of the file of a slot, which may not exist."""
        base = queue_offset * UNIT_SIZE // self.file_size * self.file_size
        return self.directory / offset_name(base)

    def units(self, begin: int, end: int) -> NDArray[np.uint8]:
        """The bytes of the slots [begin, end); zeros for slots that are in no file."""
        out = np.zeros((end - begin) * UNIT_SIZE, np.uint8)
        start, stop = begin * UNIT_SIZE, end * UNIT_SIZE
        at = start
        while at < stop:
            base = at // self.file_size * self.file_size
            upto = min(stop, base + self.file_size)
            if base in self.sizes:
                raw = self._read_file(base, at - base, upto - at)
                out[at - start : at - start + len(raw)] = np.frombuffer(raw, np.uint8)
            at = upto
        return out

    @property
    def begin(self) -> int:
        """The physical offset in unit 0; 0 if no file has it."""
        return decode_entry(self.units(0, 1).tobytes()).phy_offset

    def last_phy_offset(self, base: int) -> int:
        """The physical offset in the last unit of a file that is not blank; 0 if there is none."""
        begin, end = base // UNIT_SIZE, (base + self.sizes[base]) // UNIT_SIZE
        for start in (end - 1, begin):  # read the whole file only if its last unit is blank
            units = as_units(self.units(start, end))
            real = units["phy_offset"][units["size"] != BLANK_UNIT_SIZE]
            if len(real):
                return int(real[-1])
        return 0

    def missing(self) -> Iterator[tuple[int, int]]:
        """Yield the slots [begin, end) of each file that is missing between the first and the last."""
        bases = sorted(self.sizes)
        for before, after in pairwise(bases):
            if after > before + self.file_size:
                yield (before + self.file_size) // UNIT_SIZE, after // UNIT_SIZE

    def _read_file(self, base: int, position: int, length: int) -> bytes:
        try:
            file = ask_twice(lambda: self.fs.open(self.directory / offset_name(base)))
        except FileNotFoundError:
            return b""
        except (OSError, StoreError) as error:
            self._note(base, 0, self.sizes.get(base, self.file_size), cause_of(error))
            return b""
        try:
            return file.read_at(position, length)
        except (OSError, StoreError):
            return read_by_pages(file, position, length, partial(self._note, base))
        finally:
            file.close()

    def _note(self, base: int, start: int, end: int, error: str) -> None:
        self.unreadable.setdefault((base, start, end), error)


def as_units(raw: NDArray[np.uint8]) -> NDArray[np.void]:
    """View the bytes of whole units as an array of UNIT_DTYPE."""
    return raw.view(UNIT_DTYPE)


def begin_of(fs: FileSystem, directory: Path, file_size: int, topic: str, queue_id: int) -> int:
    """The physical offset in unit 0 of a queue below ``directory``; 0 if there is none. Reads one file."""
    return QueueFiles(fs, directory / topic / str(queue_id), topic, queue_id, file_size, {0: file_size}).begin


def place_of_unit(fs: FileSystem, directory: Path, file_size: int, topic: str, queue_id: int, queue_offset: int) -> int:
    """The physical offset in a unit of a queue below ``directory``; -1 if there is none."""
    if not is_topic_storable(topic) or min(queue_id, queue_offset) < 0:
        return -1
    base = queue_offset * UNIT_SIZE // file_size * file_size
    files = QueueFiles(fs, directory / topic / str(queue_id), topic, queue_id, file_size, {base: file_size})
    entry = decode_entry(files.units(queue_offset, queue_offset + 1).tobytes())
    return entry.phy_offset if 0 < entry.size_bytes < BLANK_UNIT_SIZE else -1


class ResultQueues:
    """Single slots of the queues below ``roots``. Each queue is below one root at most."""

    def __init__(self, fs: FileSystem, roots: Sequence[StorePaths], file_size: int) -> None:
        self._fs = fs
        self._roots = roots
        self._file_size = file_size

    def points_to(self, queue: tuple[str, int], queue_offset: int, phy_offset: int) -> bool:
        """Whether the unit of a slot points to ``phy_offset``."""
        return phy_offset >= 0 and self._place(queue, queue_offset) == phy_offset

    def has(self, queue: tuple[str, int], queue_offset: int) -> bool:
        """Whether the unit of a slot points to any message."""
        return self._place(queue, queue_offset) >= 0

    def _place(self, queue: tuple[str, int], queue_offset: int) -> int:
        places = (
            place_of_unit(self._fs, root.consume_queue, self._file_size, *queue, queue_offset) for root in self._roots
        )
        return max(places, default=-1)


def end_of(fs: FileSystem, roots: Sequence[StorePaths], config: MessageStoreConfig, topic: str, queue_id: int) -> int:
    """The queue offset after the last unit of a queue; 0 if it is below none of ``roots``.

    The queue is below one root at most.
    """
    end = 0
    for root in roots:
        directory = root.consume_queue / topic / str(queue_id)
        files = QueueFiles(fs, directory, topic, queue_id, config.mapped_file_size_consume_queue)
        files.load()
        end = max(end, files.end)
    return end


def queue_directories(fs: FileSystem, directory: Path) -> tuple[list[tuple[str, int, Path]], list[Path]]:
    """The consume queues below ``directory``, and the paths of other entries.

    Queues are (topic, queue id, directory), sorted.
    """
    queues, others = [], []
    for topic in fs.scan(directory):
        if not topic.is_directory:
            others.append(directory / topic.name)
            continue
        if not is_topic_name(topic.name):
            others.append(directory / topic.name)
        for queue in scan_topic(fs, directory / topic.name):
            queue_id = queue_id_of(queue.name) if queue.is_directory else None
            if queue_id is not None:
                queues.append((topic.name, queue_id, directory / topic.name / queue.name))
            else:
                others.append(directory / topic.name / queue.name)
    return sorted(queues), others


def unreadable_ext_pages(fs: FileSystem, paths: StorePaths) -> Iterator[Finding]:
    """Yield a finding for each unreadable range of the extended units. Reads all of them."""
    for topic, queue_id, directory in queue_directories(fs, paths.consume_queue_ext)[0]:
        for file in offset_files(fs, [directory]):
            pages: dict[tuple[int, int, int], str] = {}
            opened = fs.open(file.path)
            try:
                for position in range(0, file.size_bytes, _LOOK_BYTES):
                    _read_noting(opened, position, min(_LOOK_BYTES, file.size_bytes - position), pages)
            finally:
                opened.close()
            for (_, begin, end), reason in joined(pages):
                text = f"the disk cannot read bytes {begin} to {end}: {reason}; {REBUILD_EXT}"
                name = paths.name_of(file.path)
                yield Finding(
                    Kind.FILE_UNREADABLE, name, text, topic=topic, queue_id=queue_id, length_bytes=end - begin
                )


def _read_noting(file: File, position: int, length: int, pages: dict[tuple[int, int, int], str]) -> None:
    try:
        file.read_at(position, length)
    except (OSError, StoreError):
        read_by_pages(file, position, length, lambda begin, end, reason: pages.update({(0, begin, end): reason}))
