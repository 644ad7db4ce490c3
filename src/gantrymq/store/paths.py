"""Where the parts of a store lie below its root (StorePathConfigHelper)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gantrymq.errors import StoreError
from gantrymq.format import names


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The paths of the store at ``root``."""

    root: Path

    @property
    def commit_log(self) -> Path:
        """Directory of the commit log."""
        return self.root / names.COMMIT_LOG

    @property
    def consume_queue(self) -> Path:
        """Directory of the consume queues."""
        return self.root / names.CONSUME_QUEUE

    @property
    def consume_queue_ext(self) -> Path:
        """Directory of the extended units of consume queues."""
        return self.root / names.CONSUME_QUEUE_EXT

    @property
    def index(self) -> Path:
        """Directory of the index files."""
        return self.root / names.INDEX

    @property
    def checkpoint(self) -> Path:
        """The checkpoint."""
        return self.root / names.CHECKPOINT

    @property
    def abort(self) -> Path:
        """The file that is there while the store is open."""
        return self.root / names.ABORT

    @property
    def lock(self) -> Path:
        """The lock file."""
        return self.root / names.LOCK

    @property
    def config(self) -> Path:
        """Directory of the configuration JSON files."""
        return self.root / names.CONFIG

    def require_outside(self, target: Path) -> None:
        """Raise StoreError where ``target`` lies in the store, which is only read; links are followed."""
        if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(self.root)):
            raise StoreError(target, f"lies in the store {self.root}, which is only read")
