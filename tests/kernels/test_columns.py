"""Decoding into Arrow's buffers against format.record and format.properties, record by record."""

import random
from itertools import pairwise

import numpy as np
import pytest
from kernel_cases import NAMES, broken, golden_logs, random_host, random_log, seeds
from test_queues import plain_records, scanned

from gantrymq.format.properties import decode_properties
from gantrymq.kernels import codes
from gantrymq.kernels.api import find_property, gather, gather_text, hosts_text, message_ids, properties_map, split_keys
from gantrymq.kernels.arrays import int64s, new_scratch, read_only
from gantrymq.kernels.codes import MAX_HOST_TEXT
from gantrymq.model.flags import BORN_HOST_V6, STORE_HOST_V6
from gantrymq.model.java import decode_utf8
from gantrymq.model.message import StoredMessage, message_id

SCRATCH = new_scratch()


def taken(function, n: int, room: int, *arguments) -> list[bytes]:
    """All rows of a function that fills values and offsets, in as many calls as ``room`` makes necessary."""
    rows, start = [], 0
    while start < n:
        values, offsets = np.zeros(room, np.uint8), np.zeros(n - start + 1, np.int32)
        done, code, used = function(*arguments, start, n, values, offsets)
        assert code == (codes.STOP_DONE if done == n else codes.STOP_FULL)
        assert done > start
        assert offsets[done - start] == used
        rows += [values[a:b].tobytes() for a, b in pairwise(offsets[: done - start + 1].tolist())]
        start = done
    return rows


