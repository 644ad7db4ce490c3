"""Indexing beside the caller: in a thread of its own, one batch behind at most.

Where the caller waited for the index at the end of each batch, the slower of the two would idle in turn; so each has a
batch's time to make up for what the other one needed longer.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from gantrymq.errors import SyncFailedError
from gantrymq.store.index_dispatch import IndexDispatcher
from gantrymq.store.record_batch import RecordBatch


class IndexBeside:
    """Hands batches to ``dispatcher`` (None: nothing is indexed). Use it as a context manager: its end waits for all.

    A batch that was handed over must live until the next one but one is asked for, which a scanner's does. What the
    dispatcher raises comes out of the next call, or of the end. Thread rule: used by one thread.
    """

    def __init__(self, dispatcher: IndexDispatcher | None) -> None:
        self._dispatcher = dispatcher
        self._pool = ThreadPoolExecutor(1, "IndexDispatcher")
        self._pending: Future[None] | None = None

    def dispatch(self, batch: RecordBatch) -> None:
        """Index ``batch``, after the one before it."""
        self._wait()
        if self._dispatcher is not None:
            self._pending = self._pool.submit(self._dispatcher.dispatch, batch, None)

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def __enter__(self) -> IndexBeside:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the last batch; what it raises counts where nothing else was raised, and a failed sync always.

        Whoever was raised for a gap in a queue goes on, and must not sync again what a sync has given up.
        """
        try:
            if kind is None:
                self._wait()
            elif self._pending is not None and isinstance(failed := self._pending.exception(), SyncFailedError):
                raise failed
        finally:
            self._pool.shutdown()
