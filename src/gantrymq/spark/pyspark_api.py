"""PySpark's API for Python data sources, which is smaller in older releases; docs/spark.md has the matrix.

A class that the installed PySpark lacks is replaced by an empty one, of which no instance exists. A feature that needs
such a class is refused with the required version.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.types import StructType

from gantrymq.errors import GantrymqError

__all__ = [
    "DataSourceStreamArrowWriter",
    "EqualNullSafe",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "LessThan",
    "LessThanOrEqual",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "has_stream_limits",
    "has_stream_writers",
    "needs",
]

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import (
        DataSourceStreamArrowWriter,
        EqualNullSafe,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    def _attribute(name: str) -> type:
        for module in ("pyspark.sql.datasource", "pyspark.sql.streaming.datasource"):
            with suppress(ImportError, AttributeError):
                return getattr(import_module(module), name)
        return type(name, (), {"__doc__": f"Not in PySpark {pyspark.__version__}."})

    globals().update((name, _attribute(name)) for name in __all__ if name[0].isupper())


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark compares with each batch, field by field."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Pass the zone if possible: newer releases default to the session's, older ones know only UTC.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def has_stream_limits() -> bool:
    """Whether Spark passes the start of a batch and limits to a stream: since PySpark 4.2."""
    return ReadLimit.__module__.startswith("pyspark.")


def has_stream_writers() -> bool:
    """Whether a stream can be written as Arrow batches: since PySpark 4.1."""
    return DataSourceStreamArrowWriter.__module__.startswith("pyspark.")


def needs(feature: str, version: str) -> GantrymqError:
    """The error for a feature that the installed PySpark lacks."""
    return GantrymqError(f"{feature} needs PySpark {version} or newer; this is {pyspark.__version__}")
