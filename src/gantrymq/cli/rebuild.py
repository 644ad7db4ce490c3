"""``gantrymq store rebuild``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.messages import FINDINGS
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store, read_options

if TYPE_CHECKING:
    from gantrymq.tools.rebuild import RebuildReport


class Engine(StrEnum):
    """What does the work: this machine, or a Spark cluster whose executors share the files."""

    LOCAL = "local"
    SPARK = "spark"


EngineOption = Annotated[Engine, typer.Option("--engine", help="Who does the work.")]
_WORTH_A_RATE = 64 << 20  # below, the time goes into loading the kernels


def require_local(engine: Engine) -> None:
    """Raise ConfigError for an engine that is not there."""
    from gantrymq.errors import ConfigError

    if engine is Engine.SPARK:
        raise ConfigError("--engine", engine.value, "local; the engine for Spark comes with the Spark jobs")


def rebuild(
    store: Store,
    queues: Annotated[bool, typer.Option("--queues", help="Make the consume queues anew.")] = False,
    index: Annotated[bool, typer.Option("--index", help="Make the index files anew.")] = False,
    engine: EngineOption = Engine.LOCAL,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Make consume queues and index files anew from the commit log.

    Without --queues and --index both. Takes the store's lock; the old files
    are replaced when the new ones are on the disk. The log is not changed;
    where it is damaged that is passed over, and the exit code is 1.

    Examples of use:

        gantrymq store rebuild /data/store
        gantrymq store rebuild /data/store --index --set maxHashSlotNum=5000000 --set maxIndexNum=20000000
        gantrymq store rebuild /data/store --json
    """
    require_local(engine)
    from gantrymq.cli.progress import progress
    from gantrymq.tools.rebuild import rebuild_store

    reading = read_options(config, set_)
    everything = queues == index
    with progress() as bar:
        report = rebuild_store(
            store,
            reading.config,
            queues=queues or everything,
            index=index or everything,
            given=reading.given,
            progress=bar,
        )
    if json:
        from gantrymq.cli.json_lines import JsonLines

        with JsonLines() as out:
            out.write(_fields(store, report))
    else:
        _print(store, report)
    if report.lost:
        raise typer.Exit(FINDINGS)


def _fields(path: Path, report: RebuildReport) -> dict[str, object]:
    return {
        "store": str(path),
        "engine": Engine.LOCAL.value,
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
        "lost": [
            {
                "path": str(one.path.relative_to(path)),
                "phyOffset": one.start,
                "bytes": one.end - one.start,
                "reason": one.reason,
            }
            for one in report.lost
        ],
        "stepsMs": report.steps_ms,
        "totalMs": round(sum(report.steps_ms.values()), 3),
    }


def _print(path: Path, report: RebuildReport) -> None:
    from gantrymq.cli.text import count_text, print_pairs, size_text, span_text

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
