"""A store with timer messages whose service is stepped by the test, and what is delivered, for tests of timers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from gantrymq.clock import ManualClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.timer import MIN_TIMER_FILE_BYTES
from gantrymq.fs.api import FileSystem
from gantrymq.model.message import Message, StoredMessage
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.delivery import Delivery
from gantrymq.store.message_store import MessageStore
from gantrymq.store.timer import timer_service
from gantrymq.store.timer.timed_message import set_timer
from gantrymq.store.timer.timer_service import TimerMessageService
from memory_file_system import MemoryFileSystem
from store_cases import NOON_MS, ROOT, SMALL, await_dispatch, open_store, queue_messages

TIMED = replace(SMALL, mapped_file_size_commit_log=1 << 20, mapped_file_size_timer_log=MIN_TIMER_FILE_BYTES + 5 * 52)
FEW_SLOTS = 7_200  # a real wheel has 38 MB, which a file system in memory copies at each sync
SECOND_MS, HOUR_MS, DAY_MS = 1_000, 3_600_000, 86_400_000


class TimerCase:
    """A store on ``fs`` whose clock is moved by the test, and a wheel with rounds of ``slots``."""

    def __init__(
        self,
        fs: FileSystem | None = None,
        path: Path = ROOT,
        *,
        clock: Any = None,
        config: MessageStoreConfig = TIMED,
        slots: int = FEW_SLOTS,
    ) -> None:
        self.slots = slots
        self.fs: FileSystem = fs or MemoryFileSystem()
        self.path = path
        self.clock = clock or ManualClock(NOON_MS)
        self.config = config
        self.is_durable: Callable[[int], bool] = lambda end: True
        self.open()

    def open(self) -> None:
        self.store: MessageStore = open_store(self.fs, self.path, config=self.config, clock=self.clock)
        store = self.store
        with mock.patch.object(timer_service, "SLOTS", self.slots):
            delivery = Delivery(put=store._deliver, append=store.append, is_durable=self._is_durable)
            self.timers = TimerMessageService(store._parts, self.config, delivery)

    def _is_durable(self, end: int) -> bool:
        return self.is_durable(end)

    def close(self) -> None:
        self.timers.drain()
        self.store.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    def kill(self) -> None:
        """Go on with the disk as a kill leaves it."""
        assert isinstance(self.fs, MemoryFileSystem)
        self.fs = self.fs.crash_clone(1.0, 0)
        self.open()

    def send(
        self,
        body: bytes = b"body",
        *,
        topic: str = "orders",
        deliver_ms: int,
        status: str = "PUT_OK",
        **properties: str,
    ) -> Message:
        """Put a message as the broker does."""
        message = Message(topic, body, properties={"TIMER_DELIVER_MS": str(deliver_ms), **properties})
        found = set_timer(message, self.config, self.clock.now_ms(), self.timers.is_rejected)
        assert found.value == status
        if found is PutMessageStatus.PUT_OK:
            assert self.store.put(message).status is PutMessageStatus.PUT_OK
        return message

    def step(self) -> None:
        """Step until nothing is left to do, a message that rolled and is put again included."""
        await_dispatch(self.store)
        while self.timers.step(self.clock.now_ms()) or self._is_behind():
            await_dispatch(self.store)

    def _is_behind(self) -> bool:
        await_dispatch(self.store)
        progress = self.timers.progress
        return progress is not None and progress.behind_messages > 0

    def wait(self, ms: int, step_ms: int = SECOND_MS) -> None:
        """Let time pass, with a step of the service each ``step_ms``."""
        for _ in range(ms // step_ms):
            self.clock.advance(step_ms)
            self.step()

    def delivered(self, topic: str = "orders", queue_id: int = 0) -> list[StoredMessage]:
        await_dispatch(self.store)
        return list(queue_messages(self.store, topic, queue_id))

    def bodies(self, topic: str = "orders") -> list[bytes]:
        return [message.body for message in self.delivered(topic)]
