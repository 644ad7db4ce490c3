"""Encoding kernels against format.record.encode_record and format.properties.encode_properties."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import TOPICS, random_host, random_properties, seeds

from gantrymq.format.properties import encode_properties
from gantrymq.format.record import body_crc, encode_record
from gantrymq.kernels import codes
from gantrymq.kernels.api import encode_batch, fill_map, fill_property, scan, size_map
from gantrymq.kernels.arrays import int64s, new_columns, read_only
from gantrymq.kernels.encode import HOST_SIZE
from gantrymq.model.message import StoredMessage


def arrow(parts: list[bytes]):
    """Arrow's values and offsets of some bytes."""
    return read_only(b"".join(parts)), int64s(np.cumsum([0, *map(len, parts)]))


def random_rows(rng: random.Random, n: int, one_topic: bool) -> list[tuple[StoredMessage, bytes, bytes]]:
    rows, shared = [], rng.choice(TOPICS)
    for _ in range(n):
        topic = (shared if one_topic else rng.choice(TOPICS)).encode("utf-8", "replace")
        sys_flag = rng.choice([0, 0x10, 0x20, 0x30, 0x301])
        body = rng.randbytes(rng.choice([0, 1, 16, 100, 700]))
        born, store = random_host(rng, v6=bool(sys_flag & 0x10)), random_host(rng, v6=bool(sys_flag & 0x20))
        message = StoredMessage(
            "", rng.randrange(9), rng.randrange(2**40), 0, 0, rng.randrange(-5, 5), sys_flag, rng.randrange(2**41),
            born, rng.randrange(2**41), store, rng.randrange(3), rng.randrange(2**41), body_crc(body), body, {},
            2 if len(topic) > 127 else 1,
        )  # fmt: skip
        rows.append((message, topic, random_properties(rng)))
    return rows


def number_columns(rows) -> np.ndarray:
    columns = new_columns(len(rows))
    columns[:] = -7
    names = {
        codes.QUEUE_ID: "queue_id", codes.FLAG: "flag", codes.QUEUE_OFFSET: "queue_offset",
        codes.SYS_FLAG: "sys_flag", codes.BORN_TIMESTAMP: "born_timestamp_ms",
        codes.STORE_TIMESTAMP: "store_timestamp_ms", codes.RECONSUME_TIMES: "reconsume_times",
        codes.PREPARED_OFFSET: "prepared_transaction_offset",
    }  # fmt: skip
    for row, name in names.items():
        columns[row, : len(rows)] = [getattr(message, name) for message, _, _ in rows]
    return columns


def plain_batch(rows, position: int, limit: int, base: int, start: int, append_crc: bool):
    raw = b""
    for i in range(start, len(rows)):
        message, topic, properties = rows[i]
        message.phy_offset = base + position + len(raw)
        ends = properties + (b"\x02" if append_crc and properties and properties[-1] != 2 else b"")
        if len(topic) > 32767 or len(ends) + 20 * append_crc > 32767:
            return raw, i, codes.STOP_LENGTH
        record = encode_record(message, topic, properties, append_crc=append_crc)
        if position + len(raw) + len(record) + 8 > limit:
            return raw, i, codes.STOP_FULL_FILE
        raw += record
    return raw, len(rows), codes.STOP_DONE


def assert_encodes(rng: random.Random, rows, one_topic: bool, append_crc: bool) -> None:
    bodies = arrow([message.body for message, _, _ in rows])
    topics = arrow([topic for _, topic, _ in rows][: 1 if one_topic else None])
    properties = arrow([given for _, _, given in rows])
    born = read_only(b"".join(message.born_host.to_bytes().ljust(HOST_SIZE, b"?") for message, _, _ in rows))
    store = read_only(b"".join(message.store_host.to_bytes().ljust(HOST_SIZE, b"?") for message, _, _ in rows))
    columns, start, position, base = number_columns(rows), 0, rng.choice([0, 33]), rng.choice([0, 2**40])
    while start < len(rows):
        out = np.full(3500, 0x5A, np.uint8)
        limit = rng.choice([3500, 3000, exact_limit(rows[start], position, append_crc)])
        done, code, end = encode_batch(
            out, position, limit, base, *bodies, *topics, *properties, born, store, int(append_crc), columns, start,
            len(rows),
        )  # fmt: skip
        raw, expected_done, expected_code = plain_batch(rows, position, limit, base, start, append_crc)
        assert (done, code, end) == (expected_done, expected_code, position + len(raw))
        assert out.tobytes() == (b"\x5a" * position + raw).ljust(3500, b"\x5a")
        assert_columns_are_scanned(out, position, end, columns, start, done)
        start, position = done + (done == start), 0  # pass over a record that fits nowhere


def exact_limit(row, position: int, append_crc: bool) -> int:
    """The limit that leaves just eight bytes behind the next record, or one fewer."""
    message, topic, properties = row
    return min(
        position + len(encode_record(message, topic, properties, append_crc=append_crc)) + 8 - message.flag % 2, 3500
    )


