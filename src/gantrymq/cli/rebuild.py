"""``gantrymq store rebuild``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.lost_ranges import lost_rows
from gantrymq.cli.messages import FINDINGS
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store, read_options
from gantrymq.cli.spark_engine import Engine, EngineOption, SparkConf

if TYPE_CHECKING:
    from gantrymq.config.properties import Reading
    from gantrymq.tools.rebuild import RebuildReport


_WORTH_A_RATE = 64 << 20  # below, the time goes into loading the kernels


def rebuild(
    store: Store,
    queues: Annotated[bool, typer.Option("--queues", help="Make the consume queues anew.")] = False,
    index: Annotated[bool, typer.Option("--index", help="Make the index files anew.")] = False,
    engine: EngineOption = Engine.LOCAL,
    spark_conf: SparkConf = None,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Make consume queues and index files anew from the commit log.

    Without --queues and --index both. Takes the store's lock; the old files
    are replaced when the new ones are on the disk. The log is not changed;
    where it is damaged that is passed over, and the exit code is 1. With
    --engine spark executors make the same files, which are swapped in here.

    Examples of use:

        gantrymq store rebuild /data/store
        gantrymq store rebuild /data/store --index --set maxHashSlotNum=5000000 --set maxIndexNum=20000000
        gantrymq store rebuild /data/store --engine spark --spark-conf spark.master=spark://host:7077
        gantrymq store rebuild /data/store --json
    """
    reading = read_options(config, set_)
    everything = queues == index
    report = _rebuild(store, engine, spark_conf, reading, queues=queues or everything, index=index or everything)
    if json:
        from gantrymq.cli.json_lines import JsonLines

        with JsonLines() as out:
            out.write(_fields(store, engine, report))
    else:
        _print(store, report)
    if report.lost:
        raise typer.Exit(FINDINGS)


def _rebuild(
    store: Path, engine: Engine, spark_conf: list[str] | None, reading: Reading, *, queues: bool, index: bool
) -> RebuildReport:
    if engine is Engine.LOCAL:
        from gantrymq.cli.progress import progress
        from gantrymq.tools.rebuild import rebuild_store

        with progress() as bar:
            return rebuild_store(store, reading.config, queues=queues, index=index, given=reading.given, progress=bar)
    from gantrymq.cli.spark_engine import on_spark
    from gantrymq.spark.pipelines import rebuild_on_spark

    with on_spark(spark_conf) as spark:
        return rebuild_on_spark(spark, store, reading.config, queues=queues, index=index, given=reading.given)


def _fields(path: Path, engine: Engine, report: RebuildReport) -> dict[str, object]:
    return {
        "store": str(path),
        "engine": engine.value,
        "lastExitOk": report.last_exit_ok,
        "queuesRebuilt": report.queues_rebuilt,
        "indexRebuilt": report.index_rebuilt,
        "minPhyOffset": report.min_phy_offset,
        "maxPhyOffset": report.max_phy_offset,
        "records": report.records,
        "queues": report.queues,
        "queueUnits": report.queue_units,
        "queueFiles": report.queue_files,
        "indexFiles": report.index_files,
        "indexEntries": report.index_entries,
        "removedFiles": report.removed_files,
        "lost": lost_rows(path, report.lost),
        "stepsMs": report.steps_ms,
        "totalMs": round(sum(report.steps_ms.values()), 3),
    }


def _print(path: Path, report: RebuildReport) -> None:
    from gantrymq.cli.text import count_text, print_pairs, span_text
    from gantrymq.model.size import size_text

    read, read_ms = report.max_phy_offset - report.min_phy_offset, report.steps_ms["read"]
    rate = f", {size_text(read * 1000 / read_ms)}/s" if read > _WORTH_A_RATE else ""
    offsets = f"offsets {report.min_phy_offset} to {report.max_phy_offset}"
    pairs = [("read", f"{count_text(report.records, 'record')}, {offsets}{rate}")]
    if report.queues_rebuilt:
        units, files = count_text(report.queue_units, "entry"), count_text(report.queue_files, "file")
        pairs.append(("queues", f"{units} in {count_text(report.queues, 'queue')}, {files}"))
    if report.index_rebuilt:
        pairs.append(
            ("index", f"{count_text(report.index_entries, 'entry')} in {count_text(report.index_files, 'file')}")
        )
    pairs += [("passed over", f"offset {one.start}, {one.end - one.start} bytes: {one.reason}") for one in report.lost]
    if report.lost:
        pairs.append(("", "the log is damaged there: gantrymq store verify says how, salvage makes a store without it"))
    if not report.last_exit_ok:
        pairs.append(("state", "it was not closed, and still is not: the next open recovers it"))
    pairs.append(("took", span_text(sum(report.steps_ms.values()))))
    pairs += [("", f"{name} {span_text(took_ms)}") for name, took_ms in report.steps_ms.items()]
    print_pairs(f"{path}: rebuilt", pairs)
