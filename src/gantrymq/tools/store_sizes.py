"""How long the files of a store are to be, where some of them may be damaged."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import WrongFileSizeError
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.fs.api import FileSystem
from gantrymq.store.geometry import INDEX_KEYS, usual_size
from gantrymq.store.paths import StorePaths
from gantrymq.tools.index_files import find_index_files
from gantrymq.tools.log_files import log_files
from gantrymq.tools.queue_files import queue_directories


def log_file_size(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, given: Collection[str]) -> int:
    """That of most files of the log, unless it is given."""
    if "mappedFileSizeCommitLog" in given:
        return config.mapped_file_size_commit_log
    files, _ = log_files(fs, paths)
    return usual_size([file.size_bytes for file in files]) or config.mapped_file_size_commit_log


def queue_file_size(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, given: Collection[str]) -> int:
    """That of most files of the consume queues, unless it is given."""
    if "mappedFileSizeConsumeQueue" in given:
        return config.mapped_file_size_consume_queue
    found, _ = queue_directories(fs, paths.consume_queue)
    sizes = [entry.size_bytes for _, _, path in found for entry in fs.scan(path) if not entry.is_directory]
    return usual_size([size for size in sizes if size % UNIT_SIZE == 0]) or config.mapped_file_size_consume_queue


def store_sizes(
    fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, given: Collection[str], *, index: bool
) -> MessageStoreConfig:
    """``config`` with the sizes that most files say; with ``index`` the geometry of index files too.

    Raises AmbiguousGeometryError, and WrongFileSizeError where index files are there that no geometry explains.
    """
    config = replace(
        config,
        mapped_file_size_commit_log=log_file_size(fs, paths, config, given),
        mapped_file_size_consume_queue=queue_file_size(fs, paths, config, given),
    )
    if not index or all(key in given for key in INDEX_KEYS):
        return config
    files = find_index_files(fs, paths, config, given)
    if files.names and not files.is_readable:
        hint = " ".join(f"--set {key}=…" for key in INDEX_KEYS)
        raise WrongFileSizeError(paths.index, files.size_bytes, f"files that a geometry explains; give it with {hint}")
    if files.is_readable:
        config = replace(config, max_hash_slot_num=files.slots, max_index_num=files.entries)
    return config
