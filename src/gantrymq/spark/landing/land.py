"""``land`` for notebooks and programs of ``spark-submit``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from gantrymq.client.settings import ClientSettings
from gantrymq.spark.landing.engine import SparkEngine, default_commit_rows
from gantrymq.tables.landing import Commit, Landing, Summary, joined, tables_of
from gantrymq.tables.local.target import TableFormat, TableTarget
from gantrymq.tables.options import LandOptions
from gantrymq.tables.partitions import PartitionBy
from gantrymq.tables.sources import TableSources
from gantrymq.tables.sources.group_offsets import GroupOffsets, group_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGER = logging.getLogger(__name__)


def land(
    spark: SparkSession,
    source: str | Path | Sequence[str | Path],
    table: str | Path,
    *,
    topic: str | Sequence[str] = (),
    topics: str | None = None,
    format: str | None = None,
    body: str | None = None,
    schema: str | None = None,
    message: str | None = None,
    retries: bool = False,
    dlq: bool = False,
    partition_by: str | None = None,
    upsert_by: str | None = None,
    op_field: str | None = None,
    commit_rows: int | None = None,
    commit_group: str | None = None,
    compact: bool = False,
    ttl: timedelta | None = None,
    expire: timedelta | None = None,
    warehouse: str | Path | None = None,
    catalog: str | None = None,
    catalog_settings: Mapping[str, str] | None = None,
    client_settings: ClientSettings | None = None,
    on_commit: Callable[[Commit], object] | None = None,
) -> Summary:
    """Land what is new in ``source``, and return the summary.

    The arguments are the options of ``gantrymq table land``; a span of zero stands for ``none``. ``client_settings``
    are those of the client of a cluster. ``on_commit`` is called after each durable commit. A broker that refuses the
    offsets of ``commit_group`` is logged as a warning. The executors have the files of ``source`` and, unless it is a
    URI, of ``table`` under the same paths as the driver.

    Raises ConfigError, StoreError, TableError, RemotingError; AnotherLanderError if another process lands in the table.
    """
    sources = [str(source)] if isinstance(source, (str, Path)) else [str(path) for path in source]
    target = TableTarget(
        str(table),
        TableFormat(format) if format else None,
        str(warehouse) if warehouse is not None else None,
        catalog,
        dict(catalog_settings or {}),
    )
    named = (topic,) if isinstance(topic, str) else tuple(topic)
    partition = PartitionBy.parse(partition_by) if partition_by is not None else None
    ttl_s, expire_s = (None if span is None else span.total_seconds() for span in (ttl, expire))
    options = LandOptions(
        named, topics, retries, dlq, partition, body, schema, message,
        sources=tuple(sources), ttl_s=ttl_s, expire_s=expire_s, upsert_by=upsert_by, op_field=op_field,
    )  # fmt: skip
    make_source = TableSources(sources, client_settings).open
    rows = commit_rows or default_commit_rows(spark)
    summaries = []
    with ExitStack() as stack:
        offsets = None
        if commit_group is not None:
            offsets = stack.enter_context(group_offsets(sources, commit_group, client_settings, _LOGGER.warning))
        for meant, wanted in tables_of(target, options, make_source):
            landing = Landing(SparkEngine(meant.open(), spark), make_source, wanted, rows)
            _run(landing, on_commit, offsets)
            landing.maintain(compact=compact, is_exact=True)
            summaries.append(landing.summary)
    return joined(summaries)


def _run(landing: Landing, on_commit: Callable[[Commit], object] | None, offsets: GroupOffsets | None) -> None:
    for commit in landing.run_pass():
        if on_commit is not None:
            on_commit(commit)
        if offsets is not None:
            offsets.commit(commit.state.queues)
    if offsets is not None:
        offsets.commit(landing.state.queues)  # an earlier run may have ended before it
