"""A store opened for reading, and the end of a command that read it.

A progress bar shows a recovery that runs over the view. When something of the store is missing, the command ends with a
warning and exit code 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gantrymq.cli.terminal import FINDINGS, UNREADABLE_HELP, is_unreadable, progress, warn

if TYPE_CHECKING:
    from gantrymq.config.properties import Reading
    from gantrymq.errors import StoreError
    from gantrymq.store.queue.consume_queue import ConsumeQueue
    from gantrymq.store.reader import StoreReader


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


def open_reader(
    path: Path,
    reading: Reading,
    *,
    trusts_writer: bool = False,
    skips_lost: bool = True,
    reads_queue: Callable[[ConsumeQueue], bool] | None = None,
) -> StoreReader:
    """The reader of the store at ``path``; takes and raises what ``StoreReader.open`` does.

    What is missing of the store is told at the end of the command, by ``missing.end_reading(reader.problems)``.
    """
    from gantrymq.store.reader import StoreReader

    with progress() as report:
        given, config = reading.given, reading.config
        return StoreReader.open(
            path,
            config,
            given=given,
            progress=report,
            trusts_writer=trusts_writer,
            skips_lost=skips_lost,
            reads_queue=reads_queue,
        )
