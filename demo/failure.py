"""What can end the demo before its report, each with the exit code of the command line's contract."""

from __future__ import annotations

from collections.abc import Sequence

from gantrymq.errors import GantrymqError

_SHOWN = 12


class DemoError(GantrymqError):
    """The demo cannot go on: something it needs is missing, or a process of it failed."""

    exit_code = 3


class InputMissingError(DemoError):
    """The flights are not there or are not readable; the text says which command fetches them."""


class WriterFailedError(DemoError):
    """The process that stores ended, but not because it was killed."""


class DifferenceError(DemoError):
    """What was stored or counted is not what was given: the very thing that the demo is to find.

    ``differences`` has one line for each; the text shows the first of them.
    """

    exit_code = 1

    def __init__(self, what: str, differences: Sequence[str]) -> None:
        more = [f"… and {len(differences) - _SHOWN} more"] if len(differences) > _SHOWN else []
        super().__init__("\n  ".join([f"{what}:", *differences[:_SHOWN], *more]))
        self.differences = list(differences)
