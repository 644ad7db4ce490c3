"""The settings on a command line: a broker.conf and single keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gantrymq.cli.terminal import warn

if TYPE_CHECKING:
    from gantrymq.config.properties import Reading


def read_options(config_file: Path | None, assignments: list[str] | None) -> Reading:
    """The settings of ``-c`` and ``--set``; ``--set`` has precedence. Warns on stderr. Raises ConfigError, OSError."""
    from gantrymq.config.properties import read_settings

    reading = read_settings(read_entries(config_file, assignments))
    for warning in reading.warnings:
        warn(warning)
    return reading


def read_entries(
    config_file: Path | None, assignments: list[str] | None, also: Callable[[str], bool] = lambda key: False
) -> dict[str, str]:
    """The entries of ``-c`` and ``--set``; ``--set`` has precedence.

    ``also`` accepts further keys beside those of a broker. Raises ConfigError if ``--set`` names an unknown key,
    OSError.
    """
    from gantrymq.config.properties import parse_assignments, parse_properties

    entries = parse_properties(_text(config_file)) if config_file else {}
    return entries | parse_assignments(assignments or (), also)


def _text(path: Path) -> str:
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")  # as java.util.Properties
