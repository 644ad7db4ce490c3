"""The write methods of an open store: puts from threads and from coroutines, of one message or many.

Source: DefaultMessageStore.putMessage, asyncPutMessage, putMessages.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from gantrymq.clock import Clock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import DiskFullError, StoreClosedError, StoreError, SyncFailedError
from gantrymq.model.host import Host
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.log.append import MessageAppender, PutLock
from gantrymq.store.log.appendable import Appendable, AppendableMessage
from gantrymq.store.log.batch import PutBatchResult, columns_of, messages_of
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.file_allocation import NoBufferError
from gantrymq.store.log.flush import FlushRequest
from gantrymq.store.log.flush_policy import FlushPolicy
from gantrymq.store.lookup import ReadingStore
from gantrymq.store.put_result import PutMessageResult

if TYPE_CHECKING:
    import asyncio

    import pyarrow as pa

    from gantrymq.store.log.flush import LoopFlush

_PUT_OK = PutMessageStatus.PUT_OK  # looking up an enum member is slow


class WritingStore(ReadingStore):
    """The puts of a store. :class:`~.message_store.MessageStore` provides the parts and decides when puts are refused.

    ``flush_policy`` says what an acknowledgement waits for.

    Thread rule: ``put`` and ``put_batch`` may be called from any thread. ``put_async`` and ``put_batch_async`` may be
    called from any event loop; they block it only for the append.
    """

    config: MessageStoreConfig
    flush_policy: FlushPolicy
    _appender: MessageAppender
    _log: CommitLog
    _clock: Clock
    _put_lock: PutLock
    _store_host: Host
    _loop_flushes: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopFlush]

    def put(self, message: Message) -> PutMessageResult:
        """Store one message. The result's status says whether it was stored.

        Raises DiskFullError, StoreClosedError, and SyncFailedError, after which the store accepts no more puts.
        """
        result = self._append(message)
        if self.flush_policy.waits_for_disk(message.wait_store_msg_ok) and result.is_stored:
            result.status = self._flush_request(result.end_offset).result(self.flush_policy.disk_timeout_s)
        return result

    async def put_async(self, message: Message) -> PutMessageResult:
        """Like :meth:`put`, for a coroutine.

        The event loop is not blocked while the put waits for the disk (asyncPutMessage).
        """
        result = self._append(message)
        if self.flush_policy.waits_for_disk(message.wait_store_msg_ok) and result.is_stored:
            result.status = await self.until_durable(result.end_offset)
        return result

    def put_batch(self, batch: Sequence[Message] | pa.Table) -> PutBatchResult:
        """Store a list of messages, or the rows of an Arrow table, in order (columns: ``gantrymq.store.log.batch``).

        The batch has one acknowledgement. A message that cannot be stored is reported in the result, and the others are
        stored. Raises DiskFullError (the messages before the one that did not fit are stored), StoreClosedError,
        SyncFailedError.
        """
        result = self._append_batch(batch)
        if self.flush_policy.waits_for_disk() and result.end_offset >= 0:
            result.status = self._flush_request(result.end_offset).result(self.flush_policy.disk_timeout_s)
        return result

    async def put_batch_async(self, batch: Sequence[Message] | pa.Table) -> PutBatchResult:
        """Like :meth:`put_batch`, for a coroutine."""
        result = self._append_batch(batch)
        if self.flush_policy.waits_for_disk() and result.end_offset >= 0:
            result.status = await self.until_durable(result.end_offset)
        return result

    def append(self, appendables: Sequence[Appendable]) -> list[PutMessageResult]:
        """Append all ``appendables`` in order under one lock, without waiting for a flush (see :meth:`until_durable`).

        An appendable that cannot be stored is reported in its status, and the others are stored. The status is
        SERVICE_NOT_AVAILABLE if the store accepts no puts or the disk is full.
        """
        config, host = self.config, self._store_host
        return self.append_checked([(one, one.check(config, host)) for one in appendables])

    def check_ahead(self, appendable: Appendable) -> PutMessageStatus:
        """Check a large appendable and allocate page cache for it, before :meth:`append_checked` takes the lock.

        Both can be slow: 5 to 40 ms for 14 MB of records, and more if the disk does not keep up. Thread rule: any
        thread that owns ``appendable``.
        """
        status = appendable.check(self.config, self._store_host)
        if status is _PUT_OK:
            with suppress(StoreError, OSError):  # the append fails in the same way and reports it
                self._log.prefault_ahead(appendable.size_bytes)
        return status

    def append_checked(self, checked: Sequence[tuple[Appendable, PutMessageStatus]]) -> list[PutMessageResult]:
        """Like :meth:`append`, for appendables that are checked already. Each comes with the status of its check."""
        if not self.is_writable:
            return [_refused(one, PutMessageStatus.SERVICE_NOT_AVAILABLE) for one, _ in checked]
        now_ms = self._clock.now_ms()
        with self._put_lock:
            results = [self._append_checked(one, status, now_ms) for one, status in checked]
        self._wake_after_put()
        return results

    def until_durable(self, end_offset: int) -> asyncio.Future[PutMessageStatus]:
        """Return a future of the running event loop that completes when the log is on the disk up to ``end_offset``.

        The result is PUT_OK, or FLUSH_DISK_TIMEOUT if the flush takes longer than syncFlushTimeout. If the sync fails,
        the future raises its error.
        """
        return self._loop_flush().until(end_offset)

    # Provided by MessageStore

    @property
    def is_writable(self) -> bool:
        """Whether the store accepts puts."""
        raise NotImplementedError

    def _require_open(self) -> None:
        raise NotImplementedError

    def _wake_after_put(self, *, waits: bool = True) -> None:
        """Wake the services that have work after a put.

        A put that ``waits`` for the disk wakes the flush service itself.
        """
        raise NotImplementedError

    def _flush_request(self, end_offset: int) -> FlushRequest:
        raise NotImplementedError

    def _note_failure(self, name: str, error: Exception) -> None:
        raise NotImplementedError

    # Appending

    def _append(self, message: Message) -> PutMessageResult:
        one = AppendableMessage(message)
        status = one.check(self.config, self._store_host)
        if status is not _PUT_OK:
            return PutMessageResult(status, message.topic, message.queue_id)
        if not self.is_writable:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, message.topic, message.queue_id)
        lock = self._put_lock
        try:
            if not lock.acquire(False):
                lock.wait()
            try:
                self._require_open()
                result = self._appender.append(one, self._clock.now_ms())
            finally:
                lock.release()
        except NoBufferError:
            return PutMessageResult(PutMessageStatus.CREATE_MAPPED_FILE_FAILED, message.topic, message.queue_id)
        except SyncFailedError as error:  # the directory of a new log file could not be synced
            self._note_failure("put", error)
            raise
        self._wake_after_put(waits=message.wait_store_msg_ok)
        return result

    def _append_checked(self, one: Appendable, status: PutMessageStatus, now_ms: int) -> PutMessageResult:
        if status is not _PUT_OK:
            return _refused(one, status)
        try:
            self._require_open()
            return self._appender.append(one, now_ms)
        except (DiskFullError, StoreClosedError):
            return _refused(one, PutMessageStatus.SERVICE_NOT_AVAILABLE)
        except NoBufferError:
            return _refused(one, PutMessageStatus.CREATE_MAPPED_FILE_FAILED)
        except (StoreError, OSError) as error:  # a new log file: failed sync, no descriptor, failed disk
            self._note_failure("append", error)
            return _refused(one, PutMessageStatus.UNKNOWN_ERROR)

    def _append_batch(self, batch: Sequence[Message] | pa.Table) -> PutBatchResult:
        result = PutBatchResult.empty(len(batch))
        if not self.is_writable:
            result.status = PutMessageStatus.SERVICE_NOT_AVAILABLE
            result.reject_rest(result.status)
            return result
        columns = columns_of(batch, self.config) if not self._store_host.is_v6 else None
        try:
            with self._put_lock:
                self._require_open()
                if columns is not None:
                    self._appender.append_columns(columns, self._clock.now_ms(), result)
                else:
                    self._append_one_by_one(batch, result)
        except NoBufferError:
            result.reject_rest(PutMessageStatus.CREATE_MAPPED_FILE_FAILED)
        except SyncFailedError as error:
            self._note_failure("put_batch", error)
            raise
        self._wake_after_put()
        return result

    def _append_one_by_one(self, batch: Sequence[Message] | pa.Table, result: PutBatchResult) -> None:
        for place, message in enumerate(messages_of(batch)):
            try:
                one = AppendableMessage(message)
                status = one.check(self.config, self._store_host)
            except (AttributeError, TypeError, ValueError):  # a wrong type, which ``put`` raises
                status = PutMessageStatus.MESSAGE_ILLEGAL
            if status is not _PUT_OK:
                result.rejected[place] = status
                continue
            put = self._appender.append(one, self._clock.now_ms())
            if not put.is_stored:
                result.rejected[place] = put.status
                continue
            result.phy_offsets[place], result.queue_offsets[place] = put.phy_offset, put.queue_offset
            result.sizes[place] = put.size_bytes

    # Waiting for the disk

    def _loop_flush(self) -> LoopFlush:
        """Return the LoopFlush of the running event loop."""
        import asyncio

        from gantrymq.store.log.flush import LoopFlush

        loop = asyncio.get_running_loop()
        found = self._loop_flushes.get(loop)
        if found is None:
            found = self._loop_flushes[loop] = LoopFlush(self._flush_request, lambda: self.flush_policy.disk_timeout_s)
        return found


def _refused(one: Appendable, status: PutMessageStatus) -> PutMessageResult:
    return PutMessageResult(status, one.topic, one.queue_id)
