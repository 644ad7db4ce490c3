"""``gantrymq store verify``: prints findings, and at the end the command that helps and what it would cost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.opened import read_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store
from gantrymq.cli.spark_engine import Engine, EngineOption, SparkConf
from gantrymq.cli.terminal import FINDINGS

if TYPE_CHECKING:
    from gantrymq.config.properties import Reading
    from gantrymq.tools.check.findings import Finding, Kind, Level
    from gantrymq.tools.outlook import Outlook
    from gantrymq.tools.verify import Verification


_OF_LOG = ("log-", "length-", "blank-", "record-")
_OF_QUEUES = ("queue-", "message-", "index-")
_MISSING = "log-missing"
_MOUNT = "mount the disk, or give all directories of the log (-c), and verify again; else"
_OF_CHECKPOINT = ("checkpoint-",)
_OF_GROUPS = ("consumer-",)
_OF_FILES = ("file-size", "file-unreadable")
_LOG = ("commitlog",)
_QUEUES = ("consumequeue", "consumequeue_ext", "index")


def next_steps(path: Path, damaged: Collection[tuple[Kind, Path]], outlook: Outlook | None) -> list[tuple[str, str]]:
    """(label, text) of the command that helps, and of what others would cost.

    ``damaged`` has the kind and the file of each finding.
    """
    is_log = any(kind.value.startswith(_OF_LOG) or _is_file_of(_LOG, kind, file) for kind, file in damaged)
    is_queues = any(kind.value.startswith(_OF_QUEUES) or _is_file_of(_QUEUES, kind, file) for kind, file in damaged)
    if is_log or (outlook is not None and outlook.lost):
        is_missing = any(kind.value == _MISSING for kind, _ in damaged)
        steps = (
            ["mount the disk, or give all directories of the log (-c), and verify again; else"] if is_missing else []
        )
        salvage, recover = f"gantrymq store salvage {path} OUT{_kept(outlook)}", _cost_of_recover(path, outlook)
        steps += [*recover, salvage] if outlook is not None and not outlook.kept else [salvage, *recover]
    elif is_queues:
        whole = f", which has all {outlook.kept:,} messages" if outlook is not None else ""
        steps = [f"gantrymq store rebuild {path} rebuilds queues and index from the log{whole}"]
    elif any(kind.value.startswith(_OF_CHECKPOINT) for kind, _ in damaged):
        steps = [f"gantrymq store recover {path} writes a new checkpoint"]
    elif any(kind.value.startswith(_OF_GROUPS) for kind, _ in damaged):
        steps = [f"gantrymq store recover {path} sets consumer groups to the end of their queues"]
    else:
        return []
    return [("next" if number == 0 else "", text) for number, text in enumerate(steps)]


def _is_file_of(directories: Collection[str], kind: Kind, file: Path) -> bool:
    """Whether the finding is a short or unreadable file below one of the directories."""
    return kind.value in _OF_FILES and bool(file.parts) and file.parts[0] in directories


def _kept(outlook: Outlook | None) -> str:
    from gantrymq.cli.terminal import count_text
    from gantrymq.model.size import size_text

    if outlook is None:
        return " keeps the valid records"
    if not outlook.kept:
        return " refuses: the log has no valid record"
    lost = f"; {count_text(outlook.lost, 'message')} known to be lost" if outlook.lost else ""
    return f" keeps {count_text(outlook.kept, 'message')}{lost} (takes about {size_text(outlook.salvage_bytes)})"


def _cost_of_recover(path: Path, outlook: Outlook | None) -> list[str]:
    from gantrymq.cli.terminal import count_text

    if outlook is None:
        return []
    if outlook.refusal is not None:
        return [f"gantrymq store recover {path} refuses: {outlook.refusal}"]
    if not outlook.cut:
        return [f"gantrymq store recover {path} would cut no message, and leave the damage"]
    cut = count_text(outlook.cut, "message")
    return [f"gantrymq store recover {path} would cut {cut}, among them {outlook.cut_whole:,} whole ones"]


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
    something is damaged. The last lines then have the command that helps, and
    what it would cost (which reads the log once more).

    Examples of use:

        gantrymq store verify /data/store
        gantrymq store verify /data/store --json | jq -r 'select(.level == "damage") | .kind' | sort | uniq -c
        gantrymq store verify /data/store -c broker.conf
    """
    reading = read_options(config, set_)
    took: dict[str, float] = {}
    with _opened(store, reading, engine, spark_conf, shown=not (json and sys.stdout.isatty())) as found:
        wanted = _outlook(store, reading) if outlook else None
        if json:
            _print_json(store, found, took, wanted)
        else:
            groups = _grouped(found, took)
    if not json:
        _print_text(store, found, groups, took["tookMs"], wanted)
    if found.summary.findings:
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