def taken_maps(buf, columns, n: int, room: int) -> list[list[tuple[str, str]]]:
    rows, start = [], 0
    while start < n:
        maps, names, items = (np.zeros(size, np.int32) for size in (n - start + 1, room // 8, room // 8))
        name_values, item_values = np.zeros(room, np.uint8), np.zeros(room, np.uint8)
        done, code, used = properties_map(buf, columns, start, n, SCRATCH, maps, name_values, names, item_values, items)
        assert code == (codes.STOP_DONE if done == n else codes.STOP_FULL)
        assert done > start
        assert maps[done - start] == used
        pairs = [
            (name_values[a:b].tobytes().decode(), item_values[c:d].tobytes().decode())
            for (a, b), (c, d) in zip(pairwise(names[: used + 1]), pairwise(items[: used + 1]), strict=True)
        ]
        rows += [pairs[a:b] for a, b in pairwise(maps[: done - start + 1].tolist())]
        start = done
    return rows


def taken_keys(buf, at, length, n: int, room: int) -> list[list[str]]:
    rows, start = [], 0
    while start < n:
        lists, offsets, values = (
            np.zeros(n - start + 1, np.int32),
            np.zeros(room // 8, np.int32),
            np.zeros(room, np.uint8),
        )
        done, code, used = split_keys(buf, at, length, start, n, lists, values, offsets)
        assert code == (codes.STOP_DONE if done == n else codes.STOP_FULL)
        assert done > start
        keys = [values[a:b].tobytes().decode() for a, b in pairwise(offsets[: used + 1])]
        rows += [keys[a:b] for a, b in pairwise(lists[: done - start + 1].tolist())]
        start = done
    return rows


def assert_same(raw: bytes, room: int) -> None:
    buf, columns, n = scanned(raw)
    records = plain_records(raw)
    messages = [message for _, message, _ in records]
    decoded = [decode_properties(properties) for _, _, properties in records]
    bodies = taken(gather, n, room, buf, columns[codes.BODY_AT], columns[codes.BODY_LENGTH])
    assert bodies == [message.body for message in messages]
    topics = taken(gather_text, n, room, buf, columns[codes.TOPIC_AT], columns[codes.TOPIC_LENGTH])
    assert topics == [decode_utf8(topic).encode() for topic, _, _ in records]
    assert taken_maps(buf, columns, n, room) == [list(properties.items()) for properties in decoded]
    for name in ("TAGS", "KEYS", "名", "a"):
        at, length = np.zeros(n, np.int64), np.zeros(n, np.int64)
        found = find_property(buf, columns, n, read_only(name.encode()), at, length)
        assert found == sum(name in properties for properties in decoded)
        assert [size >= 0 for size in length] == [at >= 0 for at in at] == [name in p for p in decoded]
        values = taken(gather_text, n, room, buf, at, length)
        assert values == [properties.get(name, "").encode() for properties in decoded]
        if name == "KEYS":
            assert taken_keys(buf, at, length, n, room) == [message.keys for message in messages]
    assert_hosts(buf, columns, n, messages)


def assert_hosts(buf, columns, n, messages) -> None:
    flags = columns[codes.SYS_FLAG]
    born = taken(hosts_text, n, 120, buf, columns[codes.BORN_HOST_AT], flags, BORN_HOST_V6)
    assert born == [str(message.born_host).encode() for message in messages]
    store = taken(hosts_text, n, 10_000, buf, columns[codes.STORE_HOST_AT], flags, STORE_HOST_V6)
    assert store == [str(message.store_host).encode() for message in messages]
    offsets = columns[codes.PHY_OFFSET]
    ids = taken(message_ids, n, 200, buf, columns[codes.STORE_HOST_AT], flags, offsets)
    assert ids == [plain_id(message) for message in messages]


def plain_id(message: StoredMessage) -> bytes:
    """message_id, which takes no negative offset."""
    return message_id(message.store_host, message.phy_offset % 2**64).encode()


@pytest.mark.parametrize("name", NAMES)
def test_columns_of_golden_stores_equal_reference(name: str) -> None:
    for raw in golden_logs(name):
        assert_same(raw, 300_000)


@seeds(60)
def test_columns_of_random_logs_equal_reference(rng: random.Random) -> None:
    assert_same(random_log(rng, 30), rng.choice([20_000, 40_000, 200_000]))


@seeds(30)
def test_columns_of_broken_logs_equal_reference(rng: random.Random) -> None:
    whole = random_log(rng, 12)
    for _ in range(15):
        assert_same(broken(rng, whole), 200_000)


def test_columns_keep_hosts_of_every_kind() -> None:
    rng = random.Random(2)
    hosts = [random_host(rng, v6=i % 2 == 1) for i in range(300)]
    buf = read_only(b"".join(host.to_bytes().ljust(20, b"\0") for host in hosts))
    at = int64s(np.arange(300) * 20)
    flags = int64s([STORE_HOST_V6 * host.is_v6 for host in hosts])
    assert taken(hosts_text, 300, 999, buf, at, flags, STORE_HOST_V6) == [str(host).encode() for host in hosts]
    assert max(len(str(host)) for host in hosts) <= MAX_HOST_TEXT
    offsets = int64s([rng.randrange(2**63) for _ in hosts])
    expected = [message_id(host, int(offset)).encode() for host, offset in zip(hosts, offsets, strict=True)]
    assert taken(message_ids, 300, 999, buf, at, flags, offsets) == expected


@pytest.mark.parametrize("raw", [b"\xff" * 10, b"abc\xff", b"plain", "支付".encode(), b"\xe2\x82" * 5])
def test_columns_of_text_stay_within_buffer(raw: bytes) -> None:
    at, length, text = int64s([0]), int64s([len(raw)]), decode_utf8(raw).encode()
    for room in range(3 * len(raw) + 2):
        out, offsets = np.full(100, 0x7E, np.uint8), np.zeros(2, np.int32)
        done, code, used = gather_text(read_only(raw), at, length, 0, 1, out[:room], offsets)
        assert (out[room:] == 0x7E).all()
        assert (code, used) == ((codes.STOP_DONE, len(text)) if done else (codes.STOP_FULL, 0))
        assert out[:used].tobytes() == text[:used]
        assert done or room < 3 * len(raw)


def test_columns_of_record_with_most_properties_equal_reference() -> None:
    raw = b"".join(bytes([65 + i % 26]) + b"\x01" + bytes([97 + i % 7]) + b"\x02" for i in range(8191)) + b"Z\x01z"
    columns = np.zeros((codes.N_COLUMNS, 1), np.int64)
    columns[codes.PROPERTIES_LENGTH] = len(raw)
    assert taken_maps(read_only(raw), columns, 1, 2000) == [list(decode_properties(raw).items())]
    unlike = b"".join(f"{i:04x}\x01v\x02".encode() for i in range(4000))
    columns[codes.PROPERTIES_LENGTH] = len(unlike)
    assert taken_maps(read_only(unlike), columns, 1, 40_000) == [list(decode_properties(unlike).items())]
