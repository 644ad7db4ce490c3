"""Rows into a store, exactly once: killed after each step, repeated, refused, aborted."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from sink_cases import (
    STEPS,
    batch,
    commit_until_killed,
    expected,
    leftovers,
    schema_of,
    sink,
    staged,
    store_of_ten,
    stored,
    writer,
)

from gantrymq import MessageStore, StoreReader
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.errors import ConfigError, DiskFullError, GantrymqError, NotAStoreError, StoreError, StoreLockedError
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.write import store_sink
from gantrymq.spark.write.cluster import OutgoingMessages
from gantrymq.spark.write.ledger import Ledger, Pending
from gantrymq.spark.write.store import Staged
from store_cases import numbered, open_store

ALL_COLUMNS = (
    "topic string, body binary, tags string, keys array<string>, properties map<string,string>, queue_id int, "
    "sharding_key string, delay_level int"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with small files and ten messages."""
    return store_of_ten(tmp_path / "s")


def test_repeated_batch_is_stored_once(path: Path) -> None:
    assert sink(path).commit("q", 0, staged(path, batch(50), batch(25, 50)))
    assert stored(path) == expected(75)
    again = staged(path, batch(75))
    assert not sink(path).commit("q", 0, again)
    assert stored(path) == expected(75)
    assert sink(path).commit("q", 1, staged(path, batch(5, 75)))
    assert sink(path).commit("another", 0, staged(path, batch(5, 80), app="another"))
    assert stored(path) == expected(85)
    assert leftovers(path) == ["spark/ledger", "spark/staging"]


@pytest.mark.parametrize("kill_at", range(STEPS))
@pytest.mark.parametrize("others_first", [False, True])
def test_write_killed_at_any_step_stores_rows_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: int, others_first: bool
) -> None:
    """Three puts a batch; after the kill somebody else may write before the batch is repeated, in another order."""
    monkeypatch.setattr(store_sink, "_PUT_ROWS", 10)
    sink(path).commit("q", 0, staged(path, batch(5)))
    files = staged(path, batch(20, 5), batch(10, 25))
    assert commit_until_killed(path, files, kill_at)
    if others_first:
        with MessageStore.open(path, housekeeping=False) as store:
            store.put_batch(numbered(7, topic="others") + numbered(3, first=15))
    sink(path).commit("q", 1, staged(path, batch(10, 25), batch(20, 5)))
    sink(path).commit("q", 2, staged(path, batch(5, 35)))
    others = Counter(expected(3, 15)) if others_first else Counter()
    assert Counter(stored(path)) == Counter(expected(40)) + others
    assert len(stored(path, "before")) == 10
    assert leftovers(path) == ["spark/ledger", "spark/staging"]


def test_number_of_killed_steps_is_complete(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_sink, "_PUT_ROWS", 10)
    assert not commit_until_killed(path, staged(path, batch(20), batch(10, 20)), STEPS)
    assert stored(path) == expected(30)


def test_another_query_finishes_what_was_begun(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_sink, "_PUT_ROWS", 10)
    files = staged(path, batch(30))
    assert commit_until_killed(path, files, 3, batch=0)
    sink(path).commit("other", 0, staged(path, batch(5, 30), app="other"))
    assert stored(path) == expected(35)
    assert not sink(path).commit("q", 0, staged(path, batch(30)))
    assert stored(path) == expected(35)


def test_begun_commit_is_finished_with_settings_of_its_writer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_sink, "_PUT_ROWS", 10)
    files, others = staged(path, batch(30)), staged(path, pa.record_batch({"topic": ["o"], "body": ["1"]}), app="other")
    assert commit_until_killed(path, files, 3, batch=0)
    assert sink(path, maxMessageSize=4).commit("other", 0, others)
    assert stored(path) == expected(30)


