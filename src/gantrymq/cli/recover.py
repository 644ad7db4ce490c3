"""``gantrymq store recover``: runs or plans a recovery of a store, and prints the report."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.opened import read_options, read_writing_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store
from gantrymq.cli.terminal import DONE, FINDINGS, warn

if TYPE_CHECKING:
    from gantrymq.config.reading import Reading
    from gantrymq.errors import StoreError
    from gantrymq.store.recovery.recovery import RecoveryReport
    from gantrymq.tools.audit.log_claims import LogClaims
    from gantrymq.tools.reports import LossAccount

    _Outcome = tuple[RecoveryReport, dict[str, float], list[StoreError], list[StoreError]]

_OPEN, _INDEX, _CLOSE = "open", "planIndex", "close"
_SHOWN = 50
_WORTH_A_RATE = 64 << 20  # below, loading the kernels dominates
_RECOVERY_STEPS = ("recoverConsumeQueue", "recoverCommitLog", "truncateDirtyFiles", "recoverTopicQueueTable")


def recover(
    store: Store,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and write nothing.")] = False,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Recover a store as the start of a broker would, and close it cleanly.

    The first damaged record ends the log: it and everything after it are
    cut, in the log and in the queues. Entries that queues and index lack are
    added. A store that was closed is checked in the same way.

    Examples of use:

        gantrymq store recover /data/store --dry-run
        gantrymq store recover /data/store
        gantrymq store recover /data/store --set commitLogRecoverMaxNum=10
    """
    raise typer.Exit(recover_store(store, config, set_, dry_run=dry_run, json=json))


def recover_store(
    store: Path, config: Path | None = None, set_: list[str] | None = None, *, dry_run: bool = False, json: bool = False
) -> int:
    """Recover the store, print the report, and return the exit code. Raises GantrymqError, OSError."""
    from gantrymq.store.index.index_file import REBUILD_INDEX
    from gantrymq.store.paths import StorePaths
    from gantrymq.tools.audit.log_claims import recovery_account

    reading = (read_options if dry_run else read_writing_options)(config, set_)
    claims = _claims(store, reading)
    report, steps_ms, missing, notes = (_plan if dry_run else _recover)(store, reading)
    account = recovery_account(StorePaths.of(store, reading.config), report, claims)
    if json:
        from gantrymq.cli.json_lines import JsonLines

        with JsonLines() as out:
            out.write(_fields(store, report, steps_ms, account, dry_run=dry_run))
    else:
        _print(store, report, steps_ms, account, dry_run=dry_run)
    for problem in [*missing[:1], *notes]:
        warn(str(problem))
    if report.index_behind is not None:
        warn(f"{report.index_behind}: the index lacks messages; {REBUILD_INDEX}")
    return FINDINGS if missing or report.index_behind is not None else DONE


def _claims(path: Path, reading: Reading) -> LogClaims:
    """The evidence of how far the log reached, read before a recovery changes it."""
    from gantrymq.errors import StoreError
    from gantrymq.fs.real import RealFileSystem
    from gantrymq.store.paths import StorePaths
    from gantrymq.tools.audit.log_claims import log_claims
    from gantrymq.tools.read.index_files import store_sizes

    fs, paths, config = RealFileSystem(), StorePaths.of(path, reading.config), reading.config
    with suppress(StoreError):  # without their sizes, index files have no evidence
        config = store_sizes(fs, paths, config, reading.given, index=True)
    return log_claims(fs, paths, config)


def _plan(path: Path, reading: Reading) -> _Outcome:
    """Plan a recovery. Returns the report, the time of each step in ms, the missing parts of the log, and notes."""
    from gantrymq.cli.opened import open_reader
    from gantrymq.clock import SystemClock

    clock = SystemClock()
    began_s = clock.monotonic_s()
    with closing(open_reader(path, reading, skips_lost=False)) as reader:
        opened_s = clock.monotonic_s()
        report = reader.plan()
    index_ms, open_ms = (clock.monotonic_s() - opened_s) * 1000, (opened_s - began_s) * 1000
    return report, _steps(report, open_ms, {_INDEX: index_ms}), reader.problems, reader.notes


def _recover(path: Path, reading: Reading) -> _Outcome:
    """Run a recovery. Returns the report, the time of each step in ms, the missing parts of the log, and notes."""
    from gantrymq.cli.terminal import progress
    from gantrymq.clock import SystemClock
    from gantrymq.store.contents import accepted_notes
    from gantrymq.store.message_store import MessageStore

    clock = SystemClock()
    began_s = clock.monotonic_s()
    with progress() as bar:
        store = MessageStore.open(
            path,
            replace(reading.config, broker_ip1="127.0.0.1"),  # no message is put, so no name has to resolve here
            given=reading.given,
            create=False,
            progress=bar,
            housekeeping=False,
            accepts_missing_end=True,
        )
    opened_s = clock.monotonic_s()
    store.close()
    close_ms, open_ms = (clock.monotonic_s() - opened_s) * 1000, (opened_s - began_s) * 1000
    notes = [*store.notes, *accepted_notes(path, store.accepted_contents)]
    return store.recovery, _steps(store.recovery, open_ms, {_CLOSE: close_ms}), store.accepted, notes


