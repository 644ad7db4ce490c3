"""``gantrymq store ingest``."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.opened import read_writing_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store
from gantrymq.cli.terminal import FINDINGS, print_error, warn

if TYPE_CHECKING:
    from gantrymq.cli.put_lines import LinePutter, Result
    from gantrymq.cli.stop_signals import StopSignals
    from gantrymq.config.reading import Reading
    from gantrymq.store.message_store import MessageStore

_STDIN = Path("-")
_STDIN_DESCRIPTOR = 0
_MAX_REJECTED_LINES = 10
_STORED = "stored, and perhaps not on the disk yet"


def ingest(
    store: Store,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON lines; - is stdin.", show_default="stdin")
    ] = _STDIN,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Put messages from JSON lines into a store, which is created if missing.

    A line is an object: topic, body (text) or bodyBase64, and optionally
    queueId, tags, keys (a list), properties and delayLevel. With --json a
    result is printed for each line as soon as its message is acknowledged. A
    rejected line is reported, the other lines are stored, and the exit code
    is 1.

    Examples of use:

        gantrymq store ingest /data/store messages.jsonl
        echo '{"topic":"t","body":"hi"}' | gantrymq store ingest /data/store
        tail -F app.jsonl | gantrymq store ingest /data/store --json
        gantrymq store ingest /data/store x.jsonl --set flushDiskType=SYNC_FLUSH
    """
    from gantrymq.cli.put_lines import LinePutter
    from gantrymq.cli.stop_signals import StopSignals
    from gantrymq.clock import SystemClock

    clock, reading = SystemClock(), read_writing_options(config, set_, appends=True)
    with ExitStack() as stack:
        stream = stack.enter_context(_open_input(file))
        opened = _open(store, reading)
        _print_recovery(opened)
        signals = stack.enter_context(StopSignals())
        stack.enter_context(opened)
        putter, began_s = LinePutter(opened), clock.monotonic_s()
        if json:
            _ingest_json(stream, putter, signals)
        else:
            _ingest_text(stream, putter, signals)
    for name, error in opened.failures:
        warn(f"{name}: {error}")
    if not json:
        _print_summary(store, putter, clock.monotonic_s() - began_s)
    if signals.number is not None:
        print_error(f"interrupted after line {putter.lines}; the store is closed")
        raise typer.Exit(128 + signals.number)
    if putter.rejected:
        raise typer.Exit(FINDINGS)


def _open_input(file: Path) -> BufferedReader:
    try:
        return open(_STDIN_DESCRIPTOR if file == _STDIN else file, "rb", closefd=file != _STDIN)
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="FILE") from None


def _open(path: Path, reading: Reading) -> MessageStore:
    from gantrymq.cli.terminal import progress
    from gantrymq.store.message_store import MessageStore

    with progress() as report:
        return MessageStore.open(path, reading.config, given=reading.given, progress=report, housekeeping=False)


def _print_recovery(opened: MessageStore) -> None:
    """Warn about queue entries that the recovery cut: they were messages, and their offsets are given out again."""
    from gantrymq.store.contents import accepted_notes

    for note in [*opened.notes, *accepted_notes(opened.path, opened.accepted_contents)]:
        warn(str(note))
    report = opened.recovery
    if report.queue_units_cut:
        ended = f"{report.max_phy_offset} ({report.stop_reason})" if report.stop_reason else str(report.max_phy_offset)
        queues = "one queue" if len(report.cut_queues) == 1 else f"{len(report.cut_queues)} queues"
        warn(f"recovery ended the log at {ended} and cut {report.queue_units_cut} entries of {queues} after that")


def _ingest_json(stream: BufferedReader, putter: LinePutter, signals: StopSignals) -> None:
    from gantrymq.cli.json_lines import JsonLines

    with JsonLines() as out:
        for results in _results(stream, putter, signals, shown=not sys.stdout.isatty()):
            for result in results:
                out.write(result)
            out.flush()


def _ingest_text(stream: BufferedReader, putter: LinePutter, signals: StopSignals) -> None:
    shown = 0
    for results in _results(stream, putter, signals, shown=True):
        for result in results:
            if result["status"] != "PUT_OK" and shown < _MAX_REJECTED_LINES:
                shown += 1
                print_error(f"line {result['line']}: {result['status']}: {result.get('error', _STORED)}".rstrip(": "))


def _results(
    stream: BufferedReader, putter: LinePutter, signals: StopSignals, *, shown: bool
) -> Iterator[list[Result]]:
    """Yield the results of all lines in lists, as they are acknowledged. Ends early after a signal."""
    from gantrymq.cli.input_lines import read_lines
    from gantrymq.cli.stop_signals import Interrupted
    from gantrymq.cli.terminal import progress

    total = _size(stream)
    with progress(shown=shown) as report:
        try:
            for lines in read_lines(stream, putter.longest_line, signals.waiting):
                yield putter.put(lines)
                if report is not None:
                    report("Storing", putter.bytes_read, total)
        except Interrupted:
            return


def _size(stream: BufferedReader) -> int:
    """The size of the input in bytes; 0 if unknown."""
    try:
        status = os.fstat(stream.fileno())
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _print_summary(path: Path, putter: LinePutter, took_s: float) -> None:
    from gantrymq.cli.terminal import print_line
    from gantrymq.model.size import size_text
    from gantrymq.model.texts import count_text, span_text

    stored = putter.lines - putter.rejected
    rate = f", {stored / took_s:,.0f} a second" if took_s > 0 and stored else ""
    rejected = f", {count_text(putter.rejected, 'line')} rejected" if putter.rejected else ""
    read = size_text(putter.bytes_read)
    took = span_text(took_s * 1000)
    print_line(f"{path}: {count_text(stored, 'message')} stored from {read} in {took}{rate}{rejected}")
