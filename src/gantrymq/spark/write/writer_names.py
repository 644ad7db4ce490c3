"""By which name the ledger knows a writer: one of its own, or for a plain batch write one that is made up for it.

A made-up name is never used again: Spark makes a writer for each run of a write and commits it once, and a job that is
run again gets another. So nobody asks the ledger for such a name once no commit is under way.
"""

from __future__ import annotations

import re
import uuid
from urllib.parse import quote

LINE = ".json"  # what the name of a writer's line in the ledger ends with
_LONGEST = 255  # bytes, of a name in a file system
_MADE_UP = re.compile("batch-[0-9a-f]{32}")


def make_up() -> str:
    """A name that nobody else has."""
    return f"batch-{uuid.uuid4().hex}"


def is_made_up(name: str) -> bool:
    """Whether a name is of the form of those that are made up."""
    return _MADE_UP.fullmatch(name) is not None


def file_name(name: str) -> str:
    """What the files of a writer are called."""
    return quote(name, safe="")


def has_file_name(name: str) -> bool:
    """Whether a file can be called as a writer is."""
    return name not in (".", "..") and len(file_name(name) + LINE) <= _LONGEST
