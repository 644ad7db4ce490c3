"""Collects decided half messages, and names them in op messages.

An op message names several half messages. It is put when its body has transactionOpMsgMaxSize bytes, or
transactionOpBatchInterval after the previous one. A commit puts its final message first. After a kill before the op
message the broker checks the half message again, although its final message is stored: the message may be delivered
twice, but is never lost.

A check would miss a decision that arrives after it has read the op queue and before it reads the half message. So the
decisions that arrive during a check are kept until its end. (RocketMQ misses those of the last three seconds: it checks
their half messages, and delivers messages twice.)

Thread rule: the event loop's thread.

Source: MessageQueueOpContext, TransactionalOpBatchService, TransactionalMessageServiceImpl.deletePrepareMessage.
"""

from __future__ import annotations

from collections import deque

from gantrymq.broker.storage import Storage
from gantrymq.broker.transactions.half_messages import op_message
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.op_message import op_body
from gantrymq.logs import get_logger
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.put_result import PutMessageResult

_LONGEST = 20  # bytes of an offset and its comma
MAX_WAITING = 20_000  # decisions; TransactionalMessageServiceImpl has the same limit for each queue

log = get_logger("gantrymq.broker")


class _Queue:
    """The decisions of one half queue."""

    __slots__ = ("is_writing", "size_bytes", "waiting", "writing")

    def __init__(self) -> None:
        self.waiting: deque[int] = deque()
        self.writing: list[int] = []
        self.size_bytes = 0  # bytes of the waiting offsets as text
        self.is_writing = False


class OpBatches:
    """The decisions that wait for an op message."""

    def __init__(self, config: LiveConfig, clock: Clock, storage: Storage) -> None:
        self._config, self._clock = config, clock
        self._puts, self._host = storage.puts, storage.store.store_host
        self._queues: dict[int, _Queue] = {}
        self._during_check: set[tuple[int, int]] | None = None

    @property
    def count(self) -> int:
        """The number of decisions that no op message in the log names yet."""
        return sum(len(queue.waiting) + len(queue.writing) for queue in self._queues.values())

    @property
    def has_room(self) -> bool:
        """Whether another decision may be added: the limit bounds memory while op messages cannot be stored."""
        return self.count < MAX_WAITING

    def add(self, queue_id: int, offset: int) -> None:
        """Add the decision on the half message at a queue offset."""
        queue = self._queues.setdefault(queue_id, _Queue())
        queue.waiting.append(offset)
        queue.size_bytes += len(str(offset)) + 1
        if self._during_check is not None:
            self._during_check.add((queue_id, offset))
        if queue.size_bytes > self._config.broker.transaction_op_msg_max_size:
            self._write(queue_id, queue)

    def write_all(self) -> None:
        """Put an op message for each queue with decisions. A put that fails is retried later."""
        for queue_id, queue in self._queues.items():
            self._write(queue_id, queue)

    # During a check

    def begin_check(self) -> None:
        """Keep all decisions, including the waiting ones, until :meth:`end_check`."""
        self._during_check = {
            (queue_id, offset)
            for queue_id, queue in self._queues.items()
            for offset in (*queue.waiting, *queue.writing)
        }

    def end_check(self) -> None:
        """Forget the decisions that op messages already name."""
        self._during_check = None

    def is_decided(self, queue_id: int, offset: int) -> bool:
        """Whether a decision was kept; between :meth:`begin_check` and :meth:`end_check`."""
        return self._during_check is not None and (queue_id, offset) in self._during_check

    # Puts

    def _write(self, queue_id: int, queue: _Queue) -> None:
        if queue.is_writing or not queue.waiting:
            return
        max_bytes = min(
            self._config.broker.transaction_op_msg_max_size, self._config.store.max_message_size_bytes - _LONGEST
        )
        size_bytes = 0
        while queue.waiting and (size_bytes < max_bytes or not queue.writing):
            offset = queue.waiting.popleft()
            size_bytes += len(str(offset)) + 1
            queue.writing.append(offset)
        queue.size_bytes -= size_bytes
        queue.is_writing = True
        message = op_message(queue_id, op_body(queue.writing), self._clock.now_ms(), self._host)

        def stored(result: PutMessageResult | None, busy: str | None) -> None:
            self._stored(queue_id, queue, result, busy)

        if not self._puts.put(AppendableMessage(message), self, stored):
            self._take_back(queue)

    def _stored(self, queue_id: int, queue: _Queue, result: PutMessageResult | None, busy: str | None) -> None:
        if result is None or not result.is_stored:
            reason = busy if result is None else result.status.value
            log.warning("an op message cannot be stored, and is retried later", queue=queue_id, reason=reason)
            self._take_back(queue)
            return
        queue.writing.clear()
        queue.is_writing = False
        if queue.size_bytes > self._config.broker.transaction_op_msg_max_size:
            self._write(queue_id, queue)

    def _take_back(self, queue: _Queue) -> None:
        queue.waiting.extendleft(reversed(queue.writing))
        queue.size_bytes += sum(len(str(offset)) + 1 for offset in queue.writing)
        queue.writing.clear()
        queue.is_writing = False
