"""Topics of stores as views: every row, and how little of a store a query reads."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from query_cases import HOUR_MS, make_store, open_views, querying, rows_of, values

from gantrymq.clock import ManualClock
from gantrymq.errors import ConfigError
from gantrymq.format.packed_body import decompress
from gantrymq.fs.real import RealFileSystem
from gantrymq.model import flags
from gantrymq.model.message import Message
from gantrymq.store.reader import StoreReader
from gantrymq.tables.query import topic_scan
from gantrymq.tables.query.sources import Views
from gantrymq.tables.query.store_queue import StoreGroup
from gantrymq.tables.query.topic_scan import TOPIC_SCHEMA
from gantrymq.tools.arrow import ArrowBatches, LogBatch
from golden_stores import unpack
from store_cases import NOON_MS, await_dispatch, open_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("sql") / "broker-a" / "store")


@pytest.fixture
def views(store: Path) -> Iterator[Views]:
    with open_views([store]) as opened:
        yield opened


@pytest.fixture
def read_slots(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The slots of which records were read, with blocks of 16 messages."""
    monkeypatch.setattr(topic_scan, "BLOCK_MESSAGES", 16)
    slots: list[int] = []
    read = StoreGroup.records

    def noting(group: StoreGroup, parts: list[topic_scan.QueuePart], *, checks_bodies: bool) -> object:
        slots.extend(slot for part in parts for slot in range(part.low, part.high))
        return read(group, parts, checks_bodies=checks_bodies)

    monkeypatch.setattr(StoreGroup, "records", noting)
    return slots


def moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def expected_rows(path: Path, broker: str) -> dict[str, dict[tuple[int, int], dict[str, object]]]:
    """The rows of each topic, from messages that are decoded one by one."""
    topics: dict[str, dict[tuple[int, int], dict[str, object]]] = {}
    with StoreReader.open(path, trusts_writer=True) as reader:
        for queue in reader.consume_queues:
            for offset, _, message in reader.entries(queue):
                body = bytes(message.body)
                if message.sys_flag & flags.COMPRESSED:
                    body = decompress(body, message.sys_flag, 1 << 24)
                topics.setdefault(queue.topic, {})[queue.queue_id, offset] = {
                    "broker": broker,
                    "topic": queue.topic,
                    "queue_id": queue.queue_id,
                    "queue_offset": offset,
                    "generation": 0,
                    "msg_id": message.msg_id,
                    "keys": [key for key in message.properties.get("KEYS", "").split(" ") if key],
                    "tags": message.properties.get("TAGS"),
                    "properties": message.properties,
                    "born_timestamp": moment(message.born_timestamp_ms),
                    "store_timestamp": moment(message.store_timestamp_ms),
                    "body": body,
                }
    return topics


@pytest.mark.parametrize("name", ["direct-mixed", "broker-features"])
def test_rows_of_every_topic_equal_messages_of_golden_store(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path) / "store"
    topics = expected_rows(path, name)
    assert len(topics) > 3
    with Views([str(path)], lambda store: StoreReader.open(store, trusts_writer=True), lambda address: None) as views:
        assert views.names == sorted(topics)
        for topic, expected in topics.items():
            quoted = topic.replace('"', '""')
            rows = rows_of(views, f'select * from "{quoted}"')
            assert {(row["queue_id"], row["queue_offset"]): row for row in rows} == expected
            assert len(rows) == len(expected)
        assert views.skipped.count == 0


def test_columns_have_types_of_landed_tables(views: Views) -> None:
    described = dict(values(views, "select column_name, column_type from (describe orders)"))
    assert list(described) == TOPIC_SCHEMA.names
    assert described["keys"] == "VARCHAR[]"
    assert described["properties"] == "MAP(VARCHAR, VARCHAR)"
    assert described["store_timestamp"] == "TIMESTAMP WITH TIME ZONE"
    assert (described["body"], described["queue_id"], described["generation"]) == ("BLOB", "INTEGER", "INTEGER")


def test_count_is_answered_by_units_alone(views: Views, read_slots: list[int]) -> None:
    assert values(views, "select count(*) from orders") == [400]
    assert values(views, "select queue_id, max(queue_offset) from orders group by all order by 1") == [
        (0, 199),
        (1, 199),
    ]
    assert values(views, "select count(*) from orders where queue_id = 1 and queue_offset >= 150") == [50]
    assert read_slots == []


