"""``gantrymq store verify``: prints findings, and at the end the command that helps and what it would cost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.opened import read_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store
from gantrymq.cli.spark_engine import Engine, EngineOption, SparkConf
from gantrymq.cli.terminal import FINDINGS

if TYPE_CHECKING:
    from gantrymq.config.reading import Reading
    from gantrymq.tools.findings import Finding, FindingKind, Severity
    from gantrymq.tools.outlook import Outlook
    from gantrymq.tools.verify import Verification
    from gantrymq.tools.verify_report import FindingGroups


def verify(
    store: Store,
    engine: EngineOption = Engine.LOCAL,
    spark_conf: SparkConf = None,
    outlook: Annotated[
        bool,
        typer.Option(
            "--outlook/--no-outlook", help="Of a damaged store, find out what salvage would keep and recover would cut."
        ),
    ] = True,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Read everything in a store, and report what is damaged.

    Every record's CRC is checked; queues and index are compared with the log.
    The command takes no lock and writes nothing, so a broker may be running.
    What a recovery repairs by itself is a note. The exit code is 1 if
    something is damaged. The last lines have the command that helps, and what
    it would cost a damaged store (which reads the log once more).

    Examples of use:

        gantrymq store verify /data/store
        gantrymq store verify /data/store --json | jq -r 'select(.level == "damage") | .kind' | sort | uniq -c
        gantrymq store verify /data/store -c broker.conf
    """
    reading = read_options(config, set_)
    took: dict[str, float] = {}
    with _opened(store, reading, engine, spark_conf, shown=not (json and sys.stdout.isatty())) as verification:
        wanted = _outlook(store, reading) if outlook else None
        if json:
            _print_json(store, verification, took, wanted)
        else:
            groups = _grouped(verification, took)
    if not json:
        _print_text(store, verification, groups, took["tookMs"], wanted)
    if verification.summary.findings:
        raise typer.Exit(FINDINGS)


@contextmanager
def _opened(
    path: Path, reading: Reading, engine: Engine, spark_conf: list[str] | None, *, shown: bool
) -> Iterator[Verification]:
    from gantrymq.broker.tables.persistence import table_decoders

    if engine is Engine.LOCAL:
        from gantrymq.cli.terminal import progress
        from gantrymq.tools.verify import verify_store

        with progress(shown=shown) as report:
            yield verify_store(path, reading.config, given=reading.given, progress=report, decoders=table_decoders())
        return
    from gantrymq.cli.spark_engine import on_spark

    with on_spark(spark_conf, shown=shown) as spark:
        from gantrymq.spark.pipelines import verify_on_spark

        yield verify_on_spark(spark, path, reading.config, given=reading.given, decoders=table_decoders())


@contextmanager
def _timed(fields: dict[str, float]) -> Iterator[None]:
    from gantrymq.clock import SystemClock

    clock = SystemClock()
    began_s = clock.monotonic_s()
    yield
    fields["tookMs"] = round((clock.monotonic_s() - began_s) * 1000, 3)


def _outlook(path: Path, reading: Reading) -> Callable[[], Outlook]:
    def look() -> Outlook:
        from gantrymq.cli.terminal import progress
        from gantrymq.tools.outlook import look_ahead

        with progress() as report:
            return look_ahead(path, reading.config, given=reading.given, progress=report)

    return look


def _print_json(
    path: Path, verification: Verification, took: dict[str, float], wanted: Callable[[], Outlook] | None
) -> None:
    """Print each finding as it is found; none is kept in memory."""
    from gantrymq.cli.json_lines import JsonLines

    with JsonLines() as out:
        with _timed(took):
            for finding in verification:
                out.write(finding.as_json())
        summary = verification.summary
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
                "outlook": wanted().as_json() if wanted is not None and summary.findings else None,
            }
        )


def _print_text(
    path: Path, verification: Verification, groups: FindingGroups, took_ms: float, wanted: Callable[[], Outlook] | None
) -> None:
    from gantrymq.cli.terminal import print_pairs
    from gantrymq.tools.verify_report import next_steps, total_pairs, verdict

    _print_groups(groups)
    summary = verification.summary
    pairs = total_pairs(summary, took_ms)
    outlook = wanted() if wanted is not None and summary.findings else None
    steps = next_steps(path, summary, groups.damaged, outlook)
    pairs += [("next" if number == 0 else "", text) for number, text in enumerate(steps)]
    print_pairs(f"{path}: {verdict(summary)}", pairs)


def _print_groups(groups: FindingGroups) -> None:
    """Print a line for each group, and for its first findings if there are several."""
    from gantrymq.cli.terminal import print_line
    from gantrymq.model.texts import count_text

    for group in groups:
        if group.count > len(group.first):
            count = count_text(group.count, "finding")
            print_line(f"{_level_and_kind(group.level, group.kind)}  {group.path}: {count}, the first of them:")
        for finding in group.first:
            print_line(_line(finding))
    if groups.more:
        print(f"… and {count_text(groups.more, 'finding')} more in other files (--json prints all)")


def _grouped(verification: Verification, took: dict[str, float]) -> FindingGroups:
    """Iterate over all findings and group them."""
    from gantrymq.tools.verify_report import FindingGroups

    groups = FindingGroups()
    with _timed(took):
        for finding in verification:
            groups.add(finding)
    return groups


def _line(finding: Finding) -> str:
    from gantrymq.tools.verify_report import places_of

    locations = places_of(finding)
    where = f"  {locations}" if locations else ""
    return f"{_level_and_kind(finding.level, finding.kind)}  {finding.path}{where}: {finding.text}"


def _level_and_kind(level: Severity, kind: FindingKind) -> str:
    return f"{level.value:6}  {kind.value:24}"
