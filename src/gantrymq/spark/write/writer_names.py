"""The names of writers in the ledger: a given one, or for a plain batch write a generated one.

A generated name is never used again: Spark creates a writer for each run of a write and commits it once, and a job that
is run again gets a new one. So the ledger does not need such a name when no commit is in progress.
"""

from __future__ import annotations

import re
import uuid
from urllib.parse import quote

LINE = ".json"  # the ending of a writer's file in the ledger
_LONGEST = 255  # bytes; limit of file systems
_MADE_UP = re.compile("batch-[0-9a-f]{32}")


def unique_writer_name() -> str:
    """Generate a unique name."""
    return f"batch-{uuid.uuid4().hex}"


def is_made_up(name: str) -> bool:
    """Whether a name has the form of generated names."""
    return _MADE_UP.fullmatch(name) is not None


def file_name(name: str) -> str:
    """The name of a writer's files."""
    return quote(name, safe="")


def has_file_name(name: str) -> bool:
    """Whether the name of a writer can be a file name."""
    return name not in (".", "..") and len(file_name(name) + LINE) <= _LONGEST
