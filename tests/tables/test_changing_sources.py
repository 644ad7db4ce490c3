"""What a source goes through between two landings: growth, retention, recreated topics, crashes, cut logs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import pytest

from gantrymq.clock import ManualClock
from gantrymq.errors import ConfigError
from gantrymq.fs.api import Entry
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.message_store import MessageStore
from gantrymq.tables.landing import Landing, tables_of
from gantrymq.tables.local.engine import LocalEngine
from gantrymq.tables.local.target import TableFormat, TableTarget
from gantrymq.tables.options import LandOptions
from gantrymq.tables.sources import TableSources
from golden_stores import unpack
from store_cases import NOON_MS, await_dispatch, numbered, open_store
from tables.landing_cases import ALL, Lake, MessageName, land, landing_of

ORDERS = LandOptions(topics=("orders",))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", TableFormat.PARQUET)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "broker-a" / "store"


def put(path: Path, messages: Iterable[Message], clock_ms: int = NOON_MS) -> None:
    path.mkdir(parents=True, exist_ok=True)
    with open_store(RealFileSystem(), path, clock=ManualClock(clock_ms)) as store:
        for message in messages:
            assert store.put(message).status is PutMessageStatus.PUT_OK
        await_dispatch(store)


def of_orders(offsets: Iterable[int], generation: int = 0) -> list[MessageName]:
    return [("orders", 0, offset, generation) for offset in offsets]


def test_next_landing_lands_only_new_messages(lake: Lake, path: Path) -> None:
    put(path, numbered(50))
    land(lake, path, ORDERS)
    put(path, numbered(30))
    commits, summary = land(lake, path, ORDERS, commit_rows=12)
    assert [commit.totals.rows for commit in commits] == [12, 12, 6]
    assert [commit.lag.messages for commit in commits] == [18, 6, 0]
    assert summary.is_clean
    assert lake.messages() == of_orders(range(80))


def test_running_store_lands_existing_messages(lake: Lake, path: Path) -> None:
    path.mkdir(parents=True)
    with open_store(RealFileSystem(), path) as store:
        landing = landing_of(lake, path, ORDERS)
        for number in range(5):
            for message in numbered(20):
                store.put(message)
            await_dispatch(store)
            (commit,) = landing.run_pass()
            assert commit.state.positions() == {"broker-a": {"orders": {"0": 20 * (number + 1)}}}
        assert list(landing.run_pass()) == []
    assert lake.messages() == of_orders(range(100))


def test_retention_before_first_landing_is_no_finding(lake: Lake, path: Path) -> None:
    put(path, numbered(400))
    remove_first_log_file(path)
    _, summary = land(lake, path, ORDERS)
    assert summary.is_clean
    first = lake.messages()[0][2]
    assert first > 0
    assert lake.messages() == of_orders(range(first, 400))
    assert not lake.rows("__audit")


def test_retention_between_two_landings_is_one_finding(lake: Lake, path: Path) -> None:
    put(path, numbered(20))
    land(lake, path, ORDERS)
    put(path, numbered(400))
    remove_first_log_file(path)
    _, summary = land(lake, path, ORDERS)
    first = next(offset for _, _, offset, _ in lake.messages() if offset >= 20)
    assert first > 20
    assert lake.messages() == of_orders([*range(20), *range(first, 420)])
    assert lake.audited() == [("orders", 0, offset) for offset in range(20, first)]
    assert {row["reason"] for row in lake.rows("__audit")} == {"deleted by retention before it was landed"}
    assert summary.totals.missing == first - 20
    assert not summary.is_clean
    assert land(lake, path, ORDERS)[1].is_clean
    assert len(lake.rows("__audit")) == 1


def test_retention_of_queue_without_new_messages_is_finding(lake: Lake, path: Path) -> None:
    put(path, numbered(20))
    land(lake, path, LandOptions(pattern=".*"))
    put(path, numbered(10))
    put(path, numbered(400, topic="others"))
    remove_first_log_file(path)
    _, summary = land(lake, path)
    assert lake.audited() == [("orders", 0, offset) for offset in range(20, 30)]
    assert summary.totals.missing == 10
    assert land(lake, path)[1].is_clean


def remove_first_log_file(path: Path) -> None:
    """What retention does to the log."""
    min((path / "commitlog").iterdir()).unlink()


@pytest.mark.parametrize("count", [1, 40])
def test_recreated_topic_begins_generation(lake: Lake, path: Path, count: int) -> None:
    put(path, numbered(30))
    land(lake, path, ORDERS)
    with open_store(RealFileSystem(), path) as store:
        store.delete_topic("orders")
    put(path, numbered(count, first=100))
    commits, summary = land(lake, path, ORDERS)
    assert lake.messages() == sorted(of_orders(range(30)) + of_orders(range(count), 1))
    assert summary.totals.missing == 0
    assert summary.is_clean
    assert commits[-1].state.positions() == {"broker-a": {"orders": {"0": count}}}
    (restart,) = lake.rows("__audit")
    assert (restart["topic"], restart["from_offset"]) == ("orders", 0)
    assert "generation 1 begins" in restart["reason"]
    put(path, numbered(5))
    land(lake, path, ORDERS)
    assert lake.messages() == sorted(of_orders(range(30)) + of_orders(range(count + 5), 1))
    assert len(lake.rows("__audit")) == 1


def test_messages_of_topic_deleted_before_landing_are_named(lake: Lake, path: Path) -> None:
    put(path, numbered(30))
    land(lake, path, ORDERS)
    put(path, numbered(8))
    with open_store(RealFileSystem(), path) as store:
        store.delete_topic("orders")
    put(path, numbered(3, first=100))
    _, summary = land(lake, path, ORDERS)
    assert lake.messages() == sorted(of_orders(range(30)) + of_orders(range(3), 1))
    assert lake.audited() == [("orders", 0, offset) for offset in range(30, 38)]
    assert summary.totals.missing == 8
    assert land(lake, path, ORDERS)[1].is_clean


def test_store_replaced_by_other_store_begins_generations(lake: Lake, path: Path) -> None:
    put(path, numbered(30))
    land(lake, path, ORDERS)
    shutil.rmtree(path)
    put(path, numbered(45, first=500), clock_ms=NOON_MS + 60_000)
    land(lake, path, ORDERS)
    assert lake.messages() == sorted(of_orders(range(30)) + of_orders(range(45), 1))
    assert land(lake, path, ORDERS)[1].commits == 0


def test_log_cut_and_rewritten_begins_generation_of_new_messages(lake: Lake, path: Path) -> None:
    put(path, numbered(30))
    shutil.copytree(path, path.with_name("earlier"))
    put(path, numbered(10), clock_ms=NOON_MS + 1000)
    put(path, numbered(5, topic="others"), clock_ms=NOON_MS + 1000)
    land(lake, path)
    shutil.rmtree(path)
    path.with_name("earlier").rename(path)
    put(path, numbered(4, first=700), clock_ms=NOON_MS + 60_000)
    _, summary = land(lake, path)
    assert lake.messages() == sorted(
        [*of_orders(range(40)), *of_orders(range(30, 34), 1), *(("others", 0, offset, 0) for offset in range(5))]
    )
    assert summary.totals.missing == 0
    assert land(lake, path)[1].commits == 0


def test_message_cut_off_by_crash_is_named_and_its_offset_lands_again(lake: Lake, tmp_path: Path) -> None:
    folder = unpack("torn-tail", tmp_path)
    _, summary = land(lake, folder / "store")
    assert summary.totals.missing == len(lake.audited()) > 0
    (topic, queue, offset), *_ = lake.audited()
    assert land(lake, folder / "store")[1].commits == 0
    with MessageStore.open(folder / "store", housekeeping=False) as store:
        for number in range(3):
            assert store.put(Message(topic, b"after %d" % number, queue)).status is PutMessageStatus.PUT_OK
        await_dispatch(store)
    _, summary = land(lake, folder / "store")
    assert summary.is_clean
    assert [message for message in lake.messages() if message[:2] == (topic, queue)][-3:] == [
        (topic, queue, offset + number, 0) for number in range(3)
    ]


def test_further_topic_lands_from_begin_of_log(lake: Lake, path: Path) -> None:
    put(path, [*numbered(20), *numbered(20, topic="others")])
    land(lake, path, ORDERS)
    put(path, [*numbered(5), *numbered(5, topic="others")])
    land(lake, path, LandOptions(topics=("orders", "others")))
    assert lake.messages() == sorted([*of_orders(range(25)), *(("others", 0, offset, 0) for offset in range(25))])
    assert land(lake, path, ALL)[1].commits == 0


def test_stores_of_several_brokers_land_in_one_table(lake: Lake, tmp_path: Path) -> None:
    paths = [tmp_path / name / "store" for name in ("broker-a", "broker-b")]
    for number, path in enumerate(paths):
        put(path, numbered(15 + number))
    commits, _ = land(lake, [tmp_path / "broker-*" / "store"], ORDERS, commit_rows=10)
    assert [commit.totals.rows for commit in commits] == [10, 5, 10, 6]
    assert commits[-1].state.positions() == {
        "broker-a": {"orders": {"0": 15}},
        "broker-b": {"orders": {"0": 16}},
    }
    assert sorted(row["broker"] for row in lake.rows()) == ["broker-a"] * 15 + ["broker-b"] * 16


def test_log_landed_under_other_broker_name_is_refused(lake: Lake, path: Path) -> None:
    """Its messages would be rows of two brokers."""
    put(path, numbered(5))
    land(lake, path, ORDERS)
    moved = path.parents[1] / "broker-b" / "store"
    path.parent.rename(moved.parent)
    with pytest.raises(ConfigError, match=r"brokerName=broker-a into a broker\.conf"):
        land(lake, moved, ORDERS)
    (moved.parent / "broker.conf").write_text("brokerName=broker-a\n")
    put(moved, numbered(2))
    assert land(lake, moved, ORDERS)[1].totals.rows == 2


def test_store_of_other_broker_lands_beside_missing_store(lake: Lake, path: Path) -> None:
    put(path, numbered(5))
    land(lake, path, ORDERS)
    other = path.parents[1] / "broker-b" / "store"
    put(other, numbered(5), NOON_MS + 1)
    assert land(lake, other, ORDERS)[1].totals.rows == 5
    assert land(lake, [path, other], ORDERS)[1].commits == 0


@pytest.mark.parametrize("is_running", [False, True])
def test_pass_over_many_tables_walks_queues_as_often_as_one_over_few(
    tmp_path: Path, path: Path, is_running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned: list[Path] = []
    scan = RealFileSystem.scan

    def counting(self: RealFileSystem, directory: Path) -> list[Entry]:
        scanned.append(directory)
        return scan(self, directory)

    monkeypatch.setattr(RealFileSystem, "scan", counting)
    sources, walks, rows = TableSources([str(path)]), [], []
    landings: dict[str, Landing] = {}
    for topics in (2, 12, 12):
        put(path, [Message(f"topic-{number}", b"body") for number in range(topics)])
        with open_store(RealFileSystem(), path) if is_running else nullcontext():
            sources.begin_pass()
            scanned.clear()
            passed = 0
            target = TableTarget(str(tmp_path / "lake" / "{topic}"), TableFormat.PARQUET)
            for meant, options in tables_of(target, ALL, sources.open):
                if meant.table not in landings:
                    landings[meant.table] = Landing(LocalEngine(meant.open()), sources.open, options)
                passed += sum(commit.totals.rows for commit in landings[meant.table].run_pass())
        walks.append(scanned.count(path / "consumequeue"))
        rows.append(passed)
    assert rows == [2, 12, 12]
    assert walks[1] <= walks[0]
    assert walks[2] <= walks[0]


def test_messages_beside_first_pass_over_running_store_are_left_to_next_one(tmp_path: Path, path: Path) -> None:
    sources, lake = TableSources([str(path)]), Lake(tmp_path / "lake", TableFormat.PARQUET)
    put(path, numbered(10))
    with open_store(RealFileSystem(), path) as store:
        early, late = (Landing(LocalEngine(lake.target.open()), sources.open, ORDERS) for _ in range(2))
        assert not list(Landing(LocalEngine(lake.target.open()), sources.open, LandOptions(("none",))).run_pass())
        for message in numbered(15)[10:]:
            store.put(message)
        await_dispatch(store)
        for landing, rows in ((early, 10), (late, 5)):
            assert [(commit.totals.rows, commit.totals.missing) for commit in landing.run_pass()] == [(rows, 0)]
            sources.begin_pass()
