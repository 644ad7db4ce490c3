"""The exit codes of the command: one table, from which the entry point and the manual page take them.

docs/cli.md has the same codes with the cases of each command. An error has the code of its nearest class in the table.
"""

from __future__ import annotations

from typing import NamedTuple

from gantrymq.cli.terminal import CANNOT, DONE, FINDINGS, USAGE
from gantrymq.errors import ConfigError, GantrymqError

INTERRUPTED = 130
NO_READER = 141
TERMINATED = 143


class ExitCode(NamedTuple):
    """One exit code: its name and meaning for people, and the classes of the errors that end a command with it."""

    code: int
    name: str
    meaning: str
    errors: tuple[type[BaseException], ...] = ()


EXIT_CODES = (
    ExitCode(DONE, "done", "nothing was found to be wrong"),
    ExitCode(FINDINGS, "findings", "something is unreadable or damaged, or an input line was rejected"),
    ExitCode(USAGE, "usage", "an unknown option, a bad value, a bad setting", (ConfigError,)),
    ExitCode(
        CANNOT,
        "failed",
        "no store, locked, disk full, no permission, ambiguous, or a fault of gantrymq",
        (GantrymqError, OSError, Exception),
    ),
    ExitCode(INTERRUPTED, "interrupted", "SIGINT came before the end", (KeyboardInterrupt,)),
    ExitCode(NO_READER, "no reader", "the reader of stdout is gone", (BrokenPipeError,)),
    ExitCode(TERMINATED, "terminated", "SIGTERM came before the end"),
)
_BY_ERROR = {error: row.code for row in EXIT_CODES for error in row.errors}


def code_of(error: BaseException) -> int:
    """The exit code of a command that ends with this error."""
    return next(_BY_ERROR[kind] for kind in type(error).__mro__ if kind in _BY_ERROR)
