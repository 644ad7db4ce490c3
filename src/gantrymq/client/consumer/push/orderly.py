"""Orderly consumption: one batch of a queue at a time, and no later message until it is consumed.

Source: ConsumeMessageOrderlyService.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from gantrymq.client.consumer.fetch.assigned import QueueLocks
from gantrymq.client.consumer.fetch.process_queue import ProcessQueue
from gantrymq.client.consumer.listeners import ConsumeOrderlyContext, ConsumeOrderlyStatus, OrderlyListener
from gantrymq.client.consumer.push.consumption import (
    ConsumeContext,
    ConsumptionByListener,
    SingleCall,
    consume_directly,
    log_failure,
)
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.clock import monotonic_ms
from gantrymq.logs import get_logger
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import ConsumeMessageDirectlyResult

WITHOUT_END = 0x7FFFFFFF  # maxReconsumeTimes -1
_LOCK_AGAIN_SECONDS = 3.0
_SETTLE_SECONDS, _LOOK_SECONDS = 1.0, 0.01
_PAUSE_MS = (10, 30_000)

# What a listener returned, and the exception it raised.
_Answer = tuple[ConsumeOrderlyStatus | None, BaseException | None]

_SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT

log = get_logger("gantrymq.client.consumer")


class OrderlyConsumption(ConsumptionByListener[ConsumeOrderlyContext, ConsumeOrderlyStatus]):
    """Runs one task for each queue that has messages. ``locks`` is None for broadcasting, where brokers lock no queues.

    Thread rule: the event loop's thread.
    """

    is_orderly = True

    def __init__(self, consume_context: ConsumeContext, locks: QueueLocks | None, listener: OrderlyListener) -> None:
        super().__init__(consume_context, listener, ConsumeOrderlyStatus)
        self._locks = locks
        self._answers: set[asyncio.Future[_Answer | None]] = set()

    def deliver(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Start the task of a queue that has messages, unless it runs."""
        if not queue.consuming:
            queue.consuming = True
            self._tasks.start(self._consume(queue))

    async def directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        """Pass one message to the listener on behalf of an administrator."""
        context = ConsumeOrderlyContext(MessageQueue(message.topic, message.broker_name, message.queue_id))
        result = await consume_directly(self._listening, message, context, self._context)
        result.order, result.auto_commit = True, context.auto_commit
        return result

    async def close(self) -> None:
        """Begin no calls, and settle the results of those under way, except the exempt ones."""
        self._ending.set()
        await self._close_listening()
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                while self._is_settling:
                    await asyncio.sleep(_LOOK_SECONDS)

    async def wait_for_exempt(self) -> None:
        """Settle the results of the exempt calls."""
        await self._wait_for_exempt()
        for answer in list(self._answers):
            if not answer.done():  # its call never began, or takes too long
                answer.set_result(None)
        await self._tasks.drain(_SETTLE_SECONDS)
        await self._tasks.close()

    async def _consume(self, queue: ProcessQueue) -> None:
        try:
            while not self._is_over(queue):
                if not await self._is_locked(queue):
                    await self._pause(_LOCK_AGAIN_SECONDS)
                    continue
                if self._is_over(queue):  # dropped while the broker was asked; the release unlocks it
                    return
                now_ms = monotonic_ms(self._context.member.clock)
                batch = queue.take(self._context.config.consume_message_batch_max_size, now_ms)
                if not batch:
                    return
                pause_ms = await self._consume_batch(queue, batch)
                if pause_ms:
                    await self._pause(pause_ms / 1000)
        finally:
            queue.consuming = False

    @property
    def _is_settling(self) -> bool:
        """Whether a queue's task does something other than wait for its listener."""
        return len(self._tasks) > sum(not answer.done() for answer in self._answers)

    def _is_over(self, queue: ProcessQueue) -> bool:
        return queue.dropped or self._ending.is_set()

    async def _consume_batch(self, queue: ProcessQueue, batch: list[ReceivedMessage]) -> int:
        """Pass a batch to the listener. Returns how long to wait before the next one, in milliseconds."""
        context = ConsumeOrderlyContext(self._context.member.shown(queue.queue))
        queue.in_listener = True
        try:
            answer = await self._listen(queue, batch, context)
            if answer is None:
                return 0
            status, error = answer
            if error is not None:
                log_failure(batch, error)
                status = _SUSPEND
            return await self._settle(queue, batch, status or ConsumeOrderlyStatus.SUCCESS, context)
        finally:
            queue.in_listener = False

    async def _listen(
        self, queue: ProcessQueue, batch: list[ReceivedMessage], context: ConsumeOrderlyContext
    ) -> _Answer | None:
        """The listener's result; None if the queue was dropped before the call began."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[_Answer | None] = loop.create_future()

        def answer(result: _Answer | None) -> None:
            if not answered.done():
                answered.set_result(result)

        def begin() -> bool:
            if queue.dropped:
                loop.call_soon_threadsafe(answer, None)
                return False
            self._context.begin(batch)
            return True

        self._answers.add(answered)
        answered.add_done_callback(self._answers.discard)
        self._listening.submit([SingleCall(batch, context, begin, lambda status, error: answer((status, error)))])
        return await answered

    async def _settle(
        self,
        queue: ProcessQueue,
        batch: list[ReceivedMessage],
        status: ConsumeOrderlyStatus,
        context: ConsumeOrderlyContext,
    ) -> int:
        pause_ms, offset = 0, -1
        failed = status is _SUSPEND or (status is ConsumeOrderlyStatus.ROLLBACK and not context.auto_commit)
        self._context.count(queue.queue.topic, batch, 0 if failed else len(batch))
        if status is _SUSPEND:
            if await self._comes_again(batch):
                queue.give_back(batch)
                pause_ms = self._pause_ms(context)
            elif context.auto_commit:
                offset = queue.commit()
        elif context.auto_commit or status is ConsumeOrderlyStatus.COMMIT:
            offset = queue.commit()
        elif status is ConsumeOrderlyStatus.ROLLBACK:
            queue.give_back()
            pause_ms = self._pause_ms(context)
        if offset >= 0 and not queue.released:  # else the queue has another owner, or another offset
            self._context.offsets.update(queue.queue, offset)
        return pause_ms

    async def _comes_again(self, batch: list[ReceivedMessage]) -> bool:
        """Whether the queue must retry the batch. False if all its messages failed too often and are dead letters."""
        max_reconsume_times = self._context.config.max_reconsume_times
        max_reconsume_times = WITHOUT_END if max_reconsume_times < 0 else max_reconsume_times
        again = False
        for message in batch:
            if message.reconsume_times < max_reconsume_times or not await self._context.send_back.as_message(message):
                message.reconsume_times += 1
                again = True
        return again

    def _pause_ms(self, context: ConsumeOrderlyContext) -> int:
        wanted_ms = context.suspend_current_queue_time_ms
        if wanted_ms == -1:
            wanted_ms = self._context.config.suspend_current_queue_time_ms
        return max(_PAUSE_MS[0], min(wanted_ms, _PAUSE_MS[1]))

    async def _is_locked(self, queue: ProcessQueue) -> bool:
        if self._locks is None:
            return True
        if queue.locked and not queue.is_lock_expired(monotonic_ms(self._context.member.clock)):
            return True
        return await self._locks.lock([queue])

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()
