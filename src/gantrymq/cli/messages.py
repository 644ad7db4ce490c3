"""What the command says beside its output: one line each, on stderr."""

from __future__ import annotations

import sys

from gantrymq.cli.lines import harmless

DONE = 0
FINDINGS = 1
USAGE = 2
CANNOT = 3
UNREADABLE_HELP = (
    "`gantrymq store verify` lists what cannot be read, `gantrymq store salvage` makes a new store of the rest"
)


def say(text: str) -> None:
    """One line on stderr, whatever ``text`` holds."""
    line = harmless(" ".join(text.split()))
    print(f"gantrymq: {line}", file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """A warning on stderr; the work goes on."""
    say(f"warning: {text}")


def is_unreadable(error: Exception) -> bool:
    """Whether the disk does not give back bytes of a file, or which files are in a directory."""
    from gantrymq.errors import DiskError, SyncFailedError

    if not isinstance(error, DiskError) or isinstance(error, SyncFailedError):
        return False
    try:
        return error.position is not None or error.path.is_dir()
    except OSError:  # nor what the path leads to
        return True
