"""Auto-renew: messages that a push consumer is working on stay invisible, however long that takes.

Such a message is received with an invisible time of 60 s. Every 5 s those that become visible within 10 s are hidden
again, for longer and longer, at most for three hours altogether. When the client goes away its messages become visible
one second later. That delivery counts as another attempt, as the client may have begun to work on them.

Thread rule: the event loop's thread.

Source: DefaultReceiptHandleManager, ReceiptHandleGroup, RenewStrategyPolicy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from gantrymq.clock import Clock
from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.errors import GantrymqError
from gantrymq.grpc import limits
from gantrymq.grpc.brokers.interface import Brokers
from gantrymq.grpc.brokers.popped import PoppedMessages
from gantrymq.grpc.clients.registry import Client
from gantrymq.grpc.clients.settings import retry_delay_ms
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.handles import Handle
from gantrymq.grpc.protocol.status import CallError
from gantrymq.logs import get_logger

_MINUTE_MS = 60_000
_STEPS_MS = tuple(minutes * _MINUTE_MS for minutes in (1, 3, 5, 10, 30, 60))

log = get_logger("gantrymq.grpc")


class RenewedKey(NamedTuple):
    """A message of a client: its group, its id, and its key (Handle.message_key)."""

    group: str
    message_id: str
    message_key: tuple[str, int, int]


@dataclass(slots=True)
class _Renewed:
    """A message that is hidden again and again."""

    handle: Handle
    topic: str
    began_ms: int
    reconsume_times: int
    renewals: int = 0
    failures: int = 0
    is_busy: bool = False


class Renewals:
    """The messages of all clients that are renewed."""

    def __init__(self, config: GrpcConfig, brokers: Brokers, popped: PoppedMessages, clock: Clock) -> None:
        self._config = config
        self._brokers, self._popped, self._clock = brokers, popped, clock
        self._messages: dict[Client, dict[RenewedKey, _Renewed]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(
        self, client: Client, group: str, message_id: str, topic: str, handle: Handle, reconsume_times: int
    ) -> None:
        """Renew a message from now on. Above the limit for a client it is not renewed."""
        messages = self._messages.setdefault(client, {})
        if len(messages) < limits.MAX_RENEWED_MESSAGES:
            key = RenewedKey(group, message_id, handle.message_key)
            messages[key] = _Renewed(handle, topic, self._clock.now_ms(), reconsume_times)

    def take(self, client: Client | None, group: str, message_id: str, handle: Handle) -> Handle:
        """End the renewal of a message. Returns the newest handle of it, ``handle`` if it is not renewed."""
        if client is None:
            return handle
        renewed = self._messages.get(client, {}).pop(RenewedKey(group, message_id, handle.message_key), None)
        return handle if renewed is None else renewed.handle

    def left(self, client: Client) -> None:
        """Let the messages of a client that has gone become visible."""
        for key, renewed in self._messages.pop(client, {}).items():
            self._start(self._release(client.caller, key, renewed))

    def renew(self) -> None:
        """Hide the messages again that become visible soon."""
        until_ms = self._clock.now_ms() + self._config.renew_ahead_ms
        for client, messages in self._messages.items():
            for key, renewed in messages.items():
                if not renewed.is_busy and renewed.handle.receipt.visible_time_ms <= until_ms:
                    renewed.is_busy = True
                    self._start(self._renew(client, key, renewed))

    def next_ms(self) -> int | None:
        """The time until a message has to be hidden again, in ms of the clock; None if none is renewed.

        It is at least the period of :meth:`renew`, even if a message is due because its renewal has failed.
        """
        visible_ms = [
            renewed.handle.receipt.visible_time_ms
            for renewed_by_key in self._messages.values()
            for renewed in renewed_by_key.values()
        ]
        if not visible_ms:
            return None
        due_ms = min(visible_ms) - self._config.renew_ahead_ms
        return max(due_ms - self._clock.now_ms(), self._config.renew_period_ms)

    async def drain(self) -> None:
        """Wait for what is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _renew(self, client: Client, key: RenewedKey, renewed: _Renewed) -> None:
        try:
            keep = await self._hide(client.caller, key, renewed)
        except CallError as error:
            keep = error.code not in (Code.INVALID_RECEIPT_HANDLE, Code.BAD_REQUEST)
            keep = keep and self._has_failed(renewed, key, error)
        except GantrymqError as error:
            keep = self._has_failed(renewed, key, error)
        renewed.is_busy = False
        if not keep:
            self._messages.get(client, {}).pop(key, None)

    async def _hide(self, caller: Caller, key: RenewedKey, renewed: _Renewed) -> bool:
        """Hide a message again. Returns whether to continue."""
        is_last = self._clock.now_ms() - renewed.began_ms >= self._config.renew_max_ms
        invisible_ms = _STEPS_MS[min(renewed.renewals, len(_STEPS_MS) - 1)]
        if is_last:
            group = await self._brokers.group(caller, key.group)
            if group is None:
                return False
            invisible_ms = retry_delay_ms(group.group_retry_policy, renewed.reconsume_times)
        handle = await self._popped.hide(caller, renewed.handle, key.group, renewed.topic, invisible_ms)
        if handle is None or is_last:
            return False
        renewed.handle, renewed.failures = handle, 0
        renewed.renewals += 1
        return True

    def _has_failed(self, renewed: _Renewed, key: RenewedKey, error: GantrymqError) -> bool:
        """Count a failure. Returns whether to try again."""
        renewed.failures += 1
        log.warning("a message was not renewed", message_id=key.message_id, group=key.group, reason=str(error))
        return renewed.failures < self._config.max_renew_retries

    async def _release(self, caller: Caller, key: RenewedKey, renewed: _Renewed) -> None:
        try:
            await self._popped.hide(caller, renewed.handle, key.group, renewed.topic, self._config.nack_invisible_ms)
        except GantrymqError as error:
            log.info("a message of a client that left stays invisible", group=key.group, reason=str(error))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
