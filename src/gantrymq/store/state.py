"""Whether an open store accepts puts, and its failures.

After a failed sync the state of the disk is unknown, so the store accepts no more puts. A later sync may succeed
although the kernel has dropped the pages of the failed one. The checkpoint is therefore frozen too, and the next open
must recover.

Thread rule: any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gantrymq.errors import DiskFullError, StoreClosedError, SyncFailedError
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.flush import (
    CommitRealTimeService,
    FlushConsumeQueueService,
    FlushRealTimeService,
    GroupCommitService,
)
from gantrymq.store.retention import DiskSpace

_FAILURES_KEPT = 63
_SYNCING_SERVICES = (
    FlushRealTimeService.name,
    GroupCommitService.name,
    CommitRealTimeService.name,
    FlushConsumeQueueService.name,
)

# Called with (service name, error, whether the store accepts no more puts).
OnFailure = Callable[[str, Exception, bool], None]


class StoreState:
    """The state of the store at ``root``. ``failures`` are the newest ones: service or method, and error.

    Puts are refused while the disk of ``space`` is too full, after ``has_failed_sync``, after ``is_closed``, and while
    the store ``is_slave``: then only copied bytes are appended.
    """

    def __init__(
        self, root: Path, checkpoint: StoreCheckpoint, space: DiskSpace, on_failure: OnFailure | None = None
    ) -> None:
        self.root, self._checkpoint, self._space, self._on_failure = root, checkpoint, space, on_failure
        self.is_slave = self.is_closed = False
        self.has_failed_sync = False
        self.failures: list[tuple[str, Exception]] = []

    @property
    def is_writable(self) -> bool:
        """Whether puts are accepted: not at a slave, nor while the disk is too full, nor after a sync has failed."""
        return not (self.is_slave or self._space.refuses_puts or self.has_failed_sync)

    def require_open(self) -> None:
        """Raise StoreClosedError after the close."""
        if self.is_closed:
            raise StoreClosedError(self.root, "is closed")

    def note_failure(self, name: str, error: Exception) -> None:
        """Record a failure of a service or a put."""
        is_repeated = any(str(error) == str(other) for _, other in self.failures)
        if not self.failures or self.failures[-1][1] is not error:  # the service's runner reports it again
            self.failures = [*self.failures[-_FAILURES_KEPT:], (name, error)]
        syncing = name in _SYNCING_SERVICES and not isinstance(error, DiskFullError)  # a full disk is retried
        if syncing or isinstance(error, SyncFailedError):
            self.has_failed_sync = True
            self._checkpoint.freeze()
        if self._on_failure is not None and not is_repeated:
            self._on_failure(name, error, self.has_failed_sync)
