"""The states of a store's files, the cells of the map, the lag of groups, and the chart of due times."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import runbook_stores
from gantrymq.clock import ManualClock, SystemClock
from gantrymq.config.reading import Reading
from gantrymq.console.store import opened
from gantrymq.console.store.files import FileState, Part, StoreFile, StoreFiles, cells_of, list_files, with_damage
from gantrymq.console.store.groups import StoreGroupLag, StoreQueueLag, lags_of
from gantrymq.console.store.opened import OpenStore, StillOpeningError
from gantrymq.console.store.pending import chart_of
from gantrymq.store.queue.group_offsets import GroupTable
from gantrymq.tools.pending.due_times import DueTimes
from gantrymq.tools.pending.waiting import PendingKind, PendingMessage

CONFIG = replace(runbook_stores.CONFIG, mapped_file_size_consume_queue=400)  # 13 files for each of the 4 queues
READING = Reading(CONFIG, runbook_stores.SIZES, ())
NOW_MS = runbook_stores.BEGIN_MS + 3_600_000
HOUR_S = 3_600


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "healthy"
    runbook_stores.make(path, CONFIG)
    return path


@pytest.fixture
def store(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(healthy, tmp_path / "store"))


def listed(path: Path, now_ms: int | None = None) -> StoreFiles:
    clock = SystemClock()
    store = OpenStore(path, READING, clock)
    try:
        while True:
            with suppress(StillOpeningError), store.look() as snapshot:
                return list_files(store, snapshot, now_ms or clock.now_ms())
    finally:
        store.close()


def await_true(is_true: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def open_files(path: Path) -> int:
    """How many files below ``path`` this process has open or mapped."""
    opened = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    mapped = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    return sum(str(path) in name for name in (*opened, *mapped))


def is_seen(view: OpenStore) -> bool:
    try:
        with view.look():
            return True
    except StillOpeningError:
        return False


def test_unused_view_closes_its_files(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "IDLE_S", 0.3)
    monkeypatch.setattr(opened, "_COST_SHARE", 0)  # an opening takes seconds on a machine at its limit
    view = OpenStore(store, READING, SystemClock())
    await_true(lambda: is_seen(view))
    with view.look() as snapshot:
        assert snapshot.first is not None
        await_true(lambda: not view.is_open)
        assert open_files(store)  # this page still uses it
    await_true(lambda: not view.is_open and not open_files(store))
    view.close()


def states(files: StoreFiles, part: Part) -> list[str]:
    return [file.state.value for file in files.parts[part]]


def test_closed_store_is_flushed_up_to_its_live_files(store: Path) -> None:
    files = listed(store)
    assert list(files.notes) == []
    assert states(files, Part.LOG) == ["flushed", "flushed", "live"]
    assert Counter(states(files, Part.QUEUES)) == {"flushed": 48, "live": 4}
    assert states(files, Part.INDEX) == ["flushed", "live"]
    assert {file.state for file in files.parts[Part.OTHERS]} == {FileState.PRESENT}
    last = files.parts[Part.LOG][-1]
    assert last.used_bytes == 166_143 - 131_072


def test_files_beyond_checkpoint_are_shown_as_not_flushed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runbook_stores, "MISSING_FROM", 5)  # of the 20 entries of a file
    runbook_stores.kill(store)
    files = listed(store)
    # The checkpoint is of the message 600 of 1,000: it covers the first file of the log.
    assert states(files, Part.LOG) == ["flushed", "not flushed", "live"]
    assert "not flushed" in states(files, Part.INDEX)


def test_old_files_expire_from_front(store: Path) -> None:
    first, second, _ = sorted((store / "commitlog").iterdir())
    old_s = first.stat().st_mtime - 100 * HOUR_S
    os.utime(first, (old_s, old_s))
    assert states(listed(store), Part.LOG) == ["expiring", "flushed", "live"]
    os.utime(second, (old_s, old_s))
    files = listed(store)
    assert states(files, Part.LOG) == ["expiring", "expiring", "live"]
    # The first two files of the log end after 790 messages, so nine files of each queue lead only into them.
    assert Counter(states(files, Part.QUEUES)) == {"expiring": 36, "flushed": 12, "live": 4}
    os.utime(first)
    assert states(listed(store), Part.LOG) == ["flushed", "flushed", "live"]


def test_missing_wrong_and_foreign_files_are_named(store: Path) -> None:
    runbook_stores.remove_middle_file(store)
    runbook_stores.cut_queue(store)
    runbook_stores.add_foreign_files(store)
    files = listed(store)
    damaged = {
        str(file.name): file.text for some in files.parts.values() for file in some if file.state is FileState.DAMAGED
    }
    assert set(damaged) == {"commitlog/00000000000000065536", "consumequeue/orders/1/00000000000000000000"}
    assert all(damaged.values())
    foreign = {str(file.name) for some in files.parts.values() for file in some if file.state is FileState.FOREIGN}
    assert foreign == {"commitlog/00000000000000000000.bak", "README.txt"}


def test_verify_findings_are_drawn_in_map(store: Path) -> None:
    files = listed(store)
    seen = with_damage(files, {"commitlog/00000000000000065536": "record-crc", "commitlog/99": "lost"})
    assert states(seen, Part.LOG) == ["flushed", "damaged", "live", "damaged"]
    assert seen.strips[0].counts == {FileState.DAMAGED: 2, FileState.LIVE: 1, FileState.FLUSHED: 1}
    assert with_damage(files, {}) is files


def test_cells_are_limited_and_show_most_urgent_state() -> None:
    files = [
        StoreFile(Part.LOG, Path(f"commitlog/{number}"), 10, 0, FileState.FLUSHED, number, 10)
        for number in range(1_001)
    ]
    files[500] = StoreFile(Part.LOG, Path("commitlog/500"), 10, 0, FileState.DAMAGED, 500, 10)
    cells = cells_of(files, 100)
    assert len(cells) <= 100
    assert sum(cell.count for cell in cells) == 1_001
    assert [str(cell.file.name) for cell in cells if cell.file.state is FileState.DAMAGED] == ["commitlog/500"]
    assert [cell.tenths for cell in cells_of([StoreFile(Part.LOG, Path("a"), 100, 0, FileState.LIVE, 0, 1)], 9)] == [1]
    assert cells_of([], 9) == []


def test_lag_of_group_counts_only_existing_messages() -> None:
    assert StoreQueueLag("orders", 0, 10, 30, 50).behind == 20
    assert "deleted" in StoreQueueLag("orders", 0, 10, 30, 50).remark
    assert StoreQueueLag("orders", 0, 60, 0, 50).behind == 0
    assert "skipped" in StoreQueueLag("orders", 0, 60, 0, 50).remark
    assert StoreQueueLag("orders", 0, 60, None, None).behind == 0
    lags = lags_of([GroupTable("G", "orders", [(0, 5), (0, 7)]), GroupTable("G", "bills", [])], {})
    assert lags == {"G": StoreGroupLag("G", 0, [StoreQueueLag("orders", 0, 5, None, None)])}


def test_chart_has_every_message_once() -> None:
    now_ms = ManualClock(NOW_MS).now_ms()
    due_times = DueTimes(now_ms)
    dues = [now_ms - 5, now_ms, *(now_ms + number * 7_919 for number in range(1, 3_000)), now_ms + 90 * 86_400_000]
    messages = (PendingMessage(PendingKind.TIMER, "orders", 0, due, None, "t", 0) for due in dues)
    assert len(list(due_times.counted(messages))) == len(dues)
    chart = chart_of(due_times)
    assert 1 < len(chart.bars) <= 60
    assert sum(bar.count for bar in chart.bars) == 2_999
    assert (chart.later, due_times.overdue) == (1, {PendingKind.TIMER: 2})
    for bar in chart.bars:
        counted = [due for due in dues if bar.begin_ms <= due < bar.end_ms and due > now_ms]
        assert abs(len(counted) - bar.count) <= 1  # the widths were doubled from a second
    assert chart_of(DueTimes(now_ms)).bars == []
