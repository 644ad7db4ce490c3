"""What a table has of its topics, and how far it is behind its sources.

Thread rule: plain functions; they read the table and its sources, and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from gantrymq.client.settings import ClientSettings
from gantrymq.errors import GantrymqError
from gantrymq.tables.columns import DEAD
from gantrymq.tables.engine import Head
from gantrymq.tables.local.engine import LocalEngine
from gantrymq.tables.local.target import TableTarget
from gantrymq.tables.options import LandOptions
from gantrymq.tables.sources import TableSources
from gantrymq.tables.sources.steps import Lag
from gantrymq.tables.state import CommitNote

SettingsOf = Callable[[list[str]], ClientSettings]
"""The settings of the client of a cluster, by the sources of a table."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table at one time. ``rows`` and ``dead`` are there now, ``missing`` counts the messages of all landings.

    ``lag`` is None if it is unknown; ``lag_problem`` then says why, unless the table remembers no source.
    """

    rows: int
    dead: int
    missing: int
    version: int
    files: int
    positions: Mapping[str, Any]
    lag: Lag | None
    lag_problem: str
    commits: tuple[CommitNote, ...]


def read_status(target: TableTarget, settings_of: SettingsOf) -> TableStatus:
    """Read a table. Raises TableError without one, ForeignTableError, ConfigError."""
    target.refuse_missing_catalog()
    engine = LocalEngine(target.open())
    head = engine.look()
    state = head.state
    lag, problem = _lag(head, settings_of)
    return TableStatus(
        engine.count_rows(), engine.count_rows(DEAD), state.totals.missing, head.version, engine.count_files(),
        state.positions(), lag, problem, state.commits,
    )  # fmt: skip


def first_rows(target: TableTarget, suffix: str, columns: list[str], count: int) -> list[dict[str, Any]]:
    """Columns of some rows of the table beside a table; none if there is no such table. Raises TableError."""
    table = target.open().beside(suffix)
    head = table.head()
    if head is None:
        return []
    contents = table.contents(head)
    rows: list[dict[str, Any]] = []
    batch: pa.RecordBatch
    for batch in chain.from_iterable(contents.batches(file, columns) for file in contents.data_files()):
        rows += batch.select(columns).slice(0, count - len(rows)).to_pylist()
        if len(rows) >= count:
            break
    return rows


def _lag(head: Head, settings_of: SettingsOf) -> tuple[Lag | None, str]:
    options = LandOptions().merged(head.state.options)
    sources = list(options.sources)
    if not sources:
        return None, ""
    try:
        return TableSources(sources, settings_of(sources)).open(options.choice()).lag(head.state), ""
    except (GantrymqError, OSError) as error:
        return None, str(error)
