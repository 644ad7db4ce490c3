"""What an acknowledgement waits for: the disk, slaves, both or neither.

Source: CommitLog.handleDiskFlushAndHA.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary

from gantrymq.model.status import PutMessageStatus
from gantrymq.store.flush import FlushRealTimeService, GroupCommitService
from gantrymq.store.flush_policy import FlushPolicy
from gantrymq.store.flush_requests import FlushRequest, LoopFlush
from gantrymq.store.slave_acks import SlaveAcks

_PUT_OK = PutMessageStatus.PUT_OK
_LoopFlushes = WeakKeyDictionary[asyncio.AbstractEventLoop, LoopFlush]


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
        self._loop_flushes: _LoopFlushes = WeakKeyDictionary()
        self._loop_slaves: _LoopFlushes = WeakKeyDictionary()

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
            return _worse(at_slaves.result(slaves.timeout_s), status)
        return status

    def until_safe(self, end_offset: int) -> asyncio.Future[PutMessageStatus]:
        """Return a future of the running event loop with the status of an acknowledgement of a waiting put.

        FLUSH_SLAVE_TIMEOUT counts more than FLUSH_DISK_TIMEOUT. If the sync fails, the future raises its error.
        """
        if not self._waits_for_slaves:
            return self.until_durable(end_offset)
        if not self.policy.is_sync:
            return self._until_replicated(end_offset)
        return _both(self.until_durable(end_offset), self._until_replicated(end_offset))

    def until_durable(self, end_offset: int) -> asyncio.Future[PutMessageStatus]:
        """Return a future of the running event loop that completes when the log is on the disk up to ``end_offset``.

        The result is PUT_OK, or FLUSH_DISK_TIMEOUT if the flush takes longer than syncFlushTimeout. If the sync fails,
        the future raises its error.
        """
        loop = asyncio.get_running_loop()
        loop_flush = self._loop_flushes.get(loop)
        if loop_flush is None:
            loop_flush = self._loop_flushes[loop] = LoopFlush(self._request, lambda: self.policy.disk_timeout_s)
        return loop_flush.until(end_offset)

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

    def _until_replicated(self, end_offset: int) -> asyncio.Future[PutMessageStatus]:
        slaves, loop = self._slaves, asyncio.get_running_loop()
        assert slaves is not None, "the caller has asked"
        loop_slaves = self._loop_slaves.get(loop)
        if loop_slaves is None:
            loop_slaves = self._loop_slaves[loop] = LoopFlush(slaves.put_request, lambda: slaves.timeout_s)
        return loop_slaves.until(end_offset)

    def _request(self, end_offset: int) -> FlushRequest:
        request = self._group_commit.put_request(end_offset)
        self._wake_flush()
        return request


def _worse(at_slaves: PutMessageStatus, on_disk: PutMessageStatus) -> PutMessageStatus:
    return on_disk if at_slaves is _PUT_OK else at_slaves


def _both(
    on_disk: asyncio.Future[PutMessageStatus], at_slaves: asyncio.Future[PutMessageStatus]
) -> asyncio.Future[PutMessageStatus]:
    """A future of both outcomes. The error of the sync completes it at once."""
    both: asyncio.Future[PutMessageStatus] = asyncio.get_running_loop().create_future()

    def done(_: asyncio.Future[PutMessageStatus]) -> None:
        if both.done():
            return
        if on_disk.done() and (error := on_disk.exception()) is not None:
            both.set_exception(error)
        elif on_disk.done() and at_slaves.done():
            both.set_result(_worse(at_slaves.result(), on_disk.result()))

    on_disk.add_done_callback(done)
    at_slaves.add_done_callback(done)
    return both
