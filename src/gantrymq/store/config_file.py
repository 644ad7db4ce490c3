"""A file of ``config/``: a JSON object in a file that is replaced as a whole.

Loading falls back to the ``.bak`` that stands beside it.

Source: ConfigManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gantrymq.errors import UnusableFileError
from gantrymq.fs.api import FileSystem
from gantrymq.fs.replaced_file import ReplacedFile, Value
from gantrymq.model import fastjson
from gantrymq.store.config_tables import wrong_shape

_LOGGER = logging.getLogger(__name__)


def parse_config(raw: bytes) -> dict[str, Any]:
    """The JSON object in a file of ``config/``, as fastjson2 reads it; raises ValueError where there is none."""
    value = fastjson.loads_edited(raw.decode("utf-8"), no_number=_no_number)
    if not isinstance(value, dict):
        raise ValueError("it holds something else than an object")
    return value


def require_tables(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """``value``, the object of the file ``name``; raises ValueError where one of its tables has another shape."""
    problem = wrong_shape(name, value)
    if problem is not None:
        raise ValueError(str(problem))
    return value


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


class ConfigFile:
    """The JSON object at ``path``. Thread rule: one thread."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._file = ReplacedFile(fs, path)

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._file.path

    @property
    def has_backup(self) -> bool:
        """Whether there is a version before it."""
        return self._file.has_backup

    @property
    def refused(self) -> str:
        """Why what was loaded is not what the file holds but its backup; empty where it is."""
        return self._file.refused

    def load(self) -> dict[str, Any]:
        """The object; empty where neither the file nor its backup holds one. Raises DiskError.

        What is wrong with the file is a warning: what is read so was written by a broker, and a start goes on.
        """
        try:
            found = self.read(lambda value: require_tables(self.path.name, value))
        except UnusableFileError as error:
            _LOGGER.warning("%s cannot be used (%s): the store goes on without it", self.path, error.reason)
            return {}
        if self.refused:
            instead = "its .bak is taken" if found is not None else "there is no .bak, and the store goes on without it"
            _LOGGER.warning("%s cannot be used (%s): %s", self.path, self.refused, instead)
        return found or {}

    def read(self, use: Callable[[dict[str, Any]], Value], *, keeps_edits: bool = False) -> Value | None:
        """What ``use`` makes of the object; where it raises ValueError or GantrymqError, of the one before it.

        With ``keeps_edits`` the one before it only takes the place of a file that is missing or blank: what somebody
        wrote into the file is not replaced by what is older. None where there is neither; raises DiskError, and
        UnusableFileError where what there is will not do.
        """
        return self._file.load(lambda raw: use(parse_config(raw)), keeps_edits=keeps_edits)

    def save(self, value: dict[str, Any]) -> None:
        """Replace the object; returns when that is durable. Raises DiskFullError."""
        self._file.replace(fastjson.dumps(value))
