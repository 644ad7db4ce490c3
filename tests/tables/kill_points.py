"""The changes that a landing makes to files and catalogs, each of which may be its last."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from gantrymq.tables.local import delta as delta_tables
from gantrymq.tables.local import directory as directories
from gantrymq.tables.local import iceberg as iceberg_tables
from gantrymq.tables.local.target import TableFormat
from tables.landing_cases import ALL, Lake, landing_of


class Killed(BaseException):
    """The process of a landing is gone."""


class KillPoint:
    """Kills a landing before or after its change ``number``. Nothing changes after it, whatever a clean-up tries."""

    def __init__(self) -> None:
        self.left = -1
        self.is_dead = False

    def arm(self, number: int) -> None:
        self.left, self.is_dead = number, False

    def disarm(self) -> None:
        self.left, self.is_dead = -1, False

    def step(self) -> None:
        if self.is_dead or self.left == 0:
            self.is_dead = True
            raise Killed
        self.left -= 1

    def around(self, change: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(change)
        def changed(*args: Any, **options: Any) -> Any:
            self.step()
            result = change(*args, **options)
            try:
                self.step()
            except Killed:
                if hasattr(result, "close"):
                    result.close()
                raise
            return result

        return changed


def kill_point_of(monkeypatch: pytest.MonkeyPatch) -> KillPoint:
    """A kill point of all changes that tables make."""
    point = KillPoint()
    for holder, name in change_points():
        monkeypatch.setattr(holder, name, point.around(getattr(holder, name)))
    return point


class SigkillPoint(KillPoint):
    """Ends this process by SIGKILL."""

    def step(self) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


def change_points() -> list[tuple[Any, str]]:
    """The functions that change something: their holder and name."""
    return [
        *((directories.Directory, name) for name in ("write", "open", "remove")),
        *((os, name) for name in ("rename", "link")),
        (delta_tables, "create_table_with_add_actions"),
        (DeltaTable, "create_write_transaction"),
        *((SqlCatalog, name) for name in ("commit_table", "create_table", "create_namespace")),
        *((iceberg_tables.IcebergFiles, name) for name in ("open", "remove")),
    ]


def main() -> None:
    """A process that compacts a table, and is killed at a change."""
    store, root, kind, number = sys.argv[1:]
    point = SigkillPoint()
    for holder, name in change_points():
        setattr(holder, name, point.around(getattr(holder, name)))
    landing = landing_of(Lake(Path(root), TableFormat(kind)), Path(store), ALL)
    list(landing.run_pass())
    point.arm(int(number))
    landing.maintain(compact=True, is_exact=True)


if __name__ == "__main__":
    main()
