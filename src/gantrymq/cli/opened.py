"""Reads the settings of a command line, opens a store with them for reading, and ends the command.

The settings are a broker.conf (``-c``) and single keys (``--set``). A progress bar shows a recovery of the view. If a
part of the store is missing, the command ends with a warning and exit code 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gantrymq.cli.terminal import FINDINGS, UNREADABLE_HELP, is_unreadable, progress, warn

if TYPE_CHECKING:
    from gantrymq.config.reading import Reading
    from gantrymq.errors import StoreError
    from gantrymq.store.queue.consume_queue import ConsumeQueue
    from gantrymq.store.reader import StoreReader


def read_options(config_file: Path | None, assignments: list[str] | None) -> Reading:
    """The settings of ``-c`` and ``--set``; ``--set`` has precedence. Warns on stderr. Raises ConfigError, OSError."""
    return _warned(_read(config_file, assignments))


def read_writing_options(config_file: Path | None, assignments: list[str] | None, *, appends: bool = False) -> Reading:
    """As :func:`read_options`, for a command that changes a store, or adds messages to it (``appends``).

    Raises NotHonouredError for a key that says that the store has another form, unless acceptWithoutEffect names it.
    """
    reading = _read(config_file, assignments)
    if reading.entries:
        from gantrymq.config.refused_keys import Work

        reading.require_honoured(Work.APPEND if appends else Work.WRITE)
    return _warned(reading)


def _read(config_file: Path | None, assignments: list[str] | None) -> Reading:
    if config_file is None and not assignments:
        from gantrymq.config.reading import Reading

        return Reading()
    from gantrymq.config.properties import read_settings

    return read_settings(read_entries(config_file, assignments))


def _warned(reading: Reading) -> Reading:
    for warning in reading.warnings:
        warn(warning)
    return reading


def read_entries(
    config_file: Path | None, assignments: list[str] | None, also: Callable[[str], bool] = lambda key: False
) -> dict[str, str]:
    """The entries of ``-c``, properties or JSON, and ``--set``; ``--set`` has precedence.

    ``also`` accepts further keys beside those of a broker. Raises ConfigError if ``--set`` names an unknown key,
    OSError.
    """
    from gantrymq.config.properties import parse_assignments, parse_json, parse_properties

    text = _text(config_file) if config_file else ""
    entries = parse_json(text) if text.lstrip().startswith("{") else parse_properties(text)
    return entries | parse_assignments(assignments or (), also)


def _text(path: Path) -> str:
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")  # as java.util.Properties


def end_reading(problems: Sequence[StoreError], code: int = 0, notes: Sequence[StoreError] = ()) -> None:
    """End the command with ``code``, or with FINDINGS if a part of the store is missing.

    Prints one line about the first file that is missing or has a wrong length, or about the first unreadable byte.
    ``notes`` are printed and change no exit code. Raises SystemExit.
    """
    for note in notes:
        warn(str(note))
    if problems:
        more = f" ({len(problems) - 1} more: `gantrymq store verify` names all)" if len(problems) > 1 else ""
        warn(f"{problems[0]}{more}{f'; {UNREADABLE_HELP}' if is_unreadable(problems[0]) else ''}")
    if code or problems:
        raise SystemExit(code or FINDINGS)


def warn_of_contents(path: Path, reading: Reading) -> None:
    """Print one line if the store has contents that are not honoured here, for a command without a StoreReader."""
    from gantrymq.fs.real import RealFileSystem
    from gantrymq.store.contents import contents_note
    from gantrymq.store.paths import StorePaths

    note = contents_note(RealFileSystem(), StorePaths.of(path, reading.config))
    if note is not None:
        warn(str(note))


def open_reader(
    path: Path,
    reading: Reading,
    *,
    trusts_writer: bool = False,
    skips_lost: bool = True,
    reads_queue: Callable[[ConsumeQueue], bool] | None = None,
) -> StoreReader:
    """Open the store at ``path`` for reading. Takes and raises what ``StoreReader.open`` does.

    Pass ``reader.problems`` to :func:`end_reading` to report missing parts at the end of the command.
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
