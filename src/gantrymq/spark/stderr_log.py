"""Redirects the output of a starting Spark, which its launcher prints regardless of its log settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gantrymq.errors import GantrymqError


@contextmanager
def stderr_into(log: Path) -> Iterator[None]:
    """Write the standard error of processes that the ``with`` block starts to ``log``."""
    saved_stderr = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved_stderr, 2)
        os.close(saved_stderr)


def not_started(reason: str) -> GantrymqError:
    """The error for a Spark that does not start, with advice."""
    return GantrymqError(f"Spark does not start: {reason}; it needs Java 17 or newer, see JAVA_HOME")
