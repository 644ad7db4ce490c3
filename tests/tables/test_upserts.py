"""A table with one row for each key has the newest message of each, whatever is killed or runs beside it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gantrymq.errors import ConfigError
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.tables.errors import AnotherLanderError, TableError
from gantrymq.tables.local import merging
from gantrymq.tables.local.parquet_contents import ParquetContents
from gantrymq.tables.local.retry import retry
from gantrymq.tables.local.target import TableFormat
from gantrymq.tables.options import LandOptions
from gantrymq.tables.upserts import UpsertRule
from store_cases import await_dispatch, open_store
from tables.kill_points import Killed, KillPoint, kill_point_of
from tables.landing_cases import FORMATS, Lake, Row, land, landing_of, line

MOST_STEPS = 30  # changes of a landing that is killed


@pytest.fixture
def kill_point(monkeypatch: pytest.MonkeyPatch) -> KillPoint:
    return kill_point_of(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "broker-a" / "store"
    path.mkdir(parents=True)
    return path


def send(store: Path, bodies: list[bytes], keys: tuple[str, ...] = ("k",), queue_id: int = 0) -> None:
    """Add messages of the topic orders to a queue."""
    messages = [Message("orders", body, keys=keys, queue_id=queue_id) for body in bodies]
    with open_store(RealFileSystem(), store) as writer:
        for message in messages:
            assert writer.put(message).status is PutMessageStatus.PUT_OK
        await_dispatch(writer)


def by(upsert_by: str, op_field: str | None = None, schema: str = "infer", **options: Any) -> LandOptions:
    return LandOptions(("orders",), body="json", schema=schema, upsert_by=upsert_by, op_field=op_field, **options)


def dead_reasons(lake: Lake) -> list[str]:
    return [row["reason"] for row in sorted(lake.rows("__dead"), key=lambda row: row["queue_offset"])]


class Operations:
    """Random operations on a few keys, and what a table has after them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._value = 0
        self.rows: dict[int, int] = {}

    def next(self) -> bytes:
        key, self._value = self._rng.randrange(40), self._value + 1
        if self._rng.random() < 0.25:
            self.rows.pop(key, None)
            return line(id=key, value=self._value, op=self._rng.choice(["D", "d", "delete", "-D"]))
        self.rows[key] = self._value
        return line(id=key, value=self._value, op=self._rng.choice(["c", "U", "+I", "insert", "r"]))


def values(lake: Lake) -> list[tuple[int, int]]:
    """The rows with their keys, each as often as it is there."""
    return sorted((row["id"], row["value"]) for row in lake.rows())


@pytest.mark.parametrize("kind", FORMATS)
def test_upserts_killed_at_random_changes_leave_the_newest_message_of_each_key(
    kind: TableFormat,
    tmp_path: Path,
    store: Path,
    rng: random.Random,
    kill_point: KillPoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merging, "KEPT_BYTES", 3000)  # the rows of most steps go through a file
    lake, operations, options = Lake(tmp_path / "lake", kind), Operations(rng), by("id", "op")
    kills = sent = 0
    for attempt in range(3 if kind is TableFormat.ICEBERG else 5):
        count = rng.randrange(5, 30)
        send(store, [operations.next() for _ in range(count)])
        sent += count
        kill_point.arm(rng.randrange(MOST_STEPS) if attempt else 5)
        try:
            land(lake, store, options, commit_rows=15)
        except Killed:
            kills += 1
        kill_point.disarm()
    _, summary = land(lake, store, options, commit_rows=15)
    assert kills
    assert values(lake) == sorted(operations.rows.items())
    assert summary.positions == {"broker-a": {"orders": {"0": sent}}}
    head = lake.target.open().head()
    assert head is not None
    assert (head.state.totals.rows, head.state.totals.dead) == (sent, 0)
    landing = landing_of(lake, store, LandOptions(ttl_s=86_400.0))
    assert not list(landing.run_pass())
    landing.maintain(compact=True, is_exact=True)
    assert lake.target.open().count_files() == (1 if operations.rows else 0)
    send(store, [line(id=key, op="D") for key in list(operations.rows)[1:]])
    land(lake, store)
    assert values(lake) == list(operations.rows.items())[:1]


@pytest.mark.parametrize("kind", FORMATS)
def test_second_lander_of_upserts_ends_and_applies_nothing(kind: TableFormat, tmp_path: Path, store: Path) -> None:
    lake, options = Lake(tmp_path / "lake", kind), by("id")
    send(store, [line(id=number % 5, value=number) for number in range(20)])
    frozen = landing_of(lake, store, options, commit_rows=10).run_pass()
    next(frozen)
    land(lake, store, options)
    send(store, [line(id=4, value=99)])
    land(lake, store)
    with pytest.raises(AnotherLanderError):
        next(frozen)
    assert values(lake) == [(0, 15), (1, 16), (2, 17), (3, 18), (4, 99)]


