"""The findings of files whose bytes the disk cannot read.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gantrymq.errors import StoreError
from gantrymq.fs.api import File, FileSystem
from gantrymq.fs.reads import read_by_pages
from gantrymq.store.index.index_file import REBUILD_INDEX
from gantrymq.store.paths import StorePaths, offset_files
from gantrymq.store.queue.consume_queue_ext import REBUILD_EXT
from gantrymq.tools.findings import Finding, FindingKind
from gantrymq.tools.read.bad_disk import ReadableBytes, joined
from gantrymq.tools.read.queue_files import queue_directories

_LOOK_BYTES = 1 << 20


def unreadable_findings(root: Path, path: Path, data: ReadableBytes) -> Iterator[Finding]:
    """Yield a finding for each unreadable range of an index file. Reads the whole file."""
    data.prefault(0, len(data.array))
    for (_, begin, end), reason in joined(data.unreadable):
        text = f"the disk cannot read bytes {begin} to {end}: {reason}; {REBUILD_INDEX}"
        yield Finding(FindingKind.FILE_UNREADABLE, path.relative_to(root), text, length_bytes=end - begin)


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
                    FindingKind.FILE_UNREADABLE, name, text, topic=topic, queue_id=queue_id, length_bytes=end - begin
                )


def _read_noting(file: File, position: int, length: int, pages: dict[tuple[int, int, int], str]) -> None:
    try:
        file.read_at(position, length)
    except (OSError, StoreError):
        read_by_pages(file, position, length, lambda begin, end, reason: pages.update({(0, begin, end): reason}))
