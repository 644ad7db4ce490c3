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
