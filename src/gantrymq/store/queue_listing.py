"""The files of all consume queues, as their directories list them.

A walk over ten thousand queue directories costs as much as the whole check of them, so walks are shared. The checks of
the log's files have one :class:`QueueListing`, which walks only as far as one of them asks. The check for misfiled
queues takes what the load of the queues has found (``ConsumeQueues.listed``).

The load has a walk of its own, because its order counts: a reader beside a writer lists the queues after it has read
the checkpoint and listed the log.

Thread rule: belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gantrymq.fs.api import FileSystem
from gantrymq.store.offset_files import OffsetFile, offset_files
from gantrymq.store.queue_names import QueueName, queue_directories


class ListedQueue(NamedTuple):
    """A queue, its directory, and the files there by their offset."""

    name: QueueName
    directory: Path
    files: list[OffsetFile]


def list_queues(fs: FileSystem, directory: Path) -> Iterator[ListedQueue]:
    """Every queue below ``directory`` (consumequeue/), in the order of the directories. Raises StorePermissionError."""
    for name in queue_directories(fs, directory):
        own = directory / name[0] / str(name[1])
        yield ListedQueue(name, own, offset_files(fs, [own]))


class QueueListing:
    """As :func:`list_queues`, for several checks: what one of them has listed is not listed again."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._rest = list_queues(fs, directory)
        self._listed: list[ListedQueue] = []

    def __iter__(self) -> Iterator[ListedQueue]:
        """The queues, from the first one on."""
        yield from self._listed
        for queue in self._rest:
            self._listed.append(queue)
            yield queue
