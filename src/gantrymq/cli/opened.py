"""A store opened for reading, with a progress bar for the recovery that may run over the view of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gantrymq.cli.progress import progress
from gantrymq.config.properties import Reading
from gantrymq.store.consume_queue import ConsumeQueue
from gantrymq.store.reader import StoreReader


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
