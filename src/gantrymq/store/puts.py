"""The puts of an open store: from threads and from coroutines, of one message or many.

Source: DefaultMessageStore.putMessage, asyncPutMessage, putMessages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from gantrymq.clock import Clock
from gantrymq.errors import DiskFullError, StoreClosedError, StoreError, SyncFailedError
from gantrymq.fs.api import Bytes
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.durability import Durability
from gantrymq.store.live import Live
from gantrymq.store.log.append import MessageAppender, PutLock
from gantrymq.store.log.appendable import Appendable, AppendableMessage
from gantrymq.store.log.batch import PutBatchResult, columns_of, messages_of
from gantrymq.store.log.file_allocation import NoBufferError
from gantrymq.store.put_result import PutMessageResult
from gantrymq.store.state import StoreState

if TYPE_CHECKING:
    import pyarrow as pa

_PUT_OK = PutMessageStatus.PUT_OK  # looking up an enum member is slow


class Puts:
    """The puts of an open store. They take ``lock`` for the append, and wait for the disk as ``durability`` says.

    ``state`` decides whether puts are refused. ``wake_dispatch`` is called after each append.

    Thread rule: ``put`` and ``put_batch`` may be called from any thread. ``put_async`` and ``put_batch_async`` may be
    called from any event loop; they block it only for the append.
    """

    def __init__(
        self,
        appender: MessageAppender,
        *,
        live: Live,
        state: StoreState,
        durability: Durability,
        wake_dispatch: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._appender, self._host = appender, appender.store_host
        self._live, self._state = live, state
        self._durability, self._wake_dispatch = durability, wake_dispatch
        self._clock = clock
        self.lock = PutLock()

    def put(self, message: Message) -> PutMessageResult:
        """Store one message. The result's status says whether it was stored.

        Raises DiskFullError, StoreClosedError, and SyncFailedError, after which the store accepts no more puts.
        """
        result = self._append(message)
        if result.is_stored and self._durability.is_awaited(message.wait_store_msg_ok):
            result.status = self._durability.wait(result.end_offset)
        return result

    def put_here(self, message: Message) -> PutMessageResult:
        """Like :meth:`put`, without a wait for slaves: a message that was stored before, and is delivered now."""
        result = self._append(message)
        if result.is_stored and self._durability.is_awaited(message.wait_store_msg_ok):
            result.status = self._durability.wait(result.end_offset, for_slaves=False)
        return result

    async def put_async(self, message: Message) -> PutMessageResult:
        """Like :meth:`put`, for a coroutine.

        The event loop is not blocked while the put waits for the disk (asyncPutMessage).
        """
        result = self._append(message)
        if result.is_stored and self._durability.is_awaited(message.wait_store_msg_ok):
            result.status = await self._durability.until_safe(result.end_offset)
        return result

    def put_batch(self, batch: Sequence[Message] | pa.Table) -> PutBatchResult:
        """Store a list of messages, or the rows of an Arrow table, in order (columns: ``gantrymq.store.log.batch``).

        The batch has one acknowledgement. A message that cannot be stored is reported in the result, and the others are
        stored. Raises DiskFullError (the messages before the one that did not fit are stored), StoreClosedError,
        SyncFailedError.
        """
        result = self._append_batch(batch)
        if result.end_offset >= 0 and self._durability.is_awaited():
            result.status = self._durability.wait(result.end_offset)
        return result

    async def put_batch_async(self, batch: Sequence[Message] | pa.Table) -> PutBatchResult:
        """Like :meth:`put_batch`, for a coroutine."""
        result = self._append_batch(batch)
        if result.end_offset >= 0 and self._durability.is_awaited():
            result.status = await self._durability.until_safe(result.end_offset)
        return result

    def append(self, appendables: Sequence[Appendable]) -> list[PutMessageResult]:
        """Append all ``appendables`` in order under one lock, and wait for nothing (see ``until_safe``).

        An appendable that cannot be stored is reported in its status, and the others are stored. The status is
        SERVICE_NOT_AVAILABLE if the store accepts no puts or the disk is full.
        """
        config, host = self._live.config, self._host
        return self.append_checked([(appendable, appendable.check(config, host)) for appendable in appendables])

    def check(self, appendable: Appendable) -> PutMessageStatus:
        """Return PUT_OK, or the reason why an appendable cannot be stored, before it is put."""
        return appendable.check(self._live.config, self._host)

    def check_ahead(self, appendable: Appendable) -> PutMessageStatus:
        """Check a large appendable and allocate page cache for it, before :meth:`append_checked` takes the lock.

        Both can be slow: 5 to 40 ms for 14 MB of records, and more if the disk does not keep up. Thread rule: any
        thread that owns ``appendable``.
        """
        status = appendable.check(self._live.config, self._host)
        if status is _PUT_OK:
            with suppress(StoreError, OSError):  # the append fails in the same way and reports it
                self._appender.prefault_ahead(appendable.size_bytes)
        return status

    def append_checked(self, checked: Sequence[tuple[Appendable, PutMessageStatus]]) -> list[PutMessageResult]:
        """Like :meth:`append`, for appendables that are checked already. Each comes with the status of its check."""
        if not self._state.is_writable:
            return [_refused(appendable, PutMessageStatus.SERVICE_NOT_AVAILABLE) for appendable, _ in checked]
        now_ms = self._clock.now_ms()
        with self.lock:
            results = [self._append_checked(appendable, status, now_ms) for appendable, status in checked]
        self._wake_dispatch()
        self._durability.wake_after_put()
        return results

    def close(self) -> bool:
        """Refuse puts from now on. Returns False if they were refused before."""
        with self.lock:
            was_closed, self._state.is_closed = self._state.is_closed, True
        return not was_closed

    def next_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the offset of a queue's next message, even if earlier messages are not dispatched yet."""
        return self._appender.next_offset(topic, queue_id)

    def forget_queue(self, topic: str, queue_id: int) -> None:
        """Restart a queue at offset 0, because its topic was deleted. Thread rule: under ``lock``."""
        self._appender.forget_queue(topic, queue_id)

    def append_copied(self, data: Bytes, phy_offset: int, store_timestamp_ms: int) -> None:
        """Append checked bytes of another broker's log at the log's end, as :class:`MessageAppender` does.

        Raises DiskFullError, StoreClosedError, and SyncFailedError, after which the store takes no more bytes.
        """
        if self._state.has_failed_sync:
            raise SyncFailedError(self._state.root, "a sync has failed before")
        try:
            with self.lock:
                self._state.require_open()
                self._appender.append_copied(data, phy_offset, store_timestamp_ms)
        except SyncFailedError as error:
            self._state.note_failure("append", error)
            raise
        self._wake_dispatch()
        self._durability.wake_after_put()

    # Appending

    def _append(self, message: Message) -> PutMessageResult:
        appendable = AppendableMessage(message)
        status = appendable.check(self._live.config, self._host)
        if status is not _PUT_OK:
            return PutMessageResult(status, message.topic, message.queue_id)
        if not self._state.is_writable:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, message.topic, message.queue_id)
        if self._durability.refuses(message.wait_store_msg_ok):
            return PutMessageResult(PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, message.topic, message.queue_id)
        lock = self.lock
        try:
            if not lock.acquire(False):
                lock.wait()
            try:
                self._state.require_open()
                result = self._appender.append(appendable, self._clock.now_ms())
            finally:
                lock.release()
        except NoBufferError:
            return PutMessageResult(PutMessageStatus.CREATE_MAPPED_FILE_FAILED, message.topic, message.queue_id)
        except SyncFailedError as error:  # the directory of a new log file could not be synced
            self._state.note_failure("put", error)
            raise
        self._wake_dispatch()
        self._durability.wake_after_put(waits=message.wait_store_msg_ok)
        return result

    def _append_checked(self, appendable: Appendable, status: PutMessageStatus, now_ms: int) -> PutMessageResult:
        if status is not _PUT_OK:
            return _refused(appendable, status)
        if self._durability.refuses(appendable.wait_store_msg_ok):
            return _refused(appendable, PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)
        try:
            self._state.require_open()
            return self._appender.append(appendable, now_ms)
        except (DiskFullError, StoreClosedError):
            return _refused(appendable, PutMessageStatus.SERVICE_NOT_AVAILABLE)
        except NoBufferError:
            return _refused(appendable, PutMessageStatus.CREATE_MAPPED_FILE_FAILED)
        except (StoreError, OSError) as error:  # a new log file: failed sync, no descriptor, failed disk
            self._state.note_failure("append", error)
            return _refused(appendable, PutMessageStatus.UNKNOWN_ERROR)

    def _append_batch(self, batch: Sequence[Message] | pa.Table) -> PutBatchResult:
        result = PutBatchResult.empty(len(batch))
        if not self._state.is_writable:
            result.status = PutMessageStatus.SERVICE_NOT_AVAILABLE
            result.reject_rest(result.status)
            return result
        if self._durability.refuses():
            result.status = PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
            result.reject_rest(result.status)
            return result
        columns = columns_of(batch, self._live.config) if not self._host.is_v6 else None
        try:
            with self.lock:
                self._state.require_open()
                if columns is not None:
                    self._appender.append_columns(columns, self._clock.now_ms(), result)
                else:
                    self._append_one_by_one(batch, result)
        except NoBufferError:
            result.reject_rest(PutMessageStatus.CREATE_MAPPED_FILE_FAILED)
        except SyncFailedError as error:
            self._state.note_failure("put_batch", error)
            raise
        self._wake_dispatch()
        self._durability.wake_after_put()
        return result

    def _append_one_by_one(self, batch: Sequence[Message] | pa.Table, result: PutBatchResult) -> None:
        for number, message in enumerate(messages_of(batch)):
            try:
                appendable = AppendableMessage(message)
                status = appendable.check(self._live.config, self._host)
            except (AttributeError, TypeError, ValueError):  # a wrong type, which ``put`` raises
                status = PutMessageStatus.MESSAGE_ILLEGAL
            if status is not _PUT_OK:
                result.rejected[number] = status
                continue
            put = self._appender.append(appendable, self._clock.now_ms())
            if not put.is_stored:
                result.rejected[number] = put.status
                continue
            result.phy_offsets[number], result.queue_offsets[number] = put.phy_offset, put.queue_offset
            result.sizes[number] = put.size_bytes


def _refused(appendable: Appendable, status: PutMessageStatus) -> PutMessageResult:
    return PutMessageResult(status, appendable.topic, appendable.queue_id)
