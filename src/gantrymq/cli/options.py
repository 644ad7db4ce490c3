"""The arguments and options that all ``store`` commands share, and the settings they add up to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.messages import warn
from gantrymq.model.java import INT_MAX, LONG_MAX

if TYPE_CHECKING:
    from gantrymq.config.properties import Reading

Store = Annotated[Path, typer.Argument(metavar="STORE", help="Directory of the store.", show_default=False)]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "-c", "--config", metavar="FILE", exists=True, dir_okay=False, help="A broker.conf to take settings from."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A RocketMQ key; wins over broker.conf. May be given more than once."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


def whole_number(least: int, most: int = LONG_MAX) -> Callable[[str], int]:
    """A parser of numbers that are an int or a long in RocketMQ; typer's bounds would fill the help with digits."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = most + 1
        if not least <= value <= most:
            raise typer.BadParameter(f"{text!r} is no whole number from {least} to {most}")
        return value

    return number


queue_number = whole_number(0, INT_MAX)
count = whole_number(0)
time_ms = whole_number(-LONG_MAX)


def read_options(config_file: Path | None, assignments: list[str] | None) -> Reading:
    """The settings of ``-c`` and ``--set``, the latter winning; warnings go to stderr. Raises ConfigError, OSError."""
    from gantrymq.config.properties import read_settings

    reading = read_settings(read_entries(config_file, assignments))
    for warning in reading.warnings:
        warn(warning)
    return reading


def read_entries(
    config_file: Path | None, assignments: list[str] | None, also: Callable[[str], bool] = lambda key: False
) -> dict[str, str]:
    """What ``-c`` and ``--set`` say, the latter winning; ``also`` are keys that may be set beside those of a broker.

    Raises ConfigError where ``--set`` names a key that nobody knows, and OSError.
    """
    from gantrymq.config.properties import parse_assignments, parse_properties

    entries = parse_properties(_text(config_file)) if config_file else {}
    return entries | parse_assignments(assignments or (), also)


def _text(path: Path) -> str:
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")  # what java.util.Properties reads
