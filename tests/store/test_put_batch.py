"""Many messages in one put: however they are given, the log is the one that single puts would have made."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gantrymq.clock import ManualClock
from gantrymq.errors import DiskError
from gantrymq.model.message import PROPERTY_CRC32, Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.log import append
from gantrymq.store.log import batch as put_batch
from gantrymq.store.message_store import MessageStore
from gantrymq.tools.verify import verify_store
from gated_file_system import GatedFileSystem
from memory_file_system import MemoryFile, MemoryFileSystem
from store_cases import GEOMETRY_KEYS, NOON_MS, ROOT, SMALL, await_dispatch, bodies, killed, odd_message, open_store

CONFIG = replace(SMALL, mapped_file_size_commit_log=65_536, message_index_enable=False)
Places = list[tuple[int, int, int]]


def plain_message(rng: random.Random) -> Message:
    """An odd one without what only a put of its own may have."""
    odd = odd_message(rng)
    born_ms = rng.choice((0, NOON_MS - 1))
    numbers: dict[str, Any] = {"flag": odd.flag, "born_timestamp_ms": born_ms, "reconsume_times": odd.reconsume_times}
    return Message(odd.topic, odd.body, odd.queue_id, odd.tags, odd.keys, odd.properties, **numbers)


def table_of(messages: list[Message]) -> pa.Table:
    columns: dict[str, Any] = {
        name: [getattr(message, name) for message in messages]
        for name in ("topic", "body", "tags", "flag", "born_timestamp_ms", "reconsume_times")
    }
    columns["queue_id"] = pa.array([message.queue_id for message in messages], pa.int32())
    columns["keys"] = pa.array([list(message.keys) for message in messages], pa.list_(pa.string()))
    maps = [list(message.properties.items()) for message in messages]
    columns["properties"] = pa.array(maps, pa.map_(pa.string(), pa.string()))
    return pa.table(columns)


def stored(path: Path, config: Any, put: Callable[[MessageStore], Places]) -> tuple[Places, list[bytes]]:
    """Where the messages went, and the files of the log."""
    with open_store(path=path, config=config, clock=ManualClock(NOON_MS)) as store:
        places = put(store)
    return places, [file.read_bytes() for file in sorted((path / "commitlog").iterdir())]


def in_batches(batches: list[Any]) -> Callable[[MessageStore], Places]:
    def put(store: MessageStore) -> Places:
        places = []
        for batch in batches:
            result = store.put_batch(batch)
            assert not result.rejected
            numbers = result.phy_offsets.tolist(), result.queue_offsets.tolist(), result.sizes.tolist()
            places += list(zip(*numbers, strict=True))
        return places

    return put


def one_by_one(messages: list[Message]) -> Callable[[MessageStore], Places]:
    def put(store: MessageStore) -> Places:
        results = [store.put(message) for message in messages]
        return [(one.phy_offset, one.queue_offset, one.size_bytes) for one in results]

    return put


@pytest.mark.parametrize("room_bytes", [append._ROOM_BYTES, 4096], ids=["in place", "apart"])
@pytest.mark.parametrize("has_crc", [False, True], ids=["plain", "property CRC"])
def test_batch_of_list_or_table_writes_log_of_single_puts(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, has_crc: bool, room_bytes: int
) -> None:
    monkeypatch.setattr(append, "_ROOM_BYTES", room_bytes)
    monkeypatch.setattr(append, "_LARGE_RECORD_BYTES", 0)
    config = replace(CONFIG, enabled_append_prop_crc=has_crc)
    messages = [plain_message(rng) for _ in range(600)]
    lists: list[list[Message]] = []
    while sum(map(len, lists)) < len(messages):
        begin = sum(map(len, lists))
        lists.append(messages[begin : begin + rng.choice((1, 2, 30, 250))])
    expected = stored(tmp_path / "single", config, one_by_one(messages))
    assert stored(tmp_path / "lists", config, in_batches(lists)) == expected
    tables = [table_of(one) for one in lists]
    assert stored(tmp_path / "tables", config, in_batches(tables)) == expected
    for name, whole in {"chunks": pa.concat_tables(tables), "slices": table_of(messages)}.items():
        ends = np.cumsum([len(one) for one in lists]).tolist()
        slices = [whole.slice(begin, end - begin) for begin, end in pairwise([0, *ends])]
        assert stored(tmp_path / name, config, in_batches(slices)) == expected
    assert stored(tmp_path / "one", config, in_batches([pa.concat_tables(tables)])) == expected
    monkeypatch.setattr(put_batch, "FEW_MESSAGES", 0)
    assert stored(tmp_path / "columns", config, in_batches(lists)) == expected


def test_small_batch_is_put_message_by_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    columns = put_batch.of_messages
    monkeypatch.setattr(
        put_batch, "of_messages", lambda batch, config: made.append(len(batch)) or columns(batch, config)
    )
    with open_store(path=tmp_path, config=CONFIG) as store:
        for count in (1, put_batch.FEW_MESSAGES - 1, put_batch.FEW_MESSAGES):
            assert len(store.put_batch([Message("orders", b"x")] * count).phy_offsets) == count
    assert made == [put_batch.FEW_MESSAGES]


ILLEGAL = [
    pytest.param(Message("orders", b"x", flag=1 << 31), id="flag"),
    pytest.param(Message("orders", b"x", reconsume_times=-(1 << 31) - 1), id="reconsume times"),
    pytest.param(Message("orders", b"x", born_timestamp_ms=1 << 63), id="born timestamp"),
    pytest.param(Message("orders", b"x", keys="4711"), id="keys that are one text"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("illegal", ILLEGAL)
@pytest.mark.parametrize("few", [0, 10], ids=["columns", "one by one"])
def test_message_too_large_for_field_is_refused_alone(
    monkeypatch: pytest.MonkeyPatch, illegal: Message, few: int
) -> None:
    monkeypatch.setattr(put_batch, "FEW_MESSAGES", few)
    with open_store(MemoryFileSystem(), config=CONFIG) as store:
        assert store.put(illegal).status is PutMessageStatus.MESSAGE_ILLEGAL
        result = store.put_batch([Message("orders", b"a"), illegal, Message("orders", b"b")])
        assert result.rejected == {1: PutMessageStatus.MESSAGE_ILLEGAL}
        assert result.queue_offsets.tolist() == [0, -1, 1]
        await_dispatch(store)
        assert bodies(store) == [b"a", b"b"]


BODIES = [
    pytest.param(np.arange(4, dtype=np.int16), False, id="wider items"),
    pytest.param(memoryview(array("d", [1.0])), False, id="view of wider items"),
    pytest.param(np.zeros((2, 2), np.uint8), False, id="rows"),
    pytest.param(memoryview(b"a?b?")[::2], False, id="with gaps"),
    pytest.param("text", False, id="text"),
    pytest.param(None, False, id="none"),
    pytest.param([1], False, id="list"),
    pytest.param(bytearray(b"body"), True, id="bytearray"),
    pytest.param(memoryview(b"body"), True, id="view"),
    pytest.param(np.frombuffer(b"body", np.uint8), True, id="array of bytes"),
]


@pytest.mark.parametrize(("body", "is_taken"), BODIES)
@pytest.mark.parametrize("few", [0, 10], ids=["columns", "one by one"])
def test_body_of_any_buffer_type_is_stored(
    monkeypatch: pytest.MonkeyPatch, body: Any, is_taken: bool, few: int
) -> None:
    monkeypatch.setattr(put_batch, "FEW_MESSAGES", few)
    with open_store(MemoryFileSystem(), config=CONFIG) as store:
        assert store.put(Message("orders", body)).is_stored is is_taken
        result = store.put_batch([Message("orders", b"a"), Message("orders", body), Message("orders", b"b")])
        assert result.rejected == ({} if is_taken else {1: PutMessageStatus.MESSAGE_ILLEGAL})
        assert store.put(Message("orders", b"c")).is_stored
        await_dispatch(store)
        assert bodies(store) == ([b"body", b"a", b"body", b"b", b"c"] if is_taken else [b"a", b"b", b"c"])


NO_MESSAGES = [
    pytest.param(Message("orders", b"x", keys=[4711]), id="keys"),  # type: ignore[list-item]
    pytest.param(Message(5, b"x"), id="topic"),  # type: ignore[arg-type]
    pytest.param(Message(["orders"], b"x"), id="list of topics"),  # type: ignore[arg-type]
    pytest.param(Message("orders", b"x", queue_id="0"), id="queue id"),  # type: ignore[arg-type]
    pytest.param(Message("orders", b"x", sys_flag="0"), id="system flag"),  # type: ignore[arg-type]
    pytest.param(Message("orders", b"x", properties=5), id="properties"),  # type: ignore[arg-type]
    pytest.param(Message("orders", b"x", born_host="10.0.0.1"), id="host"),  # type: ignore[arg-type]
    pytest.param(None, id="none"),
]


@pytest.mark.parametrize("odd", NO_MESSAGES)
@pytest.mark.parametrize("few", [0, 10], ids=["columns", "one by one"])
def test_non_message_object_is_refused_alone(monkeypatch: pytest.MonkeyPatch, odd: Any, few: int) -> None:
    monkeypatch.setattr(put_batch, "FEW_MESSAGES", few)
    with open_store(MemoryFileSystem(), config=CONFIG) as store:
        result = store.put_batch([Message("orders", b"a"), odd, Message("orders", b"b")])
        assert result.rejected == {1: PutMessageStatus.MESSAGE_ILLEGAL}
        await_dispatch(store)
        assert bodies(store) == [b"a", b"b"]


@pytest.mark.parametrize("name", ["topic", "body"])
def test_a_row_without_topic_or_body_is_refused_alone(name: str) -> None:
    table = pa.table({"topic": ["orders"] * 3, "body": [b"a", b"b", b"c"]})
    column = table.column(name).to_pylist()
    column[1] = None
    table = table.set_column(table.column_names.index(name), name, pa.array(column))
    with open_store(MemoryFileSystem(), config=CONFIG) as store:
        result = store.put_batch(table)
        assert result.rejected == {1: PutMessageStatus.MESSAGE_ILLEGAL}
        assert result.queue_offsets.tolist() == [0, -1, 1]
        await_dispatch(store)
        assert bodies(store) == [b"a", b"c"]


@pytest.mark.parametrize("delay_level", [0, 1], ids=["columns", "one by one"])
def test_null_key_is_omitted_and_null_property_is_empty(delay_level: int) -> None:
    columns = {
        "topic": ["orders"] * 2,
        "body": [b"x"] * 2,
        "keys": [["a", None, "b"], [None]],
        "properties": pa.array([[("p", None)], None], pa.map_(pa.string(), pa.string())),
        "delay_level": [0, delay_level],
    }
    with open_store(MemoryFileSystem(), config=CONFIG) as store:
        result = store.put_batch(pa.table(columns))
        first, second = (store.message_at(offset) for offset in result.phy_offsets.tolist())
        assert first is not None
        assert first.properties == {"KEYS": "a b"}, "an empty property is stored but not read"
        assert second is not None
        assert second.keys == []


SURROGATES = [
    pytest.param(Message("orders", b"x", tags="\ud800"), id="tags"),
    pytest.param(Message("orders", b"x", keys=["\ud800"]), id="keys"),
    pytest.param(Message("orders", b"x", properties={"a": "\ud800"}), id="properties"),
    pytest.param(Message("\ud800", b"x"), id="topic"),
]


@pytest.mark.parametrize("message", SURROGATES)
def test_text_outside_utf_8_is_stored_as_by_single_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: Message
) -> None:
    """Java makes a ? of half a surrogate pair."""
    monkeypatch.setattr(put_batch, "FEW_MESSAGES", 0)
    messages = [Message("orders", b"a"), message, Message("orders", b"b")]
    expected = stored(tmp_path / "single", CONFIG, one_by_one(messages))
    assert stored(tmp_path / "list", CONFIG, in_batches([messages])) == expected


TEXT_TYPES = [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
BYTES_TYPES = [pa.large_binary(), pa.binary_view(), pa.binary(3), pa.dictionary(pa.int8(), pa.binary())]


@pytest.mark.parametrize("kind", [*TEXT_TYPES, *BYTES_TYPES], ids=str)
def test_columns_accept_any_arrow_type_of_text_and_bytes(tmp_path: Path, kind: pa.DataType) -> None:
    text = pa.array(["abc", "dé", "abc"])
    data = pa.array([b"\xff\x00\xfe", b"\x80ab", b"abc"])
    of_kind = (
        {"topic": text.cast(kind), "tags": text.cast(kind)} if kind in TEXT_TYPES else {"body": as_kind(data, kind)}
    )
    plain = pa.table({"topic": text, "tags": text, "body": data})
    expected = stored(tmp_path / "plain", CONFIG, in_batches([plain]))
    table = pa.table({**dict(zip(plain.column_names, plain.columns, strict=True)), **of_kind})
    assert stored(tmp_path / "kind", CONFIG, in_batches([table])) == expected


def as_kind(data: pa.Array, kind: pa.DataType) -> pa.Array:
    """Arrow casts to no dictionary of bytes."""
    return data.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else data.cast(kind)


def test_null_in_dictionary_column_reads_as_null() -> None:
    body = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([b"x", None]))
    with open_store(MemoryFileSystem(), config=CONFIG) as store:
        result = store.put_batch(pa.table({"topic": ["orders"] * 2, "body": body}))
        assert result.rejected == {1: PutMessageStatus.MESSAGE_ILLEGAL}


def test_dictionary_with_duplicate_topic_assigns_each_queue_offset_once() -> None:
    topics = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1]), pa.array(["orders", "orders"]))
    with open_store(MemoryFileSystem(), config=CONFIG) as store:
        result = store.put_batch(pa.table({"topic": topics, "body": [b"x"] * 4}))
        assert result.queue_offsets.tolist() == [0, 1, 2, 3]


def test_given_crc_property_is_replaced_in_columns_as_in_single_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_batch, "FEW_MESSAGES", 0)
    messages = [Message("orders", b"x", properties={"a": "1", PROPERTY_CRC32: "7"}), Message("orders", b"y")]
    expected = stored(tmp_path / "single", CONFIG, one_by_one(messages))
    assert stored(tmp_path / "columns", CONFIG, in_batches([messages])) == expected
    assert stored(tmp_path / "table", CONFIG, in_batches([table_of(messages)])) == expected


def test_batch_at_refusing_store_rejects_every_message() -> None:
    with open_store(GatedFileSystem(), config=CONFIG) as store:
        store._state.has_failed_sync = True
        result = store.put_batch([Message("orders", b"x")] * 2)
        assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert result.rejected == dict.fromkeys((0, 1), PutMessageStatus.SERVICE_NOT_AVAILABLE)


@pytest.mark.parametrize("end", ["close", "kill"])
def test_batch_failing_midway_leaves_no_message(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_at = MemoryFile.write_at

    def half(file: MemoryFile, position: int, data: memoryview) -> None:
        write_at(file, position, data[: len(data) // 2])
        raise DiskError(file.path, "Input/output error")

    fs, config = MemoryFileSystem(), replace(CONFIG, mapped_file_size_commit_log=4 << 20)
    with open_store(fs, config=config) as store:
        store.put(Message("orders", b"first"))
        await_dispatch(store)
        with monkeypatch.context() as patch:
            patch.setattr(MemoryFile, "write_at", half)
            with pytest.raises(DiskError):
                store.put_batch(pa.table({"topic": ["orders"] * 300, "body": [bytes(2000)] * 300}))
        fs = killed(fs) if end == "kill" else fs
    assert [str(one) for one in verify_store(ROOT, config, fs=fs, given=GEOMETRY_KEYS)] == []
    with open_store(fs, config=config) as store:
        assert bodies(store) == [b"first"]
