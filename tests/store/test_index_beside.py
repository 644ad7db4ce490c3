"""Indexing beside the caller: in order, one batch behind at most, and no error is lost."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from gantrymq.errors import SyncFailedError
from gantrymq.store.index.index_dispatch import IndexWorker


class Dispatcher:
    """Notes what it is given once ``may_go`` lets it; raises ``error`` at the batch ``bad``."""

    def __init__(self, bad: object = None, error: Exception | None = None) -> None:
        self.done: list[object] = []
        self.may_go = threading.Event()
        self._bad = bad
        self._error = error or OSError(f"at {bad}")

    def dispatch(self, batch: object, now_ms: int | None) -> None:
        assert now_ms is None
        self.may_go.wait(30)
        if batch == self._bad:
            raise self._error
        self.done.append(batch)


def beside(dispatcher: Any) -> Any:
    return IndexWorker(dispatcher)


def test_index_worker_runs_beside_caller_until_end() -> None:
    dispatcher = Dispatcher()
    with beside(dispatcher) as index:
        index.dispatch(1)
        assert dispatcher.done == []
        dispatcher.may_go.set()
        for batch in (2, 3, 4):
            index.dispatch(batch)
            assert dispatcher.done[: batch - 1] == list(range(1, batch))  # one behind at most
    assert dispatcher.done == [1, 2, 3, 4]


@pytest.mark.parametrize("bad", [1, 2])
def test_worker_error_is_raised_by_next_call_or_end(bad: int) -> None:
    dispatcher, handed_over = Dispatcher(bad), []

    def index_two() -> None:
        with beside(dispatcher) as index:
            for batch in (1, 2):
                index.dispatch(batch)
                handed_over.append(batch)

    dispatcher.may_go.set()
    with pytest.raises(OSError, match=f"at {bad}"):
        index_two()
    assert handed_over == list(range(1, bad + 1))


def test_exception_of_caller_precedes_that_of_index_worker() -> None:
    dispatcher = Dispatcher(bad=1)

    def give_up() -> None:
        with beside(dispatcher) as index:
            index.dispatch(1)
            raise KeyError

    dispatcher.may_go.set()
    with pytest.raises(KeyError):
        give_up()


def test_failed_sync_of_worker_precedes_exception_of_caller() -> None:
    """A recovery that goes on behind a gap would sync again, which may succeed without what the first one gave up."""
    failed = SyncFailedError(Path("index"), "broken")
    dispatcher = Dispatcher(1, failed)

    def give_up() -> None:
        with beside(dispatcher) as index:
            index.dispatch(1)
            raise KeyError

    dispatcher.may_go.set()
    with pytest.raises(SyncFailedError) as raised:
        give_up()
    assert raised.value is failed


def test_index_worker_without_dispatcher_indexes_nothing() -> None:
    with beside(None) as index:
        index.dispatch(1)
