"""When records become durable, and what an acknowledgement waits for. All these decisions are made here.

The services of :mod:`gantrymq.store.flush` do the work. They and the puts ask the policy.

===============================  ==========================================  ==============================
setting                          an acknowledgement means                    the log is flushed by
===============================  ==========================================  ==============================
SYNC_FLUSH                       the record is on the disk, or               GroupCommitService, as soon as
                                 FLUSH_DISK_TIMEOUT; without                 a put waits
                                 ``wait_store_msg_ok`` as ASYNC_FLUSH
ASYNC_FLUSH                      the record is in the page cache             FlushRealTimeService, at its
                                                                             pace
ASYNC_FLUSH with                 the record is in a buffer of this process   the same, after
transientStorePoolEnable                                                     CommitRealTimeService
===============================  ==========================================  ==============================

With SYNC_FLUSH, and at a slave, transientStorePoolEnable has no effect.

Source: CommitLog.DefaultFlushManager, MessageStoreConfig.isTransientStorePoolEnable.
"""

from __future__ import annotations

from typing import NamedTuple

from gantrymq.config.settings import FlushDiskType, MessageStoreConfig

GROUP_COMMIT_INTERVAL_MS = 10


class Pace(NamedTuple):
    """How often a service writes dirty pages.

    Every ``interval_ms`` the service writes if at least ``least_pages`` pages are dirty. Once ``thorough_interval_ms``
    have passed since the last thorough run, it writes all of them, however few.
    """

    interval_ms: int
    least_pages: int
    thorough_interval_ms: int


class FlushPolicy:
    """The flush decisions of one open store.

    ``config`` may be replaced while the store is open, which changes intervals, thresholds and timeouts. ``is_sync``
    (SYNC_FLUSH) and ``lends_buffers`` (transientStorePoolEnable) are read once, at the start.

    Thread rule: any thread may ask. ``config`` is replaced as a whole.
    """

    def __init__(self, config: MessageStoreConfig) -> None:
        self.config = config
        self.is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.lends_buffers = config.transient_store_pool_enable and not self.is_sync and not config.is_slave

    # A put

    def waits_for_disk(self, wait_store_msg_ok: bool = True) -> bool:
        """Whether the acknowledgement of a stored message waits until its record is on the disk."""
        return self.is_sync and wait_store_msg_ok

    @property
    def disk_timeout_s(self) -> float:
        """The seconds that an acknowledgement waits for the disk before its status is FLUSH_DISK_TIMEOUT."""
        return self.config.sync_flush_timeout_ms / 1000

    def wakes_flush(self, *, waits: bool) -> bool:
        """Whether a put wakes the flush service. A put that ``waits`` for the disk wakes it with its flush request."""
        return not self.config.flush_commit_log_timed or (self.is_sync and not waits)

    @property
    def fails_without_buffer(self) -> bool:
        """Whether a put fails when all write buffers are lent. Otherwise the file is written through its mapping."""
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
