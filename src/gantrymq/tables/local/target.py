"""Which table a command means: its format, and where it lies.

Thread rule: plain functions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from gantrymq.errors import ConfigError
from gantrymq.tables.errors import TableError
from gantrymq.tables.local.directory import Directory
from gantrymq.tables.local.format_table import FormatTable

_DELTA_LOG, _STATES = "_delta_log", "_gantrymq"
_IDENTIFIER = re.compile(r"[^./:\s]+(\.[^./:\s]+)+")


TOPIC = "{topic}"
"""What stands for the name of a topic in the name of a table."""


class TableFormat(StrEnum):
    """The format of a table."""

    DELTA = "delta"
    ICEBERG = "iceberg"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class TableTarget:
    """A table as a command names it: a path or URI, or ``namespace.name`` in a catalog.

    ``catalog`` is the name of a catalog of PyIceberg, with ``catalog_settings``. ``warehouse`` is a directory with a
    catalog in a SQLite file.
    """

    table: str
    format: TableFormat | None = None
    warehouse: str | None = None
    catalog: str | None = None
    catalog_settings: Mapping[str, str] = field(default_factory=dict)

    def of_topic(self, topic: str) -> TableTarget:
        """The table of one topic, whose name takes the place of ``{topic}``."""
        name = topic
        if self.resolved_format is TableFormat.ICEBERG:  # a dot would be another namespace
            name = re.sub(r"[^A-Za-z0-9_]", "_", topic)
        elif "/" in topic or topic.startswith("."):
            name = topic.replace("/", "_").lstrip(".")
        table = self.table.replace(TOPIC, name)
        return TableTarget(table, self.format, self.warehouse, self.catalog, self.catalog_settings)

    @property
    def resolved_format(self) -> TableFormat:
        """The format that was given, that of the existing table, or Delta. Raises ConfigError."""
        if not self.table.strip("/"):
            raise ConfigError("TABLE", self.table, "the path or the name of a table")
        is_in_catalog = self.warehouse is not None or self.catalog is not None
        if self.format is not None and self.format is not TableFormat.ICEBERG and is_in_catalog:
            raise ConfigError("--format", str(self.format), "iceberg, for --warehouse and --catalog")
        if self.format is TableFormat.ICEBERG and not is_in_catalog:
            raise ConfigError("--format", str(self.format), "only with --warehouse DIR, or --catalog NAME")
        if self.catalog is None and self.warehouse is not None and "://" in self.warehouse:
            allowed = (
                "a local directory: for a URI name the catalog, too (--catalog NAME --catalog-set uri=… and others)"
            )
            raise ConfigError("--warehouse", self.warehouse, allowed)
        if is_in_catalog:
            if not _IDENTIFIER.fullmatch(self.table.replace(TOPIC, "t")):
                raise ConfigError("TABLE", self.table, "namespace.name, for a table in a catalog")
            return TableFormat.ICEBERG
        if self.format is not None:
            return self.format
        names = Directory(self.table).names() or []
        return TableFormat.PARQUET if _STATES in names and _DELTA_LOG not in names else TableFormat.DELTA

    def refuse_missing_catalog(self) -> None:
        """Raise TableError for a warehouse without a catalog, which :meth:`open` would make."""
        if self.warehouse is None or self.catalog is not None or any(Path(self.warehouse).glob("*.db")):
            return
        raise TableError(self.table, f"does not exist: {self.warehouse} has no catalog; `gantrymq table land` makes it")

    def open(self) -> FormatTable:
        """The table, which need not exist. Raises ConfigError, and ModuleNotFoundError for a missing extra."""
        kind = self.resolved_format
        if kind is TableFormat.ICEBERG:
            from gantrymq.tables.local.iceberg import IcebergFormatTable, open_catalog

            catalog = open_catalog(self.warehouse, self.catalog, self.catalog_settings)
            return IcebergFormatTable(catalog, self.table)
        if kind is TableFormat.DELTA:
            from gantrymq.tables.local.delta import DeltaFormatTable

            return DeltaFormatTable(Directory(self.table))
        from gantrymq.tables.local.parquet import ParquetFormatTable

        return ParquetFormatTable(Directory(self.table))