def test_unwanted_bodies_are_not_made(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a body was made")

    monkeypatch.setattr("gantrymq.tools.arrow.with_bodies", refuse)
    counted = values(views, "select tags, count(*) from orders where store_timestamp is not null group by 1 order by 1")
    assert counted == [("open", 134), ("paid", 266)]
    with pytest.raises(AssertionError, match="a body was made"):
        _raise_cause(views, "select body from orders")


def _raise_cause(views: Views, text: str) -> None:
    try:
        rows_of(views, text)
    except Exception as error:
        if "a body was made" in str(error):
            raise AssertionError("a body was made") from error
        raise


@pytest.mark.parametrize(
    ("condition", "most_read", "count"),
    [
        pytest.param("queue_id = 1", 200, 200, id="queue"),
        pytest.param("queue_id in (1, 5)", 200, 200, id="queues"),
        pytest.param("queue_offset between 30 and 40", 2 * 32, 22, id="offsets"),
        pytest.param(f"store_timestamp < '{moment(NOON_MS + 20 * HOUR_MS)}'", 2 * 16, 20, id="time"),
        pytest.param(f"store_timestamp >= '{moment(NOON_MS + 390 * HOUR_MS)}'", 2 * 16, 10, id="newest"),
        pytest.param("broker = 'broker-b'", 0, 0, id="broker"),
        pytest.param("topic <> 'orders'", 0, 0, id="topic"),
        pytest.param("tags = 'open' and queue_id = 0", 200, 67, id="tags"),
        pytest.param("queue_id = 0 or queue_offset < 16", 216, 216, id="or"),
    ],
)
def test_filter_limits_what_is_read(
    condition: str, most_read: int, count: int, views: Views, read_slots: list[int]
) -> None:
    assert len(values(views, f"select msg_id from orders where {condition}")) == count
    assert len(read_slots) <= most_read


def test_condition_on_keys_leaves_other_bodies_unread(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    with_bodies = ArrowBatches.convert

    def noting(batches: ArrowBatches, batch: LogBatch) -> object:
        made.append(batch.count)
        return with_bodies(batches, batch)

    monkeypatch.setattr(ArrowBatches, "convert", noting)
    found = values(views, "select body from orders o where list_contains(o.keys, 'k123') and 'all' = any(keys)")
    assert found == [b'{"n": 123}']
    assert sum(made) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select count(*) from orders a join orders b using (queue_id, queue_offset)", [400]),
        ("select count(*) from (from orders union all from orders union all from orders)", [1200]),
        ("select count(*) from orders a, orders b where list_contains(a.keys, 'k7') and list_contains(b.keys, 'all')",
         [400]),
        ("select count(*) from orders a left join orders b on a.msg_id = b.msg_id and list_contains(b.keys, 'k7') "
         "where b.msg_id is null", [399]),
        ("with orders as (select * from orders where queue_id = 1) select count(*) from orders", [200]),
        ("with c as (select keys from orders) select count(*) from c where list_contains(keys, 'k7')", [1]),
        ("select count(*) from ORDERS where keys && ['k1', 'k2', 'k3']", [3]),
        ("select count(*) from orders where list_has_all(keys, ['k1', 'all'])", [1]),
        ("select count(*) from orders where list_contains(keys, 'k1') or list_contains(keys, 'k2')", [2]),
        ("select count(*) from orders where not list_contains(keys, 'k1')", [399]),
        ("select (select count(*) from orders b where list_contains(b.keys, a.keys[1])) from orders a "
         "where list_contains(a.keys, 'k9')", [1]),
        ("select count(*) from orders where octet_length(body) = 2 and tags = 'paid'", [26]),
        ("select properties['TAGS'] from orders where list_contains(keys, 'k4')", ["paid"]),
        ("select sum(queue_id) from orders where body = '{\"n\": 5}'::blob", [1]),
    ],
)  # fmt: skip
def test_query_over_several_scans_is_right(text: str, expected: list[object], views: Views) -> None:
    assert values(views, text) == expected


def test_time_filter_is_right_after_clock_was_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_scan, "BLOCK_MESSAGES", 16)
    path = tmp_path / "store"
    for day in (5, 2, 9):
        with open_store(RealFileSystem(), path, clock=ManualClock(NOON_MS + day * 24 * HOUR_MS)) as store:
            for number in range(40):
                store.put(Message("orders", b"%d" % number))
            await_dispatch(store)
    with open_views([path]) as views:
        begin = moment(NOON_MS + 4 * 24 * HOUR_MS)
        assert values(views, f"select count(body) from orders where store_timestamp < '{begin}'") == [40]


