"""The loop of ``consume``: print what arrives, flush it, then tell the source, which may commit it."""

from __future__ import annotations

import select
import sys
import time
from contextlib import suppress

import typer

from gantrymq.cli.stop_signals import Interrupted, StopSignals
from gantrymq.cli.streams.printing import Printer
from gantrymq.cli.streams.sources import Source
from gantrymq.cli.terminal import FINDINGS, print_error
from gantrymq.model.texts import count_text

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5


def consume_all(source: Source, printer: Printer, max_messages: int | None) -> None:
    """Print messages until the source ends, ``max_messages`` are printed, or a signal arrives.

    Raises Exit unless all went well, BrokenPipeError if the reader of stdout is gone, and the source's errors.
    """
    with StopSignals() as signals:
        with suppress(Interrupted):
            _consume(source, printer, signals, max_messages)
        source.finish()
    if signals.number is not None:
        print_error(f"interrupted after {count_text(printer.printed, 'message')}")
        raise typer.Exit(128 + signals.number)
    if source.lost or printer.damaged:
        raise typer.Exit(FINDINGS)


def _consume(source: Source, printer: Printer, signals: StopSignals, max_messages: int | None) -> None:
    batches, pause_s = source.batches(), _SHORTEST_PAUSE_S
    while True:
        signals.waiting(True)
        batch = next(batches, None)
        signals.waiting(False)
        if batch is None:
            return
        if not batch:
            signals.waiting(True)
            pause(0 if source.waits else pause_s)
            signals.waiting(False)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            continue
        pause_s = _SHORTEST_PAUSE_S
        chosen = batch if max_messages is None else batch[: max_messages - printer.printed]
        for arrived in chosen:
            printer.print(arrived)
        printer.flush()
        source.written(chosen, whole=len(chosen) == len(batch))
        if printer.printed == max_messages:
            return


def pause(seconds: float) -> None:
    """Wait. Raises BrokenPipeError as soon as the reader of stdout is gone, although nothing is written to it."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # stdout is not a file
        time.sleep(seconds)
        return
    poller = select.poll()
    poller.register(descriptor, 0)
    for _, event in poller.poll(seconds * 1000):
        if event & (select.POLLERR | select.POLLHUP):
            raise BrokenPipeError
        time.sleep(seconds)