@pytest.mark.parametrize("kind", [TableFormat.DELTA, TableFormat.ICEBERG])
def test_commit_of_another_program_makes_a_merge_search_the_files_again(
    kind: TableFormat, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, options = Lake(tmp_path / "lake", kind), by("id")
    send(store, [line(id=number, value=0) for number in range(6)])
    land(lake, store, options, commit_rows=3)
    send(store, [line(id=3, value=1)])
    landing = landing_of(lake, store)
    table = landing._engine._table  # type: ignore[attr-defined]
    commit, tries = table.commit, []

    def late(*arguments: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            _compact(lake)
        return commit(*arguments)

    monkeypatch.setattr(table, "commit", late)
    assert list(landing.run_pass())
    assert len(tries) == 2
    assert values(lake) == [(0, 0), (1, 0), (2, 0), (3, 1), (4, 0), (5, 0)]


def _compact(lake: Lake) -> None:
    """A commit of another program: the same rows in other files."""
    if lake.format is TableFormat.DELTA:
        from deltalake import DeltaTable

        DeltaTable(lake.table).optimize.compact()
        return
    table = lake.target.open()._opened()  # type: ignore[attr-defined]
    table.overwrite(table.scan().to_arrow())


@pytest.mark.parametrize("kind", FORMATS)
def test_keys_of_the_message_are_the_key_of_raw_bodies(kind: TableFormat, tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", kind)
    options = LandOptions(("orders",), upsert_by="keys")
    send(store, [b"first"], ("a", "b"))
    send(store, [b"other"], ("a",))
    send(store, [b"none"], ())
    _, summary = land(lake, store, options)
    assert (summary.totals.rows, summary.totals.dead) == (2, 1)
    send(store, [b"second"], ("a", "b"))
    land(lake, store)
    assert sorted((row["body"], row["keys"]) for row in lake.rows()) == [(b"other", ["a"]), (b"second", ["a", "b"])]
    (dead,) = lake.rows("__dead")
    assert (dead["body"], dead["reason"]) == (b"none", "keys: null, empty or missing, so the message has no key")


DEBEZIUM = "before STRUCT<id: BIGINT, name: STRING>, after STRUCT<id: BIGINT, name: STRING>, op STRING, ts_ms BIGINT"


def change(op: str | None, before: Row | None, after: Row | None) -> bytes:
    return line(before=before, after=after, op=op, ts_ms=1)


@pytest.mark.parametrize("kind", FORMATS)
def test_envelopes_of_debezium_insert_update_and_delete(kind: TableFormat, tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", kind)
    schema = tmp_path / "envelope.ddl"
    schema.write_text(DEBEZIUM)
    options = by("after.id", "op", str(schema))
    ann, bob, eve = ({"id": number, "name": name} for number, name in enumerate(["ann", "bob", "eve"]))
    send(store, [change("r", None, ann), change("c", None, bob), change("c", None, eve)])
    land(lake, store, options)
    send(
        store,
        [
            change("u", ann, {"id": 0, "name": "anna"}),
            change("d", bob, None),
            change("t", None, None),
            change(None, None, eve),
            change("u", eve, None),
            b"",  # a tombstone
            change("d", {"id": 7}, None),
        ],
    )
    _, summary = land(lake, store, options)
    assert sorted((row["after"]["id"], row["after"]["name"], row["op"]) for row in lake.rows()) == [
        (0, "anna", "u"),
        (2, "eve", "c"),
    ]
    assert (summary.totals.rows, summary.totals.dead) == (3, 4)
    assert dead_reasons(lake)[:3] == [
        "op: 't' is no operation on a row",
        "op: null or missing",
        "after.id: null, empty or missing, so the message has no key",
    ]


def flat(kind: str, data: list[Row] | None, old: list[Row] | None = None) -> bytes:
    return line(data=data, old=old, type=kind, table="users", pkNames=["id"])


@pytest.mark.parametrize("kind", FORMATS)
def test_flat_messages_of_canal_are_unfolded(kind: TableFormat, tmp_path: Path, store: Path) -> None:
    lake, options = Lake(tmp_path / "lake", kind), by("data.id", "type")
    users = [{"id": str(number), "name": f"n{number}"} for number in range(4)]
    send(store, [flat("INSERT", users)])
    land(lake, store, options)
    send(
        store,
        [
            flat("UPDATE", [{"id": "1", "name": "x"}, {"id": "3", "name": "y"}], [{"name": "n1"}, {"name": "n3"}]),
            flat("DELETE", [users[0]]),
            flat("ALTER", None),
            flat("INSERT", []),
            flat("INSERT", [users[2], {"id": None, "name": "z"}]),
        ],
    )
    _, summary = land(lake, store)
    assert sorted(row["data"][0]["name"] for row in lake.rows()) == ["n2", "x", "y"]
    assert [row["old"][0]["name"] for row in lake.rows() if row["data"][0]["name"] in "xy"] == ["n1", "n3"]
    assert (summary.totals.rows, summary.totals.dead) == (2, 3)
    assert [reason.partition(":")[0] for reason in dead_reasons(lake)] == ["type", "data.id", "data.id"]


def test_newest_message_of_a_key_is_by_time_between_queues_and_by_offset_within_one() -> None:
    kept = merging.KeptRows(UpsertRule("id"))
    for rows in (
        [(1, 20, 1, "late"), (1, 10, 2, "in a queue whose clock went back"), (1, 21, 5, "equal, first")],
        [(0, 15, 1, "early"), (0, 19, 2, "before"), (0, 30, 3, "then"), (0, 5, 3, "back"), (2, 21, 5, "equal, last")],
    ):
        columns = list(zip(*rows, strict=True))
        names = ("broker", "topic", "queue_id", "store_timestamp", "id", "what")
        times = pa.array(columns[1], pa.timestamp("us", "UTC"))
        broker, topic = (pa.array([text] * len(rows)) for text in ("broker-a", "orders"))
        kept.add(pa.record_batch([broker, topic, pa.array(columns[0]), times, *map(pa.array, columns[2:])], names))
    last = kept.last_rows()
    newest = {row["id"]: row["what"] for batch in kept.rows(last.is_wanted) for row in batch.to_pylist()}
    assert newest == {1: "late", 2: "in a queue whose clock went back", 3: "back", 5: "equal, last"}
    assert sorted(last.keys.to_pylist()) == [1, 2, 3, 5]


def test_table_remembers_its_key_and_refuses_another(tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.PARQUET)
    send(store, [line(id=1, value=1, op="c"), line(id=2, value=1, op="c")])
    land(lake, store, by("id", "op"))
    send(store, [line(id=1, value=2, op="u"), line(id=2, op="d")])
    for options, made in [
        (LandOptions(upsert_by="value"), "--upsert-by='value' is not allowed: id, with which the table was made"),
        (LandOptions(op_field="value"), "--op-field='value' is not allowed: op, with which the table was made"),
        (LandOptions(retries=True), "--retries"),
    ]:
        with pytest.raises(ConfigError, match=made):
            land(lake, store, options)
    with pytest.raises(TableError, match="one row for each key"):
        retry(lake.target.open(), LandOptions(), 1 << 20)
    land(lake, store, LandOptions(upsert_by="id"))
    assert values(lake) == [(1, 2)]


def test_table_of_all_messages_refuses_a_key(tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.PARQUET)
    send(store, [line(id=1)])
    land(lake, store, LandOptions(("orders",), body="json", schema="infer"))
    with pytest.raises(ConfigError, match="--upsert-by='id' is not allowed: a table that was made with it"):
        land(lake, store, LandOptions(upsert_by="id"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (by("number"), "--upsert-by='number' is not allowed: a column of the table, which has broker, .*id, more"),
        (by("id.number"), "--upsert-by='id.number'"),
        (by("more"), "--upsert-by='more' is not allowed: a column with one value, and it is STRUCT<at: BIGINT>"),
        (by("id", "id"), "--op-field='id' is not allowed: a column of text, and it is BIGINT"),
        (by("id", "op"), "--op-field='op' is not allowed: a column of the table"),
        (LandOptions(("orders",), upsert_by="id"), "--upsert-by='id' is not allowed: a column of the table"),
        (LandOptions(("orders",), op_field="id"), "--op-field='id' is not allowed: only with --upsert-by"),
        (LandOptions(("orders",), upsert_by="keys", retries=True), "--retries=True is not allowed: not with"),
        (LandOptions(("orders",), upsert_by="keys", dlq=True), "--dlq=True is not allowed: not with"),
    ],
)
def test_key_that_a_table_cannot_have_is_refused_before_it_is_made(
    options: LandOptions, why: str, tmp_path: Path, store: Path
) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.PARQUET)
    send(store, [line(id=1, more={"at": 2})])
    with pytest.raises(ConfigError, match=why):
        land(lake, store, options)
    assert lake.target.open().head() is None


def test_statistics_exclude_files_without_a_key_of_the_step(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.PARQUET)
    for first in (0, 10):
        send(store, [line(id=number, value=0) for number in range(first, first + 10)])
        land(lake, store, by("id"))
    read = []
    batches = ParquetContents.batches
    monkeypatch.setattr(
        ParquetContents,
        "batches",
        lambda contents, file, columns=None: read.append((file.rows, columns)) or batches(contents, file, columns),
    )
    send(store, [line(id=12, value=1), line(id=30, value=1)])
    land(lake, store)
    assert read == [(10, ["id"]), (10, None)]
    assert [row for row in values(lake) if row[1]] == [(12, 1), (30, 1)]
    assert len(values(lake)) == 21
