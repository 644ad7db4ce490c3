"""The writing half of an open store's face: puts by threads and by coroutines, one message or many.

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

_PUT_OK = PutMessageStatus.PUT_OK  # an enumeration's members are looked up slowly


class WritingStore(ReadingStore):
    """What an open store takes; what it is made of and when it refuses is :class:`~.message_store.MessageStore`'s.

    Thread rule: ``put`` and ``put_batch`` may be called from any thread; ``put_async`` and ``put_batch_async`` from
    any event loop, which they hold no longer than the append takes.

    ``flush_policy`` says what an acknowledgement waits for.
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
        """Store one message; the result's status says what became of it.

        Raises DiskFullError, StoreClosedError, SyncFailedError (nothing more is taken then).
        """
        result = self._append(message)
        if self.flush_policy.waits_for_disk(message.wait_store_msg_ok) and result.is_stored:
            result.status = self._flush_request(result.end_offset).result(self.flush_policy.disk_timeout_s)
        return result

    async def put_async(self, message: Message) -> PutMessageResult:
        """As :meth:`put`, for a coroutine: while it waits for the disk its event loop goes on (asyncPutMessage)."""
        result = self._append(message)
        if self.flush_policy.waits_for_disk(message.wait_store_msg_ok) and result.is_stored:
            result.status = await self.until_durable(result.end_offset)
        return result

    def put_batch(self, batch: Sequence[Message] | pa.Table) -> PutBatchResult:
        """Store a list of messages, or the rows of an Arrow table (columns: ``gantrymq.store.log.batch``), in order.

        They are acknowledged together. A message that cannot be stored is reported in the result and the others go
        on. Raises DiskFullError (what stands in front of the message that did not fit is stored), StoreClosedError,
        SyncFailedError.
        """
        result = self._append_batch(batch)
        if self.flush_policy.waits_for_disk() and result.end_offset >= 0:
            result.status = self._flush_request(result.end_offset).result(self.flush_policy.disk_timeout_s)
        return result

    async def put_batch_async(self, batch: Sequence[Message] | pa.Table) -> PutBatchResult:
        """As :meth:`put_batch`, for a coroutine."""
        result = self._append_batch(batch)
        if self.flush_policy.waits_for_disk() and result.end_offset >= 0:
            result.status = await self.until_durable(result.end_offset)
        return result

    def append(self, appendables: Sequence[Appendable]) -> list[PutMessageResult]:
        """Append all of them under one lock, in order, and wait for no flush (see :meth:`until_durable`).

        What cannot be stored says so in its status and the others go on: SERVICE_NOT_AVAILABLE where the store takes
        nothing or the disk is full.
        """
        config, host = self.config, self._store_host
        return self.append_checked([(one, one.check(config, host)) for one in appendables])

    def check_ahead(self, appendable: Appendable) -> PutMessageStatus:
        """Check a large appendable that is put next by :meth:`append_checked`, and have memory for its records.

        Both may take long: for 14 MB of records 5 to 40 ms, and more where the disk does not keep up. Thread rule: any
        thread that has ``appendable``.
        """
        status = appendable.check(self.config, self._store_host)
        if status is _PUT_OK:
            with suppress(StoreError, OSError):  # the append meets it again, and answers for it
                self._log.bring_in_ahead(appendable.size_bytes)
        return status

    def append_checked(self, checked: Sequence[tuple[Appendable, PutMessageStatus]]) -> list[PutMessageResult]:
        """As :meth:`append`, with the status of each check."""
        if not self.is_writable:
            return [_refused(one, PutMessageStatus.SERVICE_NOT_AVAILABLE) for one, _ in checked]
        now_ms = self._clock.now_ms()
        with self._put_lock:
            results = [self._append_checked(one, status, now_ms) for one, status in checked]
        self._wake_after_put()
        return results

    def until_durable(self, end_offset: int) -> asyncio.Future[PutMessageStatus]:
        """A future, of the running event loop, of everything up to ``end_offset`` being on the disk.

        FLUSH_DISK_TIMEOUT where that takes longer than syncFlushTimeout; the future raises the error of the sync.
        """
        return self._loop_flush().until(end_offset)

    # What the store is made of

    @property
    def is_writable(self) -> bool:
        """Whether puts are taken."""
        raise NotImplementedError

    def _require_open(self) -> None:
        raise NotImplementedError

    def _wake_after_put(self, *, waits: bool = True) -> None:
        """Wake whoever has work now; a producer who ``waits`` for the disk wakes its service when he asks."""
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
        except SyncFailedError as error:  # of a new file's name
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
        except (StoreError, OSError) as error:  # a new file: its name not synced, no descriptor left, a broken disk
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
            except (AttributeError, TypeError, ValueError):  # no message, or a field of another type: a put raises that
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
        """That of the running event loop."""
        import asyncio

        from gantrymq.store.log.flush import LoopFlush

        loop = asyncio.get_running_loop()
        found = self._loop_flushes.get(loop)
        if found is None:
            found = self._loop_flushes[loop] = LoopFlush(self._flush_request, lambda: self.flush_policy.disk_timeout_s)
        return found


def _refused(one: Appendable, status: PutMessageStatus) -> PutMessageResult:
    return PutMessageResult(status, one.topic, one.queue_id)
