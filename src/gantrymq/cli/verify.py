"""``gantrymq store verify``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gantrymq.cli.given_settings import read_options
from gantrymq.cli.messages import FINDINGS
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store
from gantrymq.cli.spark_engine import Engine, EngineOption, SparkConf

if TYPE_CHECKING:
    from gantrymq.config.properties import Reading
    from gantrymq.tools.findings import Finding
    from gantrymq.tools.verify import Verification


def verify(
    store: Store,
    engine: EngineOption = Engine.LOCAL,
    spark_conf: SparkConf = None,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Read everything in a store, and name what is damaged.

    Every record is read with its CRC; queues and index are held against the
    log. Takes no lock and writes nothing, also while a broker is at work.
    What a recovery mends by itself is a note. The exit code is 1 where
    something is damaged.

    Examples of use:

        gantrymq store verify /data/store
        gantrymq store verify /data/store --json | jq -r 'select(.level == "damage") | .kind' | sort | uniq -c
        gantrymq store verify /data/store -c broker.conf
    """
    reading = read_options(config, set_)
    took: dict[str, float] = {}
    with _opened(store, reading, engine, spark_conf, shown=not (json and sys.stdout.isatty())) as found:
        findings = _print_json(store, found, took) if json else _kept(found, took)
    if not json:
        _print_text(store, found, findings, took["tookMs"])
    if found.summary.findings:
        raise typer.Exit(FINDINGS)


@contextmanager
def _opened(
    path: Path, reading: Reading, engine: Engine, spark_conf: list[str] | None, *, shown: bool
) -> Iterator[Verification]:
    from gantrymq.broker.table_decoders import table_decoders

    if engine is Engine.LOCAL:
        from gantrymq.cli.progress import progress
        from gantrymq.tools.verify import verify_store

        with progress(shown=shown) as report:
            yield verify_store(path, reading.config, given=reading.given, progress=report, decoders=table_decoders())
        return
    from gantrymq.cli.spark_engine import on_spark
    from gantrymq.spark.pipelines import verify_on_spark

    with on_spark(spark_conf, shown=shown) as spark:
        yield verify_on_spark(spark, path, reading.config, given=reading.given, decoders=table_decoders())


@contextmanager
def _timed(fields: dict[str, float]) -> Iterator[None]:
    from gantrymq.clock import SystemClock

    clock = SystemClock()
    began_s = clock.monotonic_s()
    yield
    fields["tookMs"] = round((clock.monotonic_s() - began_s) * 1000, 3)


def _print_json(path: Path, found: Verification, took: dict[str, float]) -> list[Finding]:
    """Each finding as it comes; none is kept."""
    from gantrymq.cli.json_lines import JsonLines

    with JsonLines() as out:
        with _timed(took):
            for finding in found:
                out.write(finding.as_json())
        summary = found.summary
        out.write(
            {
                "kind": "summary",
                "store": str(path),
                "lastExitOk": summary.last_exit_ok,
                "findings": summary.findings,
                "notes": summary.notes,
                "kinds": dict(sorted(summary.kinds.items())),
                "minPhyOffset": summary.min_phy_offset,
                "maxPhyOffset": summary.max_phy_offset,
                "records": summary.records,
                "recordBytes": summary.record_bytes,
                "queues": summary.queues,
                "queueEntries": summary.queue_entries,
                "indexFiles": summary.index_files,
                "indexEntries": summary.index_entries,
                "unreadableMessages": summary.unreadable_messages,
                **took,
            }
        )
    return []


def _print_text(path: Path, found: Verification, findings: list[Finding], took_ms: float) -> None:
    from gantrymq.cli.lines import print_line
    from gantrymq.cli.text import count_text, print_pairs, span_text
    from gantrymq.model.size import size_text

    for finding in findings:
        print_line(_line(finding))
    summary = found.summary
    more = summary.findings + summary.notes - len(findings)
    if more:
        print(f"… and {count_text(more, 'finding')} more (--json prints all)")
    rate = f", {size_text(summary.record_bytes * 1000 / took_ms)}/s" if summary.record_bytes > _WORTH_A_RATE else ""
    lost = summary.unreadable_messages
    pairs = [
        ("state", "closed" if summary.last_exit_ok else "not closed: a recovery comes first when it is opened"),
        ("log", f"{count_text(summary.records, 'record')}, {size_text(summary.record_bytes)}"),
        ("queues", f"{count_text(summary.queue_entries, 'entry')} in {count_text(summary.queues, 'queue')}"),
        ("index", f"{count_text(summary.index_entries, 'entry')} in {count_text(summary.index_files, 'file')}"),
        *([("lost", f"{count_text(lost, 'message')} in queues lie where the log is broken")] if lost else []),
        *((kind, str(count)) for kind, count in sorted(summary.kinds.items())),
        ("took", f"{span_text(took_ms)}{rate}"),
    ]
    verdict = count_text(summary.findings, "finding") if summary.findings else "nothing is damaged"
    notes = f", {count_text(summary.notes, 'note')}" if summary.notes else ""
    print_pairs(f"{path}: {verdict}{notes}", pairs)


_SHOWN = 200
_WORTH_A_RATE = 64 << 20  # below, the time goes into loading the kernels


def _kept(found: Verification, took: dict[str, float]) -> list[Finding]:
    """The first findings; all are gone through."""
    kept: list[Finding] = []
    with _timed(took):
        for finding in found:
            if len(kept) < _SHOWN:
                kept.append(finding)
    return kept


def _line(finding: Finding) -> str:
    places = []
    if finding.topic is not None:
        places.append(f"{finding.topic}/{finding.queue_id}")
    if finding.queue_offset is not None:
        places.append(f"queue offset {finding.queue_offset}")
    if finding.phy_offset is not None:
        length = f" ({finding.length_bytes} bytes)" if finding.length_bytes else ""
        places.append(f"offset {finding.phy_offset}{length}")
    if finding.entry is not None:
        places.append(f"{'slot' if finding.kind.value == 'index-slot' else 'entry'} {finding.entry}")
    if finding.count > 1:
        places.append(f"{finding.count} in all")
    where = f"  {', '.join(places)}" if places else ""
    return f"{finding.level.value:6}  {finding.kind.value:24}  {finding.path}{where}: {finding.text}"
