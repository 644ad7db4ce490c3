"""``gantrymq store verify``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gantrymq.cli.messages import FINDINGS
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store, read_options

if TYPE_CHECKING:
    from gantrymq.cli.progress import Report
    from gantrymq.config.properties import Reading
    from gantrymq.tools.findings import Finding
    from gantrymq.tools.verify import Verification


def verify(store: Store, config: ConfigFile = None, set_: Settings = None, json: AsJson = False) -> None:
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
    damaged = (_print_json if json else _print_text)(store, reading)
    if damaged:
        raise typer.Exit(FINDINGS)


def _open(path: Path, reading: Reading, report: Report | None) -> Verification:
    from gantrymq.tools.verify import verify_store

    return verify_store(path, reading.config, given=reading.given, progress=report)


@contextmanager
def _timed(fields: dict[str, float]) -> Iterator[None]:
    from gantrymq.clock import SystemClock

    clock = SystemClock()
    began_s = clock.monotonic_s()
    yield
    fields["tookMs"] = round((clock.monotonic_s() - began_s) * 1000, 3)


def _print_json(path: Path, reading: Reading) -> int:
    """Returns how much is damaged."""
    from gantrymq.cli.json_lines import JsonLines
    from gantrymq.cli.progress import progress

    took: dict[str, float] = {}
    with JsonLines() as out, progress(shown=not sys.stdout.isatty()) as report:
        found = _open(path, reading, report)
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
    return summary.findings


def _print_text(path: Path, reading: Reading) -> int:
    """Returns how much is damaged."""
    from gantrymq.cli.progress import progress
    from gantrymq.cli.text import count_text, print_pairs, size_text, span_text

    took: dict[str, float] = {}
    with progress(shown=not sys.stdout.isatty() or sys.stderr.isatty()) as report:
        found = _open(path, reading, report)
        with _timed(took):
            findings = _kept(found)
    for finding in findings:
        print(_line(finding))
    summary = found.summary
    more = summary.findings + summary.notes - len(findings)
    if more:
        print(f"… and {count_text(more, 'finding')} more (--json prints all)")
    took_ms = took["tookMs"]
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
    return summary.findings


_SHOWN = 200
_WORTH_A_RATE = 64 << 20  # below, the time goes into loading the kernels


def _kept(found: Verification) -> list[Finding]:
    """The first findings; all are gone through."""
    kept: list[Finding] = []
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