def test_topics_that_differ_in_case_are_two_views(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(RealFileSystem(), path) as store:
        store.put_batch([Message("Orders", b"x") for _ in range(2)])
        store.put_batch([Message("orders", b"x") for _ in range(3)])
        await_dispatch(store)
    with open_views([path]) as views:
        text = 'select (select count(*) from "Orders"), (select count(body) from orders)'
        assert values(views, text) == [(2, 3)]


def test_stores_of_glob_are_one_view_with_their_brokers(store: Path, tmp_path: Path) -> None:
    for name, count in (("broker-a", 3), ("broker-b", 5)):
        with open_store(RealFileSystem(), tmp_path / name / "store") as opened:
            opened.put_batch([Message("orders", b"x") for _ in range(count)])
            await_dispatch(opened)
    with open_views([tmp_path / "*" / "store"]) as views:
        counted = values(views, "select broker, count(body) from orders group by 1 order by 1")
        assert counted == [("broker-a", 3), ("broker-b", 5)]
        assert values(views, "select count(*) from orders where broker = 'broker-b'") == [5]
    with pytest.raises(ConfigError, match="the name of one store only"):
        open_views([tmp_path / "broker-a" / "store", store])


def test_result_is_streamed(views: Views) -> None:
    text = "select a.body from orders a, range(100000000) b"  # 4e10 rows
    with querying(views, text) as query:
        assert next(iter(query)).num_rows > 0


def damage(path: Path, file: str, position: int, raw: bytes) -> None:
    with min((path / file).iterdir()).open("r+b") as opened:
        opened.seek(position)
        opened.write(raw)


@pytest.mark.parametrize("kind", ["unit", "body", "head"])
def test_damaged_messages_are_skipped_and_named(kind: str, tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", 160)
    with open_views([path]) as views, StoreReader.open(path) as reader:
        (message,) = reader.get("orders", 1, 2, max_msgs=1).messages
        assert len(values(views, "select body from orders")) == 160
    if kind == "unit":
        damage(path, "consumequeue/orders/1", 2 * 20, bytes(20))
    else:
        # The first byte of the body (IPv4 hosts), or a byte of the magic.
        at = message.phy_offset + (88 if kind == "body" else 5)
        damage(path, "commitlog", at, b"\x7e")
    with open_views([path]) as views:
        offsets = values(views, "select queue_offset from orders where queue_id = 1 and body is not null order by 1")
        assert offsets == [offset for offset in range(80) if offset != 2]
        assert views.skipped.count == 1
        (text,) = views.skipped.texts
        assert text.startswith(f"topic orders, broker {tmp_path.name}, queue 1, offset 2: ")


def test_messages_of_missing_log_file_are_not_counted(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", 200)
    files = sorted((path / "commitlog").iterdir())
    assert len(files) > 2
    files[1].unlink()
    with open_views([path]) as views:
        (counted,) = values(views, "select count(*) from orders")
        assert values(views, "select count(tags) from orders") == [counted]
        assert 0 < counted < 200
        assert views.skipped.count == 200 - counted
        assert [problem.path for problem in views.problems] == [files[1]]


def test_random_conditions_agree_with_full_scan(views: Views, rng: random.Random) -> None:
    everything = rows_of(views, "select * from orders")
    for _ in range(12):
        low, width, queue = rng.randrange(220), rng.randrange(60), rng.randrange(3)
        begin = moment(NOON_MS + rng.randrange(420) * HOUR_MS)
        offsets, queues, times, tags = (
            f"queue_offset >= {low} and queue_offset < {low + width}",
            f"queue_id = {queue}",
            f"store_timestamp >= '{begin}'",
            "tags = 'open'",
        )
        passing = {
            offsets: {row["msg_id"] for row in everything if low <= row["queue_offset"] < low + width},
            queues: {row["msg_id"] for row in everything if row["queue_id"] == queue},
            times: {row["msg_id"] for row in everything if row["store_timestamp"] >= begin},
            tags: {row["msg_id"] for row in everything if row["tags"] == "open"},
        }
        chosen = rng.sample(sorted(passing), rng.randrange(1, 4))
        text = f"select msg_id from orders where {' and '.join(chosen)}"
        expected = set.intersection(*(passing[condition] for condition in chosen))
        assert sorted(values(views, text)) == sorted(expected)
