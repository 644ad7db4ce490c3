"""The store that a tool works on, as its caller named it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.fs.api import FileSystem


@dataclass(frozen=True)
class StoreSource:
    """The directory ``root`` of a store on a file system, and its settings.

    ``given`` names the RocketMQ keys whose values in ``config`` are binding, as with ``MessageStore.open``; other sizes
    are read from the files.
    """

    fs: FileSystem
    root: Path
    config: MessageStoreConfig
    given: Collection[str]
