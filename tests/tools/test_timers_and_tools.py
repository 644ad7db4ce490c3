"""Stores with timer messages after a rebuild, a salvage, and without their timer files: nothing is lost or early."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from gantrymq.format.timer import SLOT_SIZE, decode_timer_checkpoint, encode_timer_checkpoint
from gantrymq.fs.real import RealFileSystem
from gantrymq.tools.check import timer_check
from gantrymq.tools.findings import Finding, FindingKind, Severity
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store
from store_cases import GEOMETRY_KEYS, NOON_MS
from timer_cases import FEW_SLOTS, SECOND_MS, TIMED, TimerCase


def waiting(path: Path) -> TimerCase:
    """A closed store whose first ten timer messages of twenty are delivered."""
    case = TimerCase(RealFileSystem(), path=path)
    for number in range(20):
        case.send(b"%02d" % number, deliver_ms=NOON_MS + (number + 1) * SECOND_MS)
    case.wait(10 * SECOND_MS)
    assert len(case.bodies()) == 10
    case.close()
    return case


def check_delivered(case: TimerCase) -> None:
    """Those that waited come when they are due; those that were delivered do not come again."""
    case.open()
    case.step()
    assert len(case.bodies()) == 10
    case.wait(11 * SECOND_MS)
    assert case.bodies() == [b"%02d" % number for number in range(20)]
    case.close()


def findings(path: Path) -> list[Finding]:
    with mock.patch.object(timer_check, "SLOTS", FEW_SLOTS):
        return list(verify_store(path, TIMED, given=GEOMETRY_KEYS, now_ms=NOON_MS))


def test_verify_accepts_timer_files(tmp_path: Path) -> None:
    waiting(tmp_path / "store")
    assert findings(tmp_path / "store") == []
    (tmp_path / "store" / "timerwheel.104").write_bytes(b"")
    assert findings(tmp_path / "store") == []


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def last_file(store: Path) -> Path:
    return sorted((store / "timerlog").iterdir())[-1]


DAMAGE: dict[str, tuple[Callable[[Path], object], FindingKind]] = {
    "no wheel": (lambda store: (store / "timerwheel").unlink(), FindingKind.TIMER_WHEEL),
    "a zeroed wheel": (lambda store: zero(store / "timerwheel"), FindingKind.TIMER_WHEEL),
    "a truncated wheel": (lambda store: cut(store / "timerwheel", 1000), FindingKind.TIMER_WHEEL),
    "another wheel size": (lambda store: cut(store / "timerwheel", 4 * FEW_SLOTS * SLOT_SIZE), FindingKind.TIMER_WHEEL),
    "no timer log": (lambda store: shutil.rmtree(store / "timerlog"), FindingKind.TIMER_LOG),
    "a zeroed timer log": (
        lambda store: [zero(file) for file in (store / "timerlog").iterdir()],
        FindingKind.TIMER_LOG,
    ),
    "a torn timer log": (lambda store: cut(last_file(store), 70), FindingKind.TIMER_LOG),
    "a short checkpoint": (lambda store: cut(store / "config" / "timercheck", 56), FindingKind.TIMER_CHECKPOINT),
}
FORGOTTEN: dict[str, Callable[[Path], object]] = {  # what was delivered comes again
    "no checkpoint": lambda store: (store / "config" / "timercheck").unlink(),
    "a blank checkpoint": lambda store: zero(store / "config" / "timercheck"),
    "a negative time": lambda store: (store / "config" / "timercheck").write_bytes(b"\xff" * 4096),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_verify_names_damaged_timer_files_and_start_repairs_them(tmp_path: Path, damage: str) -> None:
    case = waiting(tmp_path / "store")
    harm, kind = DAMAGE[damage]
    harm(case.path)
    [found] = findings(case.path)
    assert (found.kind, found.level) == (kind, Severity.NOTE if kind is FindingKind.TIMER_WHEEL else Severity.DAMAGE)
    assert "next start" in found.text
    check_delivered(case)
    assert findings(case.path) == []


@pytest.mark.parametrize("damage", FORGOTTEN)
def test_verify_reports_timer_messages_delivered_again(tmp_path: Path, damage: str) -> None:
    case = waiting(tmp_path / "store")
    FORGOTTEN[damage](case.path)
    [found] = [one for one in findings(case.path) if one.kind is FindingKind.TIMER_CHECKPOINT]
    assert (found.level, "again" in found.text) == (Severity.DAMAGE if "negative" in damage else Severity.NOTE, True)
    case.open()
    case.wait(11 * SECOND_MS)
    assert sorted(set(case.bodies())) == [b"%02d" % number for number in range(20)]
    case.close()
    assert findings(case.path) == []


def test_verify_names_checkpoint_after_end_of_timer_topic(tmp_path: Path) -> None:
    case = waiting(tmp_path / "store")
    path = case.path / "config" / "timercheck"
    page = decode_timer_checkpoint(path.read_bytes())
    path.write_bytes(encode_timer_checkpoint(replace(page, timer_queue_offset=1 << 60)).ljust(4096, b"\0"))
    [found] = findings(case.path)
    assert (found.kind, "ends at 20" in found.text) == (FindingKind.TIMER_CHECKPOINT, True)
    check_delivered(case)
    assert findings(case.path) == []


def test_rebuilt_store_delivers_pending_timer_messages(tmp_path: Path) -> None:
    case = waiting(tmp_path / "store")
    rebuild_store(case.path, TIMED, given=GEOMETRY_KEYS)
    check_delivered(case)


def test_salvaged_store_delivers_pending_timer_messages(tmp_path: Path) -> None:
    case = waiting(tmp_path / "store")
    case.path = tmp_path / "out"
    salvage_store(tmp_path / "store", case.path, TIMED, given=GEOMETRY_KEYS)
    assert not (case.path / "timerlog").exists()
    check_delivered(case)


@pytest.mark.parametrize("keeps_checkpoint", [True, False])
def test_store_without_its_timer_files_reads_timer_topic_again(tmp_path: Path, keeps_checkpoint: bool) -> None:
    case = waiting(tmp_path / "store")
    (case.path / "timerwheel").unlink()
    for file in (case.path / "timerlog").iterdir():
        file.unlink()
    if keeps_checkpoint:
        check_delivered(case)
        return
    (case.path / "config" / "timercheck").unlink()
    case.open()
    case.wait(11 * SECOND_MS)
    first = [b"%02d" % number for number in range(10)]
    assert case.bodies() == [*first, *first, *(b"%02d" % number for number in range(10, 20))]
    case.close()
