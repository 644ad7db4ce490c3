"""``gantrymq store salvage``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.opened import read_writing_options, warn_of_contents
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store
from gantrymq.cli.spark_engine import Engine, EngineOption, SparkConf
from gantrymq.cli.terminal import FINDINGS

if TYPE_CHECKING:
    from gantrymq.config.reading import Reading
    from gantrymq.tools.salvage import SalvageReport

_SHOWN = 50


def salvage(
    store: Store,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Directory of the new store: missing, or empty.", readable=False)
    ],
    engine: EngineOption = Engine.LOCAL,
    spark_conf: SparkConf = None,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Make a new, clean store from every whole record of a damaged one.

    STORE is only read. Records keep their physical offsets and their queue
    offsets. Slots of lost messages are filled, and consumers skip them.
    Queues and index are rebuilt from the log, so damage in the old ones does
    not matter. The exit code is 1 if something was lost.

    Examples of use:

        gantrymq store salvage /data/store /data/salvaged
        gantrymq store salvage /data/store /data/salvaged --json | jq .lost
        gantrymq store verify /data/salvaged
    """
    reading = read_writing_options(config, set_)
    report = _salvage(store, out, engine, spark_conf, reading)
    warn_of_contents(store, reading)
    if json:
        from gantrymq.cli.json_lines import JsonLines

        with JsonLines() as lines:
            lines.write(_fields(store, out, engine, report))
    else:
        _print(store, out, report)
    if not report.is_whole:
        raise typer.Exit(FINDINGS)


def _salvage(store: Path, out: Path, engine: Engine, spark_conf: list[str] | None, reading: Reading) -> SalvageReport:
    if engine is Engine.LOCAL:
        from gantrymq.cli.terminal import progress
        from gantrymq.tools.salvage import salvage_store

        with progress() as bar:
            return salvage_store(store, out, reading.config, given=reading.given, progress=bar)
    from gantrymq.cli.spark_engine import on_spark

    with on_spark(spark_conf) as spark:
        from gantrymq.spark.pipelines import salvage_on_spark

        return salvage_on_spark(spark, store, out, reading.config, given=reading.given)


def _fields(store: Path, out: Path, engine: Engine, report: SalvageReport) -> dict[str, object]:
    return {
        "store": str(store),
        "out": str(out),
        "engine": engine.value,
        "minPhyOffset": report.min_phy_offset,
        "maxPhyOffset": report.max_phy_offset,
        "records": report.records,
        "recordBytes": report.record_bytes,
        "mendedRecords": report.corrected,
        "lostBytes": report.lost_bytes,
        **report.account.as_json(store),
        "tailBytes": report.tail_bytes,
        "skippedFiles": [_name(store, path) for path in report.skipped_files],
        "queues": report.queues,
        "queueUnits": report.queue_units,
        "indexEntries": report.index_entries,
        "keptQueues": report.kept_queues,
        "lostQueues": [{"topic": topic, "queueId": queue_id} for topic, queue_id in report.lost_queues],
        "configFiles": report.config_files,
        "brokenConfigFiles": report.broken_config_files,
    }


def _why_skipped(path: Path) -> str:
    from gantrymq.tools.read.log_places import LEFT_OUT

    return "the disk cannot list this directory" if path.is_dir() else LEFT_OUT


def _name(store: Path, path: Path) -> str:
    from gantrymq.store.paths import StorePaths

    return str(StorePaths(store).name_of(path))


def _print(store: Path, out: Path, report: SalvageReport) -> None:
    from gantrymq.cli.terminal import print_pairs
    from gantrymq.model.size import size_text
    from gantrymq.model.texts import count_text

    pairs = [
        ("saved", f"{count_text(report.records, 'record')}, {size_text(report.record_bytes)}"),
        ("", f"at offsets {report.min_phy_offset} to {report.max_phy_offset}, as before"),
    ]
    if report.corrected:
        corrected = count_text(report.corrected, "record")
        pairs.append(("corrected", f"{corrected} that named another physical or queue offset"))
    lost = f"{size_text(report.lost_bytes)} in {count_text(len(report.lost), 'place')}" if report.lost else "nothing"
    pairs.append(("lost", lost))
    pairs += report.account.lines(store, _SHOWN)
    pairs += [("skipped", f"{_name(store, path)}: {_why_skipped(path)}") for path in report.skipped_files]
    units = count_text(report.queue_units, "entry")
    pairs.append(("rebuilt", f"{units} in {count_text(report.queues, 'queue')}"))
    pairs.append(("", f"{count_text(report.index_entries, 'entry')} of the index"))
    if report.kept_queues:
        pairs.append(("kept", f"{count_text(report.kept_queues, 'queue')} without messages, for the next offset"))
    pairs += [("lost queue", f"{topic}/{queue_id}: restarts at 0") for topic, queue_id in report.lost_queues]
    pairs.append(("config", f"{count_text(report.config_files, 'file')} copied"))
    pairs += [
        ("", f"{name} cannot be used (`verify` shows why) and was not copied") for name in report.broken_config_files
    ]
    pairs.append(("next", f"gantrymq store verify {out}, then start the broker on {out}"))
    print_pairs(f"{out}: salvaged from {store}", pairs)
