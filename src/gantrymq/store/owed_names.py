"""Names of new queues that are not durable yet.

A new queue has three: its topic's directory, its own, and its file's. Each sync of one waits for the disk, and so they
were nearly all that a new queue cost. They are owed until somebody relies on them: before the checkpoint vouches for
units, and before a file of the log goes, which is where lost units would come from again.

Thread rule: any thread.
"""

from __future__ import annotations

import threading
from pathlib import Path

from gantrymq.fs.api import FileSystem


class OwedNames:
    """The directories of queues, each two levels below one of the store at ``root``, that have such names."""

    def __init__(self, fs: FileSystem, root: Path) -> None:
        self._fs = fs
        self._root = root
        self._queues: dict[Path, None] = {}
        self._guard = threading.Lock()
        self._settling = threading.Lock()

    def add(self, queue: Path) -> None:
        """Names in the directory ``queue``, and those that lead to it, are not durable."""
        with self._guard:
            self._queues[queue] = None

    def settle(self) -> None:
        """Make them durable; raises SyncFailedError, and they are owed still."""
        with self._settling:  # who comes second may not go on before the first has synced
            with self._guard:
                queues, self._queues = self._queues, {}
            if not queues:
                return
            topics = dict.fromkeys(queue.parent for queue in queues)
            above = dict.fromkeys(topic.parent for topic in topics)
            try:
                self._fs.sync_directory(self._root, *above, *topics, *queues)
            except BaseException:
                with self._guard:
                    self._queues = queues | self._queues
                raise
