"""The arguments and options that all ``store`` commands share, and the settings they add up to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.messages import warn

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


def read_options(config_file: Path | None, assignments: list[str] | None) -> Reading:
    """The settings of ``-c`` and ``--set``, the latter winning; warnings go to stderr. Raises ConfigError, OSError."""
    from gantrymq.config.properties import parse_assignments, parse_properties, read_settings

    entries = parse_properties(_text(config_file)) if config_file else {}
    reading = read_settings(entries | parse_assignments(assignments or ()))
    for warning in reading.warnings:
        warn(warning)
    return reading


def _text(path: Path) -> str:
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")  # what java.util.Properties reads
