"""What a starting Spark says, which its launcher prints whatever its own settings are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gantrymq.errors import GantrymqError


@contextmanager
def stderr_into(log: Path) -> Iterator[None]:
    """What is started in the ``with`` block says what it has to say into ``log``."""
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def not_started(reason: str) -> GantrymqError:
    """The error that says so, with what there is to do about it."""
    return GantrymqError(f"Spark does not start: {reason}; it needs Java 17 or newer, see JAVA_HOME")
