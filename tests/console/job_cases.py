"""What the jobs of the tests do. A job runs in a process of its own, which imports this module."""

from __future__ import annotations

import os
import signal
import time

from gantrymq.console.store.jobs import Tell
from gantrymq.errors import StoreError


def count(tell: Tell, most: int) -> int:
    """Report progress, and return the sum."""
    for number in range(most):
        tell.progress("counting", number, most)
    tell.partial(lambda: -1)
    return sum(range(most))


def wait(tell: Tell, seconds: float) -> None:
    """Report once, and wait."""
    tell.progress("waiting", 1, 4)
    tell.partial(lambda: "so far")
    time.sleep(seconds)


def fail(tell: Tell, path: str) -> None:
    """Fail as a store does."""
    raise StoreError(path, "is not there")


def die(tell: Tell) -> None:
    """End as by an unreadable page of a mapped file."""
    os.kill(os.getpid(), signal.SIGBUS)
