"""What the jobs of the tests do. A job runs in a process of its own, which imports this module."""

from __future__ import annotations

import os
import signal
import time

from gantrymq.console.store.jobs import JobReporter
from gantrymq.errors import StoreError


def count(reporter: JobReporter, most: int) -> int:
    """Report progress, and return the sum."""
    for number in range(most):
        reporter.progress("counting", number, most)
    reporter.partial(lambda: -1)
    return sum(range(most))


def wait(reporter: JobReporter, seconds: float) -> None:
    """Report once, and wait."""
    reporter.progress("waiting", 1, 4)
    reporter.partial(lambda: "so far")
    time.sleep(seconds)


def fail(reporter: JobReporter, path: str) -> None:
    """Fail as a store does."""
    raise StoreError(path, "is not there")


def die(reporter: JobReporter) -> None:
    """End as by an unreadable page of a mapped file."""
    os.kill(os.getpid(), signal.SIGBUS)
