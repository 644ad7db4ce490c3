"""Opens the parts of a store: the checkpoint first, then, in RocketMQ's order, commit log, consume queues and index.

The writer (:mod:`message_store`) and the reader (:mod:`reader`) share it. Each passes its own file system.

Source: DefaultMessageStore.load.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError, DiskFullError, MisfiledQueueError
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

_MAX_SET_BACK_MS = 60_000


@dataclass(frozen=True, slots=True)
class StoreParts:
    """The open files of the store at ``paths``."""

    fs: FileSystem
    paths: StorePaths
    log: CommitLog
    queues: ConsumeQueues
    checkpoint: StoreCheckpoint
    deleted: DeletedTopics

    def close(self) -> None:
        """Close the files."""
        self.log.close()
        self.queues.close()


class LoadedStore(NamedTuple):
    """The loaded parts, the settings with the sizes of the files, and whether the last writer closed the store."""

    parts: StoreParts
    config: MessageStoreConfig
    last_exit_ok: bool


def load_parts(
    fs: FileSystem,
    paths: StorePaths,
    config: MessageStoreConfig,
    given: Collection[str],
    now_ms: int,
    on_new_file: Callable[[MappedFile], None] | None = None,
) -> LoadedStore:
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
    parts = StoreParts(fs, paths, log, queues, checkpoint, DeletedTopics(fs, paths, log.topic_and_end, log.min_offset))
    return LoadedStore(parts, config, last_exit_ok)


def misfiled_in(parts: StoreParts) -> list[tuple[JudgedFile, MisfiledQueueError]]:
    """Return the first file of each loaded queue that has entries of another queue, and the error about it."""
    log = parts.log
    judged = judge_queue_files(parts.fs, parts.queues.listed(), log.slots_at, log.min_offset, log.max_offset)
    return list(misfiled_queues(judged))


def require_own_queues(parts: StoreParts) -> None:
    """Raise MisfiledQueueError if a file of a consume queue holds the entries of another queue."""
    for _, error in misfiled_in(parts):
        raise error


class LoadedIndex(NamedTuple):
    """The index, the settings with its geometry, and the dropped files with the offsets where their content begins."""

    service: IndexService
    config: MessageStoreConfig
    dropped: list[tuple[Path, int]]


def load_index(store: LoadedStore, given: Collection[str], *, streams: bool = False) -> LoadedIndex:
    """Load the index. Raises WrongFileSizeError, AmbiguousGeometryError.

    With ``streams`` new files are written past the page cache until recovery has ended. After an abnormal exit the
    files that are newer than the checkpoint are dropped.
    """
    parts, checkpoint = store.parts, store.parts.checkpoint
    config = find_index_geometry(parts.fs, parts.paths, store.config, given)

    def full_file_flushed(end_timestamp_ms: int) -> None:
        checkpoint.page.index_msg_timestamp_ms = end_timestamp_ms
        checkpoint.flush()

    slots, entries = config.max_hash_slot_num, config.max_index_num
    index = IndexService(parts.fs, parts.paths.index, slots, entries, full_file_flushed, streams=streams)
    dropped = index.load(None if store.last_exit_ok else checkpoint.page.index_msg_timestamp_ms)
    return LoadedIndex(index, config, dropped)


def write_abort(fs: FileSystem, paths: StorePaths) -> None:
    """Create the ``abort`` file. If a start finds it, the writer before did not end cleanly."""
    file = fs.open(paths.abort, writable=True, create=True)
    file.resize(0)
    with suppress(DiskFullError):  # only its existence counts, and a full disk still has room for a name
        file.write_at(0, str(os.getpid()).encode("ascii"))
    file.sync()
    file.close()
    fs.sync_directory(paths.root)


def last_timestamp_ms(parts: StoreParts, now_ms: int) -> int:
    """Return the store time (ms) of the newest dispatched message; 0 if there is none or it is a minute ahead.

    A time that far ahead comes from a wrong clock or a flipped bit. If it were continued, each message would get it
    for that long, and delayed messages were delivered at once, as after a clock set back (correctDeliverTimestamp).
    """
    message = parts.log.read(parts.queues.last_phy_offset)
    last_ms = message.store_timestamp_ms if message is not None else 0
    return last_ms if last_ms - now_ms <= _MAX_SET_BACK_MS else 0


def store_host_of(config: MessageStoreConfig) -> Host:
    """Return brokerIP1 and listenPort as a host. A name is resolved, to an IPv4 address if it has one, as in Java.

    Raises ConfigError for a name that does not resolve. (RocketMQ starts with it, and every send fails.)
    """
    name = config.broker_ip1.strip()
    with suppress(ValueError):
        return Host(ipaddress.ip_address(name).packed, config.listen_port)
    for family in (socket.AF_INET, socket.AF_INET6) if name else ():
        with suppress(OSError, UnicodeError):
            addresses = socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)
            return Host(socket.inet_pton(family, str(addresses[0][4][0]).partition("%")[0]), config.listen_port)
    raise ConfigError("brokerIP1", config.broker_ip1, "an IP address, or a host name that this machine can resolve")