def _steps(report: RecoveryReport, open_ms: float, last: dict[str, float]) -> dict[str, float]:
    """The time of every step in ms, in order; ``open`` is the time of opening without the recovery's own steps."""
    within = {name: report.steps_ms[name] for name in _RECOVERY_STEPS if name in report.steps_ms}
    steps = {_OPEN: max(open_ms - sum(within.values()), 0.0), **within, **last}
    return {name: round(took_ms, 3) for name, took_ms in steps.items()}


def _fields(
    path: Path, report: RecoveryReport, steps_ms: dict[str, float], account: LossAccount, *, dry_run: bool
) -> dict[str, object]:
    return {
        "store": str(path),
        "dryRun": dry_run,
        "lastExitOk": report.last_exit_ok,
        "rule": report.rule,
        "startOffset": report.start_offset,
        "queuesMaxPhyOffset": report.queues_max_phy_offset,
        "minPhyOffset": report.min_phy_offset,
        "maxPhyOffset": report.max_phy_offset,
        "stopReason": report.stop_reason,
        "cutBytes": report.cut_bytes,
        "removedFiles": _names(path, report.removed_files),
        "queueUnitsCut": report.queue_units_cut,
        "queueUnitsAdded": report.queue_units_added,
        "queuesDestroyed": report.queues_destroyed,
        "indexFilesDropped": _names(path, report.index_files_dropped),
        "indexEntriesAdded": report.index_entries_added,
        "scannedBytes": report.scanned_bytes,
        "problems": [
            {"path": str(problem.path), "text": problem.reason}
            for problem in (report.index_behind,)
            if problem is not None
        ],
        **account.as_json(path),
        "stepsMs": steps_ms,
        "totalMs": round(sum(steps_ms.values()), 3),
    }


def _names(root: Path, paths: list[Path]) -> list[str]:
    from gantrymq.store.paths import StorePaths

    return [str(StorePaths(root).name_of(path)) for path in paths]


def _print(
    path: Path, report: RecoveryReport, steps_ms: dict[str, float], account: LossAccount, *, dry_run: bool
) -> None:
    from gantrymq.cli.terminal import print_pairs
    from gantrymq.model.size import size_text
    from gantrymq.model.texts import count_text, span_text

    ended = "was closed" if report.last_exit_ok else "was not closed"
    total_ms = sum(steps_ms.values())
    within_s = report.steps_ms.get("recoverCommitLog", 0.0) / 1000
    rate = f", {size_text(report.scanned_bytes / within_s)}/s" if report.scanned_bytes > _WORTH_A_RATE else ""
    pairs = [
        ("before", f"the store {ended}; rule of {report.rule}"),
        ("read", f"{size_text(report.scanned_bytes)} of the log from offset {report.start_offset}{rate}"),
        ("log", f"offsets {report.min_phy_offset} to {report.max_phy_offset}, where it ended in {_stop(report)}"),
        ("cut", f"{size_text(report.cut_bytes)} of the log, {count_text(report.queue_units_cut, 'queue entry')}"),
        *([("removed", count_text(len(report.removed_files), "file"))] if report.removed_files else []),
        *(("", name) for name in _names(path, report.removed_files)),
        *([("dropped", count_text(report.queues_destroyed, "queue"))] if report.queues_destroyed else []),
        *(("dropped", name) for name in _names(path, report.index_files_dropped)),
        (
            "added",
            f"{count_text(report.queue_units_added, 'queue entry')}, "
            f"{count_text(report.index_entries_added, 'index entry')}",
        ),
        *account.lines(path, _SHOWN),
        ("took", span_text(total_ms)),
        *(("", f"{name} {span_text(took_ms)}") for name, took_ms in steps_ms.items()),
        *([("next", _next_step(path, account))] if dry_run else []),
    ]
    print_pairs(f"{path}: {'what a recovery would do' if dry_run else 'recovered and closed'}", pairs)


def _next_step(path: Path, account: LossAccount) -> str:
    """What follows a dry run: the recovery, or after damage in the log the command that compares it with a salvage."""
    if not account.is_empty:
        return f"gantrymq store verify {path} says what store salvage keeps of what is cut here"
    return f"gantrymq store recover {path} does this, and so does a start of the broker"


def _stop(report: RecoveryReport) -> str:
    return report.stop_reason.there_is
