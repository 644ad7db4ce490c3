"""What is missing of a store that is read all the same: told in a warning, and by the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gantrymq.cli.messages import FINDINGS, UNREADABLE_HELP, is_unreadable, warn

if TYPE_CHECKING:
    from gantrymq.errors import StoreError


def end_reading(problems: Sequence[StoreError], code: int = 0, notes: Sequence[StoreError] = ()) -> None:
    """End the command with ``code``, or with that of findings where something of the store is missing.

    One line names the first file that is missing or of a wrong length, or the first byte that cannot be read.
    ``notes`` are told, and change no exit code.
    """
    for note in notes:
        warn(str(note))
    if problems:
        more = f" ({len(problems) - 1} more: `gantrymq store verify` names all)" if len(problems) > 1 else ""
        warn(f"{problems[0]}{more}{f'; {UNREADABLE_HELP}' if is_unreadable(problems[0]) else ''}")
    if code or problems:
        raise SystemExit(code or FINDINGS)
