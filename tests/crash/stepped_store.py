"""A store without threads of its own: its services step when the test, or a put, makes them.

So an operation of the disk has the same number in every run, and a thousand stores are opened in a minute.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

from gantrymq.clock import Clock
from gantrymq.fs.api import FileSystem
from gantrymq.service.runner import Service
from gantrymq.store import message_store
from gantrymq.store.message_store import MessageStore
from gantrymq.store.timer import timer_service
from store_cases import GEOMETRY_KEYS, ROOT

GROUP_COMMIT = "GroupCommitService"


class SteppedRunner:
    """In place of a ServiceRunner. Woken by a put it steps at once, or not at all, as ``rng`` says.

    A producer that waits for the disk is always served, for it has no other thread to wait for.
    """

    def __init__(
        self,
        rng: random.Random,
        service: Service,
        clock: Clock,
        on_failure: Callable[[str, Exception], None],
        **options: Any,
    ) -> None:
        self._rng = rng
        self._service = service
        self._clock = clock
        self._on_failure = on_failure
        self.failures = 0

    @property
    def name(self) -> str:
        return self._service.name

    def start(self) -> None:
        """Nothing runs by itself."""

    def wake(self) -> None:
        if self.name == GROUP_COMMIT or self._rng.random() < 0.5:
            self.step()

    def step(self) -> None:
        """Step until nothing more waits."""
        try:
            while self._service.step(self._clock.now_ms()):
                pass
        except Exception as error:
            self.failures += 1
            self._on_failure(self._service.name, error)

    def stop(self) -> None:
        self._service.drain()

    def abandon(self) -> None:
        """There is no thread."""


def open_stepped(fs: FileSystem, rng: random.Random, **options: Any) -> MessageStore:
    """Open a store whose services step as ``rng`` says; ``options`` are those of MessageStore.open."""
    options = {"given": GEOMETRY_KEYS, "housekeeping": False, **options}
    few_slots = mock.patch.object(timer_service, "SLOTS", 300)  # a real wheel has 38 MB
    with mock.patch.object(message_store, "ServiceRunner", partial(SteppedRunner, rng)), few_slots:
        return MessageStore.open(ROOT, fs=fs, **options)


def tick(store: MessageStore, rng: random.Random, share: float = 0.5) -> None:
    """Let some of the services step."""
    for runner in store._runners:
        if rng.random() < share:
            runner.step()


def settle(store: MessageStore) -> None:
    """Let every service step, until queues and index have all that is in the log."""
    log = store._log.queue
    for rounds in range(100):
        # A step commits one file of the transient pool, and the files here are short. The last one may deliver a timer.
        is_committed = log.last is None or log.committed_where >= log.last.file_from_offset
        if rounds >= 3 and is_committed and not store.dispatch_behind_bytes:
            return
        tick(store, random.Random(0), share=1.0)
