"""How long the files of a store are to be, where some of them may be damaged."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import StoreError
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.fs.api import FileSystem
from gantrymq.store.geometry import INDEX_KEYS, QUEUE_SIZE_KEY, log_file_size, settled_size
from gantrymq.store.paths import StorePaths, offset_files
from gantrymq.tools.index_files import find_index_files
from gantrymq.tools.queue_files import queue_directories


def queue_file_size(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, given: Collection[str]) -> int:
    """That of most files of the consume queues, unless it is given; raises ConfigError (geometry.settled_size)."""
    found, _ = queue_directories(fs, paths.consume_queue)
    sizes = [file.size_bytes for _, _, path in found for file in offset_files(fs, [path])]
    whole = [size for size in sizes if size % UNIT_SIZE == 0]
    return settled_size(QUEUE_SIZE_KEY, config.mapped_file_size_consume_queue, whole, given)


def store_sizes(
    fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, given: Collection[str], *, index: bool
) -> MessageStoreConfig:
    """``config`` with the sizes that most files say; with ``index`` the geometry of index files too.

    Raises AmbiguousGeometryError, ConfigError. Index files that no geometry explains say nothing.
    """
    config = replace(
        config,
        mapped_file_size_commit_log=log_file_size(fs, paths, config, given),
        mapped_file_size_consume_queue=queue_file_size(fs, paths, config, given),
    )
    if not index or all(key in given for key in INDEX_KEYS):
        return config
    files = find_index_files(fs, paths, config, given)
    if files.is_readable:
        config = replace(config, max_hash_slot_num=files.slots, max_index_num=files.entries)
    return config


def found_sizes(
    fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, given: Collection[str]
) -> MessageStoreConfig:
    """As :func:`store_sizes` with the index, for who only reads it: without a known geometry that of ``config``."""
    try:
        return store_sizes(fs, paths, config, given, index=True)
    except StoreError:
        return store_sizes(fs, paths, config, given, index=False)