def _outlook(path: Path, reading: Reading) -> Callable[[], Outlook]:
    def look() -> Outlook:
        from gantrymq.cli.terminal import progress
        from gantrymq.tools.outlook import look_ahead

        with progress() as report:
            return look_ahead(path, reading.config, given=reading.given, progress=report)

    return look


def _print_json(path: Path, found: Verification, took: dict[str, float], wanted: Callable[[], Outlook] | None) -> None:
    """Print each finding as it is found; none is kept in memory."""
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
                "outlook": wanted().as_json() if wanted is not None and summary.findings else None,
            }
        )


def _print_text(
    path: Path, found: Verification, groups: _Groups, took_ms: float, wanted: Callable[[], Outlook] | None
) -> None:
    from gantrymq.cli.terminal import count_text, print_pairs, span_text
    from gantrymq.model.size import size_text

    groups.print()
    summary = found.summary
    rate = f", {size_text(summary.record_bytes * 1000 / took_ms)}/s" if summary.record_bytes > _WORTH_A_RATE else ""
    lost = summary.unreadable_messages
    pairs = [
        ("state", "closed" if summary.last_exit_ok else "not closed: a recovery comes first when it is opened"),
        ("log", f"{count_text(summary.records, 'record')}, {size_text(summary.record_bytes)}"),
        ("queues", f"{count_text(summary.queue_entries, 'entry')} in {count_text(summary.queues, 'queue')}"),
        ("index", f"{count_text(summary.index_entries, 'entry')} in {count_text(summary.index_files, 'file')}"),
        *([("lost", f"{count_text(lost, 'message')} of queues are in damaged parts of the log")] if lost else []),
        *((kind, str(count)) for kind, count in sorted(summary.kinds.items())),
        ("took", f"{span_text(took_ms)}{rate}"),
    ]
    if summary.findings:
        pairs += next_steps(path, groups.damaged, wanted() if wanted is not None else None)
    verdict = count_text(summary.findings, "finding") if summary.findings else "nothing is damaged"
    notes = f", {count_text(summary.notes, 'note')}" if summary.notes else ""
    print_pairs(f"{path}: {verdict}{notes}", pairs)


_GROUPS = 200
_SHOWN = 3  # findings of a group
_WORTH_A_RATE = 64 << 20  # below, loading the kernels dominates


class _Groups:
    """Findings grouped by level, kind and file: their counts, and the first ones of each group."""

    def __init__(self) -> None:
        self._groups: dict[tuple[Level, Kind, Path], tuple[list[Finding], int]] = {}
        self._more = 0
        self.damaged: set[tuple[Kind, Path]] = set()

    def add(self, finding: Finding) -> None:
        """Add a finding. Only the first ones of a group are kept."""
        key = finding.level, finding.kind, finding.path
        if finding.level.value == "damage":
            self.damaged.add((finding.kind, finding.path))
        if key not in self._groups and len(self._groups) == _GROUPS:
            self._more += 1
            return
        kept, count = self._groups.get(key, ([], 0))
        self._groups[key] = [*kept, finding][:_SHOWN], count + 1

    def print(self) -> None:
        """Print a line for each group, and for its first findings if there are several."""
        from gantrymq.cli.terminal import count_text, print_line

        for (level, kind, path), (kept, count) in self._groups.items():
            if count > len(kept):
                print_line(
                    f"{level.value:6}  {kind.value:24}  {path}: {count_text(count, 'finding')}, the first of them:"
                )
            for finding in kept:
                print_line(_line(finding))
        if self._more:
            print(f"… and {count_text(self._more, 'finding')} more in other files (--json prints all)")


def _grouped(found: Verification, took: dict[str, float]) -> _Groups:
    """Iterate over all findings and group them."""
    groups = _Groups()
    with _timed(took):
        for finding in found:
            groups.add(finding)
    return groups


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
