"""Kills a landing between any two changes of its tables."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from gantrymq.tables.local import directory as directories


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

    def wrap(holder: Any, name: str) -> None:
        monkeypatch.setattr(holder, name, point.around(getattr(holder, name)))

    for name in ("write", "open", "remove"):
        wrap(directories.Directory, name)
    for name in ("rename", "link"):
        wrap(os, name)
    from deltalake import DeltaTable

    from gantrymq.tables.local import delta as delta_tables

    wrap(delta_tables, "create_table_with_add_actions")
    wrap(DeltaTable, "create_write_transaction")
    from pyiceberg.catalog.sql import SqlCatalog

    from gantrymq.tables.local import iceberg as iceberg_tables

    for name in ("commit_table", "create_table", "create_namespace"):
        wrap(SqlCatalog, name)
    for name in ("open", "remove"):
        wrap(iceberg_tables.IcebergFiles, name)
    return point
