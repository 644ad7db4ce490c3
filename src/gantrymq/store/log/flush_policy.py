"""When what was put becomes durable, and what an acknowledgement waits for: every decision about it is made here.

The services of :mod:`gantrymq.store.log.flush` and :mod:`gantrymq.store.log.flush` do the work; they and the puts ask
the policy what to do.

===============================  ==========================================  ==============================
setting                          an acknowledgement means                    the log is flushed by
===============================  ==========================================  ==============================
SYNC_FLUSH                       the record is on the disk, or               GroupCommitService, as soon as
                                 FLUSH_DISK_TIMEOUT; without                 a put waits
                                 ``wait_store_msg_ok`` as ASYNC_FLUSH
ASYNC_FLUSH                      the record is in the page cache             FlushRealTimeService, at its
                                                                             pace
ASYNC_FLUSH with                 the record is in a buffer of this process   the same, behind
transientStorePoolEnable                                                     CommitRealTimeService
===============================  ==========================================  ==============================

SYNC_FLUSH with transientStorePoolEnable takes no buffers.

Source: CommitLog.DefaultFlushManager, MessageStoreConfig.isTransientStorePoolEnable.
"""

from __future__ import annotations

from typing import NamedTuple

from gantrymq.config.settings import FlushDiskType, MessageStoreConfig

GROUP_COMMIT_INTERVAL_MS = 10


class Pace(NamedTuple):
    """How a service works off what is dirty.

    Each ``interval_ms`` a file is written where at least ``least_pages`` of it are dirty, and every file, however few
    they are, once ``thorough_interval_ms`` have passed since that was last done.
    """

    interval_ms: int
    least_pages: int
    thorough_interval_ms: int


class FlushPolicy:
    """The decisions of one open store.

    ``config`` may be replaced while the store is open (intervals, thresholds, timeouts). ``is_sync`` (SYNC_FLUSH) and
    ``lends_buffers`` (transientStorePoolEnable) are read by the start alone.

    Thread rule: any thread may ask; ``config`` is replaced as a whole.
    """

    def __init__(self, config: MessageStoreConfig) -> None:
        self.config = config
        self.is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.lends_buffers = config.transient_store_pool_enable and not self.is_sync

    # A put

    def waits_for_disk(self, wait_store_msg_ok: bool = True) -> bool:
        """Whether the acknowledgement of what is stored waits until its records are on the disk."""
        return self.is_sync and wait_store_msg_ok

    @property
    def disk_timeout_s(self) -> float:
        """How long such an acknowledgement waits before it is FLUSH_DISK_TIMEOUT."""
        return self.config.sync_flush_timeout_ms / 1000

    def wakes_flush(self, *, waits: bool) -> bool:
        """Whether a put wakes the flushing service; one that ``waits`` for the disk does so with its request."""
        return not self.config.flush_commit_log_timed or (self.is_sync and not waits)

    @property
    def fails_without_buffer(self) -> bool:
        """Whether a put fails where every buffer is lent; otherwise it writes to the mapping."""
        return self.config.fast_fail_if_no_buffer_in_store_pool

    # The services

    @property
    def log_flush(self) -> Pace:
        """The pace of FlushRealTimeService."""
        config = self.config
        return Pace(
            config.flush_interval_commit_log_ms,
            config.flush_commit_log_least_pages,
            config.flush_commit_log_thorough_interval_ms,
        )

    @property
    def log_commit(self) -> Pace:
        """The pace of CommitRealTimeService, which writes buffers to their files."""
        config = self.config
        return Pace(
            config.commit_interval_commit_log_ms,
            config.commit_commit_log_least_pages,
            config.commit_commit_log_thorough_interval_ms,
        )

    @property
    def queue_flush(self) -> Pace:
        """The pace of FlushConsumeQueueService."""
        config = self.config
        return Pace(
            config.flush_interval_consume_queue_ms,
            config.flush_consume_queue_least_pages,
            config.flush_consume_queue_thorough_interval_ms,
        )
