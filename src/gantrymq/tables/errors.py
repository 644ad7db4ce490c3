"""The errors of a landing."""

from __future__ import annotations

import re
from pathlib import Path

from gantrymq.errors import GantrymqError, StoreError

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # deltalake colours the causes of an OSError


def one_line(error: BaseException) -> str:
    """The text of an error of a library as one line, or the name of its class if it has none."""
    return " ".join(_COLOURS.sub("", str(error)).split()) or type(error).__name__


class TableError(GantrymqError):
    """A table cannot be landed in; ``table`` names it."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"{table}: {reason}")
        self.table = table
        self.reason = reason


class ForeignTableError(TableError):
    """A table of that name exists, and `table land` did not make it."""

    def __init__(self, table: str, why: str = "exists, and `gantrymq table land` did not make it") -> None:
        super().__init__(table, f"{why}; it is left unchanged: name another table")


class AnotherLanderError(TableError):
    """Another process has landed in the table since this one read its positions."""

    def __init__(self, table: str) -> None:
        super().__init__(table, "another `table land` has landed in it meanwhile; nothing of this commit was written")


class TableChangedError(TableError):
    """Another program has committed to the table while its files were rewritten; nothing of the rewriting is in it."""

    def __init__(self, table: str) -> None:
        super().__init__(table, "another program has changed it while its files were rewritten; run `table land` again")


class LogDeletedError(StoreError):
    """Retention has deleted a file of a log after the plan of a landing and before it was read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "was deleted while it was landed; land again, and TABLE__audit names what is missing")
