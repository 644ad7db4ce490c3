"""Stores with timer messages after a rebuild, a salvage, and without their timer files: nothing is lost or early."""

from pathlib import Path

import pytest

from gantrymq.fs.real import RealFileSystem
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store
from store_cases import GEOMETRY_KEYS, NOON_MS
from timer_cases import SECOND_MS, TIMED, TimerCase


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


def test_verify_knows_the_files_of_timers(tmp_path: Path) -> None:
    waiting(tmp_path / "store")
    (tmp_path / "store" / "timerwheel.104").write_bytes(b"")
    assert list(verify_store(tmp_path / "store", TIMED, given=GEOMETRY_KEYS, now_ms=NOON_MS)) == []


def test_a_rebuilt_store_delivers_what_waited(tmp_path: Path) -> None:
    case = waiting(tmp_path / "store")
    rebuild_store(case.path, TIMED, given=GEOMETRY_KEYS)
    check_delivered(case)


def test_a_salvaged_store_delivers_what_waited(tmp_path: Path) -> None:
    case = waiting(tmp_path / "store")
    case.path = tmp_path / "out"
    salvage_store(tmp_path / "store", case.path, TIMED, given=GEOMETRY_KEYS)
    assert not (case.path / "timerlog").exists()
    check_delivered(case)


@pytest.mark.parametrize("keeps_checkpoint", [True, False])
def test_a_store_without_its_timer_files_reads_the_timer_topic_again(tmp_path: Path, keeps_checkpoint: bool) -> None:
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