def assert_columns_are_scanned(out, position, end, columns, start, done) -> None:
    again = new_columns(64)
    count, code, _ = scan(read_only(out), position, end, end, codes.CHECK_BODY, again)
    assert (count, code) == (done - start, codes.STOP_RANGE)
    assert (again[:, :count] == columns[:, start:done]).all()


@seeds(80)
def test_encoded_batch_equals_reference(seed: int, rng: random.Random) -> None:
    one_topic = rng.random() < 0.3
    assert_encodes(rng, random_rows(rng, rng.choice([1, 2, 12]), one_topic), one_topic, seed % 2 == 0)


@pytest.mark.parametrize("append_crc", [False, True])
@pytest.mark.parametrize("length", [32767, 32766, 32747, 32746, 32768])
def test_longest_topics_and_properties_are_encoded(length: int, append_crc: bool) -> None:
    message = random_rows(random.Random(1), 1, False)[0][0]
    for topic, properties in ((b"t" * length, b""), (b"t", b"a\x01".ljust(length, b"v"))):
        message.version = 2 if len(topic) > 127 else 1
        rows = [(message, topic, properties)]
        out, columns = np.zeros(40_000, np.uint8), number_columns(rows)
        host = message.born_host.to_bytes().ljust(HOST_SIZE), message.store_host.to_bytes().ljust(HOST_SIZE)
        done, code, end = encode_batch(
            out, 0, 40_000, 0, *arrow([message.body]), *arrow([topic]), *arrow([properties]),
            read_only(host[0]), read_only(host[1]), int(append_crc), columns, 0, 1,
        )  # fmt: skip
        raw, expected_done, expected_code = plain_batch(rows, 0, 40_000, 0, 0, append_crc)
        assert (done, code, out[:end].tobytes()) == (expected_done, expected_code, raw)


def test_encoded_rows_may_share_one_host() -> None:
    rng = random.Random(4)
    rows = random_rows(rng, 5, False)
    for message, _, _ in rows:
        message.sys_flag, message.born_host = 0x10, rows[0][0].born_host
        message.born_host = type(message.born_host)(bytes(range(16)), 9876)
        message.store_host = type(message.born_host)(b"\x0a\x00\x00\x01", 10911)
    out, columns = np.zeros(20_000, np.uint8), number_columns(rows)
    done, code, end = encode_batch(
        out, 0, 20_000, 0, *arrow([m.body for m, _, _ in rows]), *arrow([t for _, t, _ in rows]),
        *arrow([p for _, _, p in rows]), read_only(rows[0][0].born_host.to_bytes()),
        read_only(rows[0][0].store_host.to_bytes().ljust(HOST_SIZE)), 0, columns, 0, 5,
    )  # fmt: skip
    assert (done, code) == (5, codes.STOP_DONE)
    assert out[:end].tobytes() == plain_batch(rows, 0, 20_000, 0, 0, False)[0]


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x02"), max_size=90)


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=20))
def test_properties_from_columns_are_encoded(rows: list[tuple[str, str, str]]) -> None:
    names = ["TAGS", "KEYS", "ключ"]
    expected = [encode_properties({n: v for n, v in zip(names, row, strict=True) if v}) for row in rows]
    ends = np.cumsum([0, *map(len, expected)])
    cursors, out = ends[:-1].copy(), np.empty(int(ends[-1]), np.uint8)
    for name, values in zip(names, zip(*rows, strict=True) if rows else [(), (), ()], strict=True):
        column = arrow([value.encode() for value in values])
        fill_property(read_only(name.encode()), *column, len(rows), cursors, out)
    assert out.tobytes() == b"".join(expected)
    assert cursors.tolist() == ends[1:].tolist()


@given(st.lists(st.dictionaries(TEXTS, TEXTS, max_size=5), min_size=1, max_size=9), st.integers(0, 1))
def test_properties_from_map_are_encoded(rows: list[dict[str, str]], skipped: int) -> None:
    entries = [(key.replace("\x01", ""), value) for row in rows for key, value in row.items()]
    ends = int64s(np.cumsum([0, *map(len, rows)]))[skipped:]
    keys, items = (
        arrow([text.encode() for text in texts]) for texts in (zip(*entries, strict=True) if entries else ((), ()))
    )
    n = len(ends) - 1
    sizes = np.zeros(n + 1, np.int64)
    size_map(ends, keys[1], items[1], n, sizes[1:])
    cursors = np.cumsum(sizes)
    out = np.zeros(int(cursors[-1]), np.uint8)
    fill_map(ends, *keys, *items, n, cursors, out)
    expected = [
        b"".join(f"{key}\x01{value}\x02".encode() for key, value in entries[start:stop])
        for start, stop in pairwise(ends)
    ]
    assert out.tobytes() == b"".join(expected)
    assert sizes[1:].tolist() == [len(row) for row in expected]
