"""What an acknowledgement waits for: the disk, slaves, both or neither.

Source: CommitLog.handleDiskFlushAndHA.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from gantrymq.model.status import PutMessageStatus
from gantrymq.store.flush import FlushRealTimeService, GroupCommitService
from gantrymq.store.flush_policy import FlushPolicy
from gantrymq.store.flush_requests import FlushRequest, worse
from gantrymq.store.slave_acks import SlaveAcks

if TYPE_CHECKING:
    import asyncio

    from gantrymq.store.loop_flush import LoopFlushes

_PUT_OK = PutMessageStatus.PUT_OK


class Durability:
    """What puts need of flush and replication: the policy, the wake-ups, and futures of what is safe.

    ``wake_flush`` and ``wake_commit`` wake the runners of the log's flush and of CommitRealTimeService. ``slaves`` is
    None in a store without an HA server, which never waits for slaves.

    Thread rule: any thread; the futures any event loop.
    """

    def __init__(
        self,
        policy: FlushPolicy,
        *,
        group_commit: GroupCommitService,
        background: FlushRealTimeService,
        slaves: SlaveAcks | None,
        wake_flush: Callable[[], None],
        wake_commit: Callable[[], None],
    ) -> None:
        self.policy = policy
        self._group_commit, self._background, self._slaves = group_commit, background, slaves
        self._wake_flush, self._wake_commit = wake_flush, wake_commit

    def wake_after_put(self, *, waits: bool = True) -> None:
        """Wake the services that have work after a put.

        A put that ``waits`` for the disk wakes the flush service with its request.
        """
        if self.policy.lends_buffers:
            self._wake_commit()
        elif self.policy.wakes_flush(waits=waits):
            self._wake_flush()
        if self._slaves is not None:
            self._slaves.grown()

    def is_awaited(self, wait_store_msg_ok: bool = True) -> bool:
        """Whether the acknowledgement of a stored message waits."""
        return self.policy.waits_for_disk(wait_store_msg_ok) or (wait_store_msg_ok and self._waits_for_slaves)

    def refuses(self, wait_store_msg_ok: bool = True) -> bool:
        """Whether a put is refused because too few slaves are in sync."""
        return wait_store_msg_ok and self._slaves is not None and self._slaves.refuses()

    def wait(self, end_offset: int, *, for_slaves: bool = True) -> PutMessageStatus:
        """Wait until the log is safe up to ``end_offset``. Raises the error of the sync."""
        on_disk = self._request(end_offset) if self.policy.is_sync else None
        slaves = self._slaves if for_slaves and self._waits_for_slaves else None
        at_slaves = slaves.put_request(end_offset) if slaves is not None else None
        status = on_disk.result(self.policy.disk_timeout_s) if on_disk is not None else _PUT_OK
        if slaves is not None and at_slaves is not None:
            return worse(at_slaves.result(slaves.timeout_s), status)
        return status

    def until_safe(self, end_offset: int) -> asyncio.Future[PutMessageStatus]:
        """Return a future of the running event loop with the status of an acknowledgement of a waiting put.

        FLUSH_SLAVE_TIMEOUT counts more than FLUSH_DISK_TIMEOUT. If the sync fails, the future raises its error.
        """
        if not self._waits_for_slaves:
            return self._of_disk.until(end_offset)
        if not self.policy.is_sync:
            return self._of_slaves.until(end_offset)
        return self._of_disk.until_both(self._of_slaves, end_offset)

    def until_durable(self, end_offset: int) -> asyncio.Future[PutMessageStatus]:
        """Return a future of the running event loop that completes when the log is on the disk up to ``end_offset``.

        The result is PUT_OK, or FLUSH_DISK_TIMEOUT if the flush takes longer than syncFlushTimeout. If the sync fails,
        the future raises its error.
        """
        return self._of_disk.until(end_offset)

    def flush_soon(self, end_offset: int) -> None:
        """Let the log be flushed up to ``end_offset``, without a wait."""
        if self.policy.is_sync:
            self._request(end_offset)
        else:
            self.ask_for_flush()

    def ask_for_flush(self) -> None:
        """Let the log be flushed soon."""
        self._background.want_all()
        self._wake_flush()

    @property
    def _waits_for_slaves(self) -> bool:
        return self._slaves is not None and self._slaves.waits

    @cached_property
    def _of_disk(self) -> LoopFlushes:
        from gantrymq.store.loop_flush import LoopFlushes  # imports asyncio, which only coroutines need

        return LoopFlushes(self._request, lambda: self.policy.disk_timeout_s)

    @cached_property
    def _of_slaves(self) -> LoopFlushes:
        from gantrymq.store.loop_flush import LoopFlushes

        slaves = self._slaves
        assert slaves is not None, "the caller has asked"
        return LoopFlushes(slaves.put_request, lambda: slaves.timeout_s)

    def _request(self, end_offset: int) -> FlushRequest:
        request = self._group_commit.put_request(end_offset)
        self._wake_flush()
        return request
