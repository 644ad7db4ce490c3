"""Opens the parts of a store: the checkpoint first, then, in RocketMQ's order, commit log, consume queues and index.

The writer (:mod:`message_store`) and the reader (:mod:`reader`) share it. Each passes its own file system.

Source: DefaultMessageStore.load.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError, MisfiledQueueError
from gantrymq.fs.api import FileSystem
from gantrymq.model.host import Host
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.deleted_topics import DeletedTopics
from gantrymq.store.geometry import find_file_sizes, find_index_geometry
from gantrymq.store.index.index_service import IndexService
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queues import ConsumeQueues
from gantrymq.store.queue.owner import JudgedFile, judge_queue_files, misfiled_queues


@dataclass(slots=True)
class StoreParts:
    """The loaded parts. ``config`` has the sizes that the files have."""

    config: MessageStoreConfig
    last_exit_ok: bool
    log: CommitLog
    queues: ConsumeQueues
    checkpoint: StoreCheckpoint
    deleted: DeletedTopics

    def close(self) -> None:
        """Close the files."""
        self.log.close()
        self.queues.close()


def load_parts(
    fs: FileSystem,
    paths: StorePaths,
    config: MessageStoreConfig,
    given: Collection[str],
    now_ms: int,
    on_new_file: Callable[[MappedFile], None] | None = None,
) -> StoreParts:
    """Load checkpoint, log and queues. Changes nothing on the disk, except that empty queue files are removed.

    The values of the keys in ``given`` must hold; other file sizes are taken from the files. ``on_new_file`` is called
    with each commit log file that is created later. Raises WrongFileSizeError.
    """
    last_exit_ok = not fs.exists(paths.abort)
    # The checkpoint is read before the queues are listed, so that it does not cover more than they hold if a writer
    # continues.
    checkpoint = StoreCheckpoint(fs, paths.checkpoint)
    checkpoint.drop_impossible(now_ms)
    config = find_file_sizes(fs, paths, config, given)
    log = CommitLog(fs, paths, config.mapped_file_size_commit_log, on_new_file)
    log.load()
    queues = ConsumeQueues(fs, paths, config)
    queues.load()
    deleted = DeletedTopics(fs, paths, log.topic_and_end, log.min_offset)
    return StoreParts(config, last_exit_ok, log, queues, checkpoint, deleted)


def misfiled_in(fs: FileSystem, parts: StoreParts) -> list[tuple[JudgedFile, MisfiledQueueError]]:
    """Return the first file of each loaded queue that has entries of another queue, and the error about it."""
    log = parts.log
    judged = judge_queue_files(fs, parts.queues.listed(), log.slots_at, log.min_offset, log.max_offset)
    return list(misfiled_queues(judged))


def require_own_queues(fs: FileSystem, parts: StoreParts) -> None:
    """Raise MisfiledQueueError if a file of a consume queue holds the entries of another queue."""
    for _, error in misfiled_in(fs, parts):
        raise error


def load_index(
    fs: FileSystem, paths: StorePaths, parts: StoreParts, given: Collection[str], *, streams: bool = False
) -> tuple[IndexService, list[tuple[Path, int]]]:
    """Load the index. Raises WrongFileSizeError, AmbiguousGeometryError.

    With ``streams`` new files are written past the page cache until recovery has ended. After an abnormal exit the
    files that are newer than the checkpoint are dropped and returned, each with the physical offset at which its
    content begins.
    """
    parts.config = find_index_geometry(fs, paths, parts.config, given)
    checkpoint = parts.checkpoint

    def full_file_flushed(end_timestamp_ms: int) -> None:
        checkpoint.page.index_msg_timestamp_ms = end_timestamp_ms
        checkpoint.flush()

    slots, entries = parts.config.max_hash_slot_num, parts.config.max_index_num
    index = IndexService(fs, paths.index, slots, entries, full_file_flushed, streams=streams)
    dropped = index.load(None if parts.last_exit_ok else checkpoint.page.index_msg_timestamp_ms)
    return index, dropped


def store_host_of(config: MessageStoreConfig) -> Host:
    """Return brokerIP1 and listenPort as a host. Raises ConfigError if they are not an address."""
    ip = f"[{config.broker_ip1}]" if ":" in config.broker_ip1 else config.broker_ip1
    try:
        return Host.parse(f"{ip}:{config.listen_port}")
    except ValueError as error:
        raise ConfigError("brokerIP1", config.broker_ip1, "an IP address") from error