def test_commit_begun_by_older_version_is_finished(path: Path) -> None:
    """It did not write its settings down."""
    names = [str(file.relative_to(path)) for file in staged(path, batch(30))]
    with StoreReader.open(path) as reader:
        begin = reader.max_phy_offset
    file = path / "spark" / "pending.json"
    file.write_text(json.dumps({"app": "q", "batch": 0, "begin": begin, "files": names}))
    assert not sink(path).commit("q", 0, staged(path, batch(30)))
    assert stored(path) == expected(30)


def test_slow_commit_is_not_finished_by_other_query(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is closed, and free for others, before the ledger says so."""
    steps: list[str] = []
    real = {name: getattr(Ledger, name) for name in ("begin", "commit", "end")}
    other_files = staged(path, batch(5, 30), app="other")
    other = Thread(target=lambda: sink(path).commit("other", 0, other_files))

    def slow(ledger: Ledger, one: Pending, rows: int) -> None:
        if other.ident is None:
            other.start()
            other.join(0.5)  # as long as it would need
        steps.append(f"commit {one.app}")
        real["commit"](ledger, one, rows)

    monkeypatch.setattr(Ledger, "commit", slow)
    monkeypatch.setattr(
        Ledger, "begin", lambda ledger, one: (steps.append(f"begin {one.app}"), real["begin"](ledger, one))
    )
    monkeypatch.setattr(Ledger, "end", lambda ledger: (steps.append("end"), real["end"](ledger)))
    assert sink(path).commit("q", 0, staged(path, batch(30)))
    other.join()
    assert steps == ["begin q", "commit q", "end", "begin other", "commit other", "end"]
    assert stored(path) == expected(35)


def test_begun_commit_survives_abort(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_sink, "_PUT_ROWS", 10)
    files, unused = staged(path, batch(30)), staged(path, batch(1))
    assert commit_until_killed(path, files, 3, batch=0)
    sink(path).abort([*files, *unused])
    assert files[0].exists()
    assert not unused[0].exists()
    assert not sink(path).commit("q", 0, staged(path, batch(30)))
    assert stored(path) == expected(30)


@pytest.mark.parametrize("kill_at", range(2, STEPS))
def test_older_batch_is_finished_without_files_of_next(
    path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: int
) -> None:
    """The driver of batch 1 dies when the tasks of batch 2, by the same name, have staged their rows already."""
    monkeypatch.setattr(store_sink, "_PUT_ROWS", 10)
    files, never_heard_of = staged(path, batch(30), version=1), staged(path, batch(30), version=1)
    following = staged(path, batch(10, 30), version=2)
    assert commit_until_killed(path, files, kill_at, batch=1)
    assert sink(path).commit("q", 2, following)
    assert stored(path) == expected(40)
    assert not never_heard_of[0].exists()
    assert leftovers(path) == ["spark/ledger", "spark/staging"]


def test_batch_leaves_files_of_later_ones(path: Path) -> None:
    files = {version: staged(path, batch(5, 5 * version), version=version) for version in range(4)}
    for version in (0, 2, 1, 3):
        assert sink(path).commit("q", version, files[version]) is (version != 1)
        assert all(file.exists() for later in range(max(version, 2) + 1, 4) for file in files[later])
    assert stored(path) == [*expected(5), *expected(10, 10)]
    assert leftovers(path) == ["spark/ledger", "spark/staging"]


def test_missing_staged_files_fail_only_their_own_query(path: Path) -> None:
    files = staged(path, batch(5), batch(5, 5))
    files[1].unlink()
    with pytest.raises(StoreError, match="is missing: rows of batch 0 of q cannot be put"):
        sink(path).commit("q", 0, files)
    assert sink(path).commit("other", 0, staged(path, batch(5), app="other"))
    assert stored(path) == expected(5)


def test_begun_commit_with_deleted_files_raises(path: Path) -> None:
    files = staged(path, batch(900))
    sink(path).commit("other", 0, staged(path, batch(900), app="other"))
    for file in sorted((path / "commitlog").iterdir())[:2]:
        file.unlink()
    Ledger(path).begin(Pending("q", 0, 100, tuple(str(file.relative_to(path)) for file in files)))
    with pytest.raises(StoreError, match="batch 0 of q was begun at 100, which retention has deleted"):
        sink(path).commit("q", 0, files)


def test_write_to_open_store_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_sink, "_LOCK_WAIT_S", 0.0)
    files = staged(path, batch(1))
    with (
        open_store(path=path),
        pytest.raises(StoreLockedError, match="give its nameserver instead") as raised,
    ):
        sink(path).commit("q", 0, files)
    assert not hasattr(raised.value, "__notes__")
    assert sink(path).commit("q", 0, files)


def test_damaged_ledger_is_refused(path: Path) -> None:
    sink(path).commit("q", 0, staged(path, batch(1)))
    (path / "spark" / "ledger" / "q.json").write_text("{")
    with pytest.raises(StoreError, match="is no JSON"):
        sink(path).commit("q", 1, staged(path, batch(1)))


def test_write_stores_all_columns(path: Path) -> None:
    rows = [
        {"topic": "a", "body": b"1", "tags": "t", "keys": ["k", "l"], "properties": [("p", "v")], "queue_id": 7,
         "sharding_key": "s", "delay_level": None},
        {"topic": "b", "body": b"2", "tags": None, "keys": None, "properties": None, "queue_id": None,
         "sharding_key": "Aa", "delay_level": 3},
    ]  # fmt: skip
    kinds = {"keys": pa.list_(pa.string()), "properties": pa.map_(pa.string(), pa.string()), "tags": pa.string()}
    names = list(rows[0])
    arrays = [pa.array([row[name] for row in rows], kinds.get(name)) for name in names]
    task = writer(path, ALL_COLUMNS, queueNum=5)
    task.commit([task.write(iter([pa.record_batch(arrays, names)]))])
    with StoreReader.open(path) as reader:
        (one,), (two,) = list(reader.messages("a")), list(reader.messages("SCHEDULE_TOPIC_XXXX"))
    assert (one.body, one.tags, one.keys, one.queue_id) == (b"1", "t", ["k", "l"], 7)
    assert one.properties == {"p": "v", "__SHARDINGKEY": "s", "TAGS": "t", "KEYS": "k l"}
    assert (two.body, two.queue_id, two.properties["REAL_TOPIC"], two.properties["DELAY"]) == (b"2", 2, "b", "3")
    assert two.properties["REAL_QID"] == str(2112 % 5)  # Java's hash of "Aa"


def test_rows_without_queue_take_queues_in_turn(path: Path) -> None:
    task = writer(path, "body string", topic="orders", queueNum=3)
    task.commit([task.write(iter([batch(7).select(["body"])]))])
    with StoreReader.open(path) as reader:
        assert [queue[1:] for queue in reader.queues() if queue[0] == "orders"] == [(0, 0, 3), (1, 0, 2), (2, 0, 2)]


def test_option_topic_wins_over_column(path: Path) -> None:
    """As with Kafka's connector: what was read is written elsewhere as it is."""
    task = writer(path, topic="orders")
    task.commit([task.write(iter([batch(3, topic="others")]))])
    assert stored(path) == expected(3)
    sent = OutgoingMessages("orders", ProducerConfig("127.0.0.1:1"), lambda _: ()).parcels(batch(3, topic="others"))
    assert {parcel.topic for parcel in sent} == {"orders"}


def test_nulls_among_keys_and_values_are_left_out_by_both_sinks(path: Path) -> None:
    columns = {
        "topic": pa.array(["orders"]),
        "body": pa.array(["1"]),
        "keys": pa.array([["k", None, "l"]], pa.list_(pa.string())),
        "properties": pa.array([[("shop", "north"), ("region", None)]], pa.map_(pa.string(), pa.string())),
    }
    rows = pa.RecordBatch.from_pydict(columns)
    task = writer(path, "topic string, body string, keys array<string>, properties map<string,string>")
    task.commit([task.write(iter([rows]))])
    with StoreReader.open(path) as reader:
        (put,) = reader.messages("orders")
    (parcel,) = OutgoingMessages(None, ProducerConfig("127.0.0.1:1"), lambda _: ()).parcels(rows)
    (sent,) = parcel.messages
    assert put.keys == sent.keys == ["k", "l"]
    assert put.properties == {**sent.properties, "KEYS": "k l"} == {"shop": "north", "KEYS": "k l"}


def test_write_to_other_file_system_is_refused() -> None:
    with pytest.raises(ConfigError, match="which the driver and every executor see as local"):
        RocketMQDataSource({"path": "s3://nowhere/a"}).writer(schema_of("topic string, body string"), False)


def test_write_creates_new_store(tmp_path: Path) -> None:
    sizes = {"store.mappedFileSizeCommitLog": 1 << 20, "store.mappedfilesizeconsumequeue": 6000}
    task = writer(tmp_path / "new", **sizes)
    task.commit([task.write(iter([batch(10)]))])
    assert stored(tmp_path / "new") == expected(10)
    assert {file.stat().st_size for file in (tmp_path / "new" / "commitlog").iterdir()} == {1 << 20}


def test_write_to_file_instead_of_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "store"):
        with pytest.raises(NotAStoreError, match=f"{tmp_path}/file: is a file where a directory is needed"):
            writer(path)


