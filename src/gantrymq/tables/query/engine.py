"""Runs a query with DuckDB over views. The query reads nothing else: no file, no network, no variable of the process.

Thread rule: one thread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from gantrymq.errors import GantrymqError, StoreError
from gantrymq.tables.query.pushdown import ScannedView
from gantrymq.tables.query.sources import Views
from gantrymq.tables.query.statement import QueryError, rewrite

if TYPE_CHECKING:
    import duckdb

ROWS_A_BATCH = 16_384
_CONFIG = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
_ONLY_SELECT = "only SELECT is allowed, also as WITH, FROM, VALUES, DESCRIBE and SUMMARIZE; and not PIVOT"
_SCAN_NAME = re.compile(r"__scan_\d+")


class Query:
    """One query over ``views``. :attr:`schema` has its columns; iterate once for its batches.

    Raises QueryError if the query is wrong, and what the reading of a source raises.
    """

    def __init__(self, views: Views, text: str) -> None:
        import duckdb

        self._names: dict[str, str] = {}
        self._scanned: list[ScannedView] = []
        self._errors = duckdb.Error
        self._connection = duckdb.connect(":memory:", config=dict(_CONFIG))
        self._connection.execute("set TimeZone = 'UTC'; set lock_configuration = true")
        try:
            self._reader: pa.RecordBatchReader = self._run(views, text)
        except duckdb.Error as error:
            raise self._named(error) from error

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._reader.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the result as they are made."""
        try:
            yield from self._reader
        except (self._errors, pa.ArrowException, OSError) as error:
            raise self._named(error) from error

    def close(self) -> None:
        """End the query."""
        self._connection.close()

    def _run(self, views: Views, text: str) -> pa.RecordBatchReader:
        tree = self._tree(text)
        for reference in rewrite(tree, views.names):
            self._names[reference.scan] = reference.view
            view = views.view(reference.view, reference.keys if views.takes_keys(reference.view) else None)
            if isinstance(view, ScannedView):
                self._scanned.append(view)
            self._connection.register(reference.scan, view)
        (rewritten,) = _one_row(self._connection.execute("select json_deserialize_sql(?)", [json.dumps(tree)]))
        return self._connection.sql(rewritten).to_arrow_reader(ROWS_A_BATCH)

    def _tree(self, text: str) -> dict[str, object]:
        (serialized,) = _one_row(self._connection.execute("select json_serialize_sql(?)", [text]))
        tree: dict[str, object] = json.loads(serialized)
        if tree.get("error"):
            is_parsed = tree.get("error_type") == "not implemented"
            raise QueryError(_ONLY_SELECT if is_parsed else " ".join(str(tree.get("error_message")).split()))
        statements = tree["statements"]
        assert isinstance(statements, list)
        if len(statements) != 1:
            raise QueryError(f"one statement is allowed, got {len(statements)}")
        return tree

    def _named(self, error: Exception) -> GantrymqError:
        """The error of a source that ended the query, else that of the query in one line."""
        for view in self._scanned:
            for cause in view.errors:
                if isinstance(cause, GantrymqError):
                    return cause
        lines = [line for line in str(error).splitlines() if line.strip()]
        text = " ".join(line for line in lines if not line.startswith("LINE ") and line.strip(" ^"))
        text = _SCAN_NAME.sub(lambda name: self._names.get(name[0], name[0]), " ".join(text.split()))
        names = {base.__name__ for base in type(error).__mro__}
        if names & {"IOException", "OutOfMemoryException", "InternalException", "FatalException", "OSError"}:
            return StoreError("query", text)
        return QueryError(text)


def _one_row(connection: duckdb.DuckDBPyConnection) -> tuple[str]:
    (row,) = connection.fetchall()  # an unfetched result would keep the connection busy
    return row
