"""Concurrent consumption: several listener calls at once, in no order.

Source: ConsumeMessageConcurrentlyService.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gantrymq.client.consumer.fetch.process_queue import ProcessQueue
from gantrymq.client.consumer.listeners import (
    ConcurrentListener,
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
)
from gantrymq.client.consumer.push.consumption import (
    ConsumeContext,
    ConsumptionByListener,
    SingleCall,
    consume_directly,
    log_failure,
)
from gantrymq.client.requests.received import ReceivedMessage, restore_topic
from gantrymq.clock import monotonic_ms
from gantrymq.logs import get_logger
from gantrymq.model.delays import retry_level
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import ConsumeMessageDirectlyResult

SettlePopped = Callable[[list[ReceivedMessage], int, int | None], None]
"""Settles a batch of popped messages. Arguments: the batch, how many of its first messages are consumed, a delay level.

The other messages are delivered again after the delay level. If the level is None, the invisible time of the batch is
over, and nothing is sent. Thread rule: any thread if the level is None, otherwise the event loop's thread.
"""

AGAIN_SECONDS = 5.0  # delay before a message that could not be sent back is consumed again
_EXPIRED_AT_ONCE = 16

log = get_logger("gantrymq.client.consumer")


@dataclass(slots=True, eq=False)
class _PulledCall:
    """A call of the listener with pulled messages. ``mark`` notes that they are in a listener, ``ended`` its result."""

    messages: list[ReceivedMessage]
    context: ConsumeConcurrentlyContext
    queue: ProcessQueue
    mark: Callable[[list[ReceivedMessage]], None]
    ended: Callable[[_PulledCall, ConsumeConcurrentlyStatus | None, BaseException | None], None]

    def begin(self) -> bool:
        """Returns False if the queue was released meanwhile. Thread rule: any thread."""
        if self.queue.dropped:
            return False
        self.mark(self.messages)
        return True

    def done(self, status: ConsumeConcurrentlyStatus | None, error: BaseException | None) -> None:
        """Pass the result on."""
        self.ended(self, status, error)


class ConcurrentConsumption(ConsumptionByListener[ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus]):
    """Calls the listener with batches of ``consume_message_batch_max_size``.

    Failed messages are sent back to the broker.

    A message that was sent back no longer blocks its queue's offset. The committed offset is that of the first message
    not yet consumed. Thread rule: the event loop's thread.
    """

    is_orderly = False

    def __init__(self, consume_context: ConsumeContext, listener: ConcurrentListener) -> None:
        super().__init__(consume_context, listener, ConsumeConcurrentlyStatus)
        self._consumed: defaultdict[ProcessQueue, list[ReceivedMessage]] = defaultdict(list)

    def deliver(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Cut messages into batches and pass them to the listener."""
        context, size = self._context, self._context.config.consume_message_batch_max_size
        shown = context.member.shown(queue.queue)
        batches = [messages[begin : begin + size] for begin in range(0, len(messages), size)]
        self._listening.submit(
            [
                _PulledCall(batch, ConsumeConcurrentlyContext(shown), queue, context.begin, self._done)
                for batch in batches
            ]
        )

    def deliver_popped(self, topic: str, messages: list[ReceivedMessage], settle: SettlePopped) -> None:
        """Cut popped messages into batches and pass them to the listener. Each is settled by itself."""
        size = self._context.config.consume_message_batch_max_size
        for message in messages:
            restore_topic(message, self._context.member.retry_topic, self._context.config.namespace)
        for begin in range(0, len(messages), size):
            self._submit_popped(topic, messages[begin : begin + size], settle)

    async def directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        """Pass one message to the listener on behalf of an administrator."""
        context = ConsumeConcurrentlyContext(MessageQueue(message.topic, message.broker_name, message.queue_id))
        return await consume_directly(self._listening, message, context, self._context)

    async def close(self) -> None:
        """Begin no calls, and settle the results of those under way, except the exempt ones."""
        await self._close_listening()
        self._settle_results()
        self._ending.set()
        await self._tasks.drain(self._wait_s)
        await self._tasks.close()

    async def wait_for_exempt(self) -> None:
        """Settle the results of the exempt calls."""
        await self._wait_for_exempt()
        self._settle_results()

    async def clean_expired(self, queues: Iterable[ProcessQueue]) -> None:
        """Send back messages whose listener call is older than ``consume_timeout_minutes``: they block the offset."""
        limit_ms = self._context.config.consume_timeout_minutes * 60_000
        for queue in queues:
            for _ in range(_EXPIRED_AT_ONCE):
                now_ms = monotonic_ms(self._context.member.clock)
                message = queue.first()
                since_ms = message.in_listener_since_ms if message is not None else None
                if message is None or since_ms is None or now_ms - since_ms <= limit_ms:
                    break
                if not await self._context.send_back.back(message, retry_level(0)):
                    break
                log.warning("a listener takes too long: its message will be redelivered", msg_id=message.msg_id)
                if queue.first() is message:
                    self._settle(queue, [message])

    def _submit_popped(self, topic: str, batch: list[ReceivedMessage], settle: SettlePopped) -> None:
        first = batch[0]
        context = ConsumeConcurrentlyContext(MessageQueue(first.topic, first.broker_name, first.queue_id))
        since_s, clock = self._context.member.clock.monotonic_s(), self._context.member.clock
        invisible_s = self._context.config.pop_invisible_time_ms / 1000

        def begin() -> bool:
            if clock.monotonic_s() - since_s >= invisible_s:
                settle(batch, 0, None)
                return False
            self._context.begin(batch)
            return True

        def done(status: ConsumeConcurrentlyStatus | None, error: BaseException | None) -> None:
            succeeded = self._count(topic, batch, context, status, error)
            settle(batch, succeeded, context.delay_level_when_next_consume)

        self._listening.submit([SingleCall(batch, context, begin, done)])

    def _done(self, call: _PulledCall, status: ConsumeConcurrentlyStatus | None, error: BaseException | None) -> None:
        queue, batch, context = call.queue, call.messages, call.context
        succeeded = self._count(queue.queue.topic, batch, context, status, error)
        if queue.dropped:
            log.info("a queue was released while a listener was running", queue=str(queue.queue))
        elif succeeded == len(batch):
            self._consumed[queue] += batch
        elif not self._context.member.is_clustering:
            log.warning("broadcasting: messages that failed are dropped", queue=str(queue.queue))
            self._settle(queue, batch)
        elif not self._ending.is_set():  # while closing, the message is delivered again anyway
            self._tasks.start(self._send_back(queue, batch, succeeded, context.delay_level_when_next_consume))

    def _count(
        self,
        topic: str,
        batch: list[ReceivedMessage],
        context: ConsumeConcurrentlyContext,
        status: ConsumeConcurrentlyStatus | None,
        error: BaseException | None,
    ) -> int:
        """Count the result of a listener call. Returns how many messages of the batch it has consumed."""
        if error is not None:
            log_failure(batch, error)
        if error is not None or status is ConsumeConcurrentlyStatus.RECONSUME_LATER:
            succeeded = 0
        else:
            succeeded = len(batch) if context.ack_index is None else max(0, min(context.ack_index + 1, len(batch)))
        self._context.count(topic, batch, succeeded)
        return succeeded

    async def _send_back(
        self, queue: ProcessQueue, batch: list[ReceivedMessage], succeeded: int, delay_level: int
    ) -> None:
        left = []
        for message in batch[succeeded:]:
            if queue.contains(message) and not await self._context.send_back.back(message, delay_level):
                message.reconsume_times += 1
                left.append(message)
        if not queue.dropped:
            self._settle(queue, [message for message in batch if message not in left])
        if left:
            try:
                async with asyncio.timeout(AGAIN_SECONDS):
                    await self._ending.wait()
            except TimeoutError:
                self.deliver(queue, left)

    def _settle_results(self) -> None:
        """Commit what the listener has consumed: once for all results of a turn, because each commit looks for the
        first message that is left.
        """
        if self._consumed:
            consumed, self._consumed = self._consumed, defaultdict(list)
            for queue, messages in consumed.items():
                self._settle(queue, messages)

    def _settle(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        offset = queue.remove(messages, monotonic_ms(self._context.member.clock))
        if offset >= 0 and not queue.dropped:
            self._context.offsets.update(queue.queue, offset, increase_only=True)