@pytest.mark.parametrize("app", ["x" * 250, "ü" * 41, "...", "a/b"])
def test_names_of_writers_as_long_as_names_of_files(path: Path, app: str) -> None:
    assert sink(path).commit(app, 0, staged(path, batch(5), app=app))
    assert not sink(path).commit(app, 0, staged(path, batch(5), app=app))
    assert stored(path) == expected(5)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"topic": ["a", None], "body": ["1", "2"]}, "column topic=None is not allowed: never null; row 1"),
        ({"topic": ["a", "a"], "body": ["1", None]}, "column body=None is not allowed: never null; row 1"),
        ({"topic": ["a", "a/b"], "body": ["1", "2"]}, "column topic='a/b' is not allowed: a name of a topic; row 1"),
        ({"topic": ["a", "a"], "body": ["1", "x" * 20_000]}, "column body='20000 bytes' is not allowed: at most"),
        (
            {"topic": ["a", "a"], "body": ["1", "x" * 14_000], "tags": ["a", "t" * 3000]},
            "column body='14000 bytes' is not allowed: at most maxMessageSize, and with all that goes along what a log",
        ),
    ],
)
def test_refused_rows_leave_nothing(path: Path, columns: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        writer(path).write(iter([pa.record_batch(columns)]))
    assert says in str(raised.value)
    assert not list(path.glob("spark/**/*.arrow"))


def test_invalid_queue_numbers_and_levels_are_refused(path: Path) -> None:
    for name, value in (("queue_id", -1), ("delay_level", -2), ("queue_id", 1 << 40)):
        rows = pa.record_batch({"topic": ["a"], "body": ["b"], name: [value]})
        with pytest.raises(ConfigError, match=f"column {name}={value} is not allowed: 0 to 2147483647"):
            writer(path, f"topic string, body string, {name} bigint").write(iter([rows]))
    rows = pa.record_batch({"topic": ["a"], "body": ["b"], "tags": ["\x02"]})
    with pytest.raises(ConfigError, match=r"column properties=.*without 0x01, 0x02 and 512 zero bytes"):
        writer(path, "topic string, body string, tags string").write(iter([rows]))


@pytest.mark.parametrize(
    ("schema", "options", "says"),
    [
        ("topic string", {}, "a column body"),
        ("body string", {}, "a column topic or the option topic must be there"),
        ("topic string, body int", {}, "column='body int' is not allowed: body is binary or string"),
        ("topic string, body string, keys int", {}, "keys is array<string> or string"),
        ("topic string, body string, tag string", {}, "no such column; there is tags"),
        ("topic string, body string, deliver_timestamp timestamp", {}, "a store directory has no broker that delivers"),
        ("topic string, body string", {"queueNum": 0}, "a whole number of at least 1"),
        ("topic string, body string", {"queuNum": 1}, "no such option of a write; there is queueNum"),
        (
            "topic string, body string",
            {"kafka.bootstrap.servers": "h:1"},
            "no such option of a write; there is nameserver",
        ),
        ("topic string, body string", {"txnAppId": "a"}, "txnAppId and txnVersion are given together"),
        *(
            (
                "topic string, body string",
                {"txnAppId": "a", "txnVersion": wrong},
                f"txnVersion='{wrong}' is not allowed: a whole",
            )
            for wrong in ("abc", "-1", "1.5", str(1 << 63))
        ),
        *(
            (
                "topic string, body string",
                {"txnAppId": wrong, "txnVersion": 1},
                "the ledger cannot have a file of this name",
            )
            for wrong in (".", "..", "x" * 251, "ü" * 42)
        ),
        ("topic string, body string", {"nameserver": "h:1"}, "either path (a store) or nameserver"),
        ("topic string, body string", {"store.flushDisk": "x"}, "a key of a broker.conf, such as flushDiskType"),
        ("topic string, body string", {"store.flushDiskType": "x"}, "flushDiskType='x' is not allowed"),
    ],
)
def test_invalid_writes_are_refused(path: Path, schema: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(GantrymqError) as raised:
        writer(path, schema, **options)
    assert says in str(raised.value)


def test_overwrite_is_refused(path: Path) -> None:
    source = RocketMQDataSource({"path": str(path), "checkpointLocation": "/x"})
    schema = schema_of("topic string, body string")
    with pytest.raises(ConfigError, match="append: messages are only ever added"):
        source.streamWriter(schema=schema, overwrite=True)
    source.streamWriter(schema=schema, overwrite=False)


def test_failed_task_leaves_no_file(path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(5)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        writer(path).write(rows())
    assert not list(path.glob("spark/**/*.arrow"))


def test_aborted_write_leaves_nothing(path: Path) -> None:
    task = writer(path)
    done = task.write(iter([batch(5)]))
    assert isinstance(done, Staged)
    task.abort([done, None])
    assert stored(path) == []
    assert not list(path.glob("spark/**/*.arrow"))


def test_write_failing_during_put_names_pending_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_sink, "_PUT_ROWS", 10)
    task, put = writer(path), MessageStore.put_batch
    done = task.write(iter([batch(25)]))

    def put_while_there_is_room(store: MessageStore, rows: Any) -> Any:
        if store.max_phy_offset > 0 and stored(path):
            raise DiskFullError(path, 100)
        return put(store, rows)

    with monkeypatch.context() as full:
        full.setattr(MessageStore, "put_batch", put_while_there_is_room)
        with pytest.raises(DiskFullError) as raised:
            task.commit([done])
    (note,) = raised.value.__notes__
    assert note.startswith("25 rows were put in part, and stay staged: the next commit into this store, by any writer")
    assert "Do not run a write without txnAppId again" in note
    task.abort([done])
    assert stored(path) == expected(10)
    sink(path).commit("q", 0, staged(path, batch(1, 25)))
    assert stored(path) == expected(26)


def test_tasks_outliving_aborted_write_leave_nothing(path: Path) -> None:
    """One is done, but its driver gave up before it heard of it; another one ends later."""
    task = writer(path)
    task.write(iter([batch(5)]))

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(5)
        task.abort([None, None])
        yield batch(5)

    with pytest.raises(StoreError, match="the write was aborted while this task was at work"):
        task.write(rows())
    assert not list(path.glob("spark/**/*.arrow"))
    (mark,) = path.glob("spark/staging/*/given-up")
    os.utime(mark, (0, 0))
    sink(path).commit("q", 0, staged(path, batch(3)))
    assert stored(path) == expected(3)
    assert leftovers(path) == ["spark/ledger", "spark/staging"]
