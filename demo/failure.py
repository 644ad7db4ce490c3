"""The errors that end the demo before its report, each with its exit code."""

from __future__ import annotations

from collections.abc import Sequence

from gantrymq.errors import GantrymqError

_SHOWN = 12


class DemoError(GantrymqError):
    """The demo cannot continue: something it needs is missing, or a process of it failed."""

    exit_code = 3


class InputMissingError(DemoError):
    """The file of flights is missing or unreadable. The text names the command that fetches it."""


class WriterFailedError(DemoError):
    """The writer ended although it was not killed."""


class DifferenceError(DemoError):
    """The stored or counted rows differ from the input. The demo exists to find this.

    ``differences`` has one line for each; the text shows the first of them.
    """

    exit_code = 1

    def __init__(self, what: str, differences: Sequence[str]) -> None:
        more = [f"… and {len(differences) - _SHOWN} more"] if len(differences) > _SHOWN else []
        super().__init__("\n  ".join([f"{what}:", *differences[:_SHOWN], *more]))
        self.differences = list(differences)
