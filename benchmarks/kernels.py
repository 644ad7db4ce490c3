"""The speed of the kernels on one core: ``python benchmarks/kernels.py``.

Logs of 100-byte and of 1 KB bodies are written with ``encode_batch``, read back and dispatched. The last column is the
ratio to plain code for the same work: zlib and isal for the CRC, a loop over ``gantrymq.format`` for the rest. The best
of several runs counts. The log is larger than the processor's caches.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from isal import isal_zlib

from gantrymq.format.index import entry_at, file_size, index_keys, key_hash
from gantrymq.format.queue_entry import UNIT_SIZE, tags_code
from gantrymq.format.record import CheckCRC, Layout, check_record, decode_record, encode_record
from gantrymq.kernels import codes
from gantrymq.kernels.api import (
    assign_queues,
    crc32,
    encode_batch,
    encode_units,
    find_property,
    gather,
    gather_text,
    hosts_text,
    index_hashes,
    index_put,
    message_ids,
    properties_map,
    scan,
    tags_codes,
    valid_units,
)
from gantrymq.kernels.arrays import Bytes, Int64s, int64s, new_columns, new_scratch, read_only
from gantrymq.kernels.codes import MAX_HOST_TEXT
from gantrymq.kernels.encode import HOST_SIZE
from gantrymq.kernels.queue_table import new_table, queue_count
from gantrymq.store.log.record_batch import IndexEntries

CHUNK = 16_384  # records of a batch, as in the store
LOG_BYTES = 300_000_000
PLAIN_RECORDS = 2000
LEVELS = int64s([1000, 5000, 10_000])


class Log(NamedTuple):
    """A log in memory, and the columns of its first chunk of records."""

    buf: Bytes
    records: int
    columns: Int64s
    n: int


def best(work: Callable[[], object], repetitions: int = 5) -> float:
    """The seconds of the fastest run, after one unmeasured run that compiles."""
    work()
    times = []
    for _ in range(repetitions):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def report(name: str, seconds: float, records: int, size: int = 0, plain_seconds: float = 0.0) -> None:
    """Print nanoseconds per record, records and bytes per second, and the ratio to the speed of the plain code."""
    line = f"{name:28}{seconds / records * 1e9:10.1f} ns{records / seconds / 1e6:10.2f} M/s"
    line += f"{size / seconds / 1e9:10.2f} GB/s" if size else " " * 15
    print(line + (f"{plain_seconds / seconds:10.0f} ×" if plain_seconds else ""))


def arrow(parts: list[bytes]) -> tuple[Bytes, Int64s]:
    return read_only(b"".join(parts)), int64s(np.cumsum([0, *map(len, parts)]))


def sources(body_size: int, n: int) -> tuple[object, ...]:
    rng = np.random.default_rng(1)
    names = [
        b"KEYS\x01key%08d\x02UNIQ_KEY\x017F0000010A2B4C5D6E7F%012X\x02WAIT\x01true\x02TAGS\x01tag%d\x02" % (i, i, i % 7)
        for i in range(n)
    ]
    bodies = arrow([rng.bytes(body_size) for _ in range(n)])
    host = read_only(b"\x7f\0\0\1\0\0\x2a\x9f".ljust(HOST_SIZE, b"\0"))
    return *bodies, *arrow([b"BenchmarkTest%d" % (i % 4) for i in range(n)]), *arrow(names), host, host, 0


def numbered(n: int) -> Int64s:
    columns = new_columns(n)
    columns[:] = 0
    columns[codes.QUEUE_ID, :n] = np.arange(n) % 8
    columns[codes.BORN_TIMESTAMP] = columns[codes.STORE_TIMESTAMP] = 1795244327319
    return columns


def write_log(body_size: int) -> Log:
    given, columns = sources(body_size, CHUNK), numbered(CHUNK)
    out = np.zeros(LOG_BYTES, np.uint8)
    position, records, done = 0, 0, CHUNK
    while done == CHUNK:
        done, _, position = encode_batch(out, position, out.size, 0, *given, columns, 0, CHUNK)
        records += done
    matrix = new_columns(CHUNK)
    buf = read_only(out[:position])
    n, _, _ = scan(buf, 0, position, position, codes.CHECK_OFF, matrix)
    return Log(buf, records, matrix, n)


def bench_crc() -> None:
    print("CRC-32 (ISA-L, called from a kernel)")
    raw = np.random.default_rng(1).bytes(1 << 18)
    buf = read_only(raw)

    def once(way: Callable[..., object], *arguments: object) -> float:
        return best(lambda: [way(*arguments) for _ in range(200)], 20) / 200

    for size in (16, 100, 1024, 4096, 1 << 18):
        part = memoryview(raw)[:size]
        call = once(crc32, buf, 0, 0)  # the cost of a call from Python, which calls between kernels do not have
        times = once(crc32, buf, 0, size) - call, once(zlib.crc32, part), once(isal_zlib.crc32, part)
        ours, zlibs, isals = (f"{size / seconds / 1e9:8.2f}" for seconds in times)
        ours = ours if times[0] > call / 50 else "     ..."  # less than the call's own noise
        print(f"  {size:8} bytes{ours} GB/s   zlib{zlibs}   isal{isals} (both with their call)")


def plain_scan(log: Log, check: CheckCRC) -> float:
    view = log.buf.data

    def work() -> None:
        position = 0
        for _ in range(PLAIN_RECORDS):
            layout = check_record(view, position, log.buf.size, check)
            assert isinstance(layout, Layout)
            decode_record(view, position, layout)
            position += layout.size

    return best(work, 1) / PLAIN_RECORDS * log.records


def bench_scan(log: Log) -> None:
    end = log.buf.size

    def whole(check: int) -> None:
        position = 0
        while position < end:
            _, _, position = scan(log.buf, position, end, end, check, log.columns)

    for name, check, plain in (("no check", codes.CHECK_OFF, CheckCRC.OFF), ("body", codes.CHECK_BODY, CheckCRC.BODY)):
        seconds = best(partial(whole, check))
        report(f"scan, {name}", seconds, log.records, end, plain_scan(log, plain))


def bench_dispatch(log: Log) -> None:
    buf, _, columns, n = log
    messages = []
    for at in columns[codes.POS, :PLAIN_RECORDS].tolist():
        layout = check_record(buf.data, at, buf.size, CheckCRC.OFF)
        assert isinstance(layout, Layout)
        messages.append(decode_record(buf.data, at, layout))
    scale = n / PLAIN_RECORDS
    table, ordinals, tags = new_table(), np.empty(n, np.int64), np.empty(n, np.int64)
    report("assign_queues", best(lambda: assign_queues(buf, columns, 0, n, table, ordinals)), n)
    plain = best(lambda: [tags_code(m.topic, m.properties, m.store_timestamp_ms, LEVELS) for m in messages], 1)
    report("tags_codes", best(lambda: tags_codes(buf, columns, n, LEVELS, tags)), n, 0, plain * scale)
    queues = queue_count(table)
    units, fields = np.empty(n * UNIT_SIZE, np.uint8), np.empty((4, n), np.int64)
    starts = np.empty(queues + 1, np.int64)
    report(
        "encode_units",
        best(lambda: encode_units(columns, n, ordinals, tags, queues, units, fields, starts)),
        n,
    )
    report("valid_units", best(lambda: valid_units(read_only(units), 0, units.size, 2**62)), n)
    hashes, record_of = np.empty((2, 8 * n), np.int32)
    plain = best(lambda: [[key_hash(m.topic, key) for key in index_keys(m.properties)] for m in messages], 1)
    seconds = best(lambda: index_hashes(buf, columns, 0, n, 1, hashes, record_of))
    report("index_hashes (3 a record)", seconds, n, 0, plain * scale)


def bench_index() -> None:
    slots, entries, n = 5_000_000, 20_000_000, 2_000_000
    file = np.zeros(file_size(slots, entries), np.uint8)
    file[: file_size(slots, n)] = 1  # allocate the memory
    file[:] = 0
    hashes = np.random.default_rng(1).integers(0, 2**31, n)
    offsets, header = np.arange(n), np.array([0, 0, 0, 0, 0, 1])
    body_at = entry_at(slots, 0)
    found = IndexEntries.of_each(hashes, offsets, offsets)
    index_put(file, slots, file, body_at, entries, header.copy(), *found, 0, 1)
    begun = time.perf_counter()
    index_put(file, slots, file, body_at, entries, header, *found, 0, n)
    report("index_put (an entry)", time.perf_counter() - begun, n)


def bench_encode(body_size: int, log: Log) -> None:
    given, columns = sources(body_size, CHUNK), numbered(CHUNK)
    out = np.zeros(CHUNK * (body_size + 400), np.uint8)
    size = int(log.columns[codes.SIZE, : log.n].sum())
    at = log.columns[codes.POS, :PLAIN_RECORDS].tolist()
    messages = [decode_record(log.buf.data, p, check_record(log.buf.data, p, 2**40, CheckCRC.OFF)) for p in at]  # type: ignore[arg-type]
    properties = bytes(100)
    plain = best(lambda: [encode_record(m, b"BenchmarkTest0", properties) for m in messages], 1)
    seconds = best(lambda: encode_batch(out, 0, out.size, 0, *given, columns, 0, CHUNK))
    report("encode_batch", seconds, CHUNK, size, plain / PLAIN_RECORDS * CHUNK)


def bench_columns(log: Log) -> None:
    buf, _, columns, n = log
    room = int(columns[codes.SIZE, :n].sum())
    values, offsets = np.empty(room, np.uint8), np.empty(n + 1, np.int32)
    at, length = np.empty(n, np.int64), np.empty(n, np.int64)
    body, topic = (codes.BODY_AT, codes.BODY_LENGTH), (codes.TOPIC_AT, codes.TOPIC_LENGTH)
    bodies = int(columns[codes.BODY_LENGTH, :n].sum())
    report("gather bodies", best(lambda: gather(buf, *columns[list(body)], 0, n, values, offsets)), n, bodies)
    report("gather_text topics", best(lambda: gather_text(buf, *columns[list(topic)], 0, n, values, offsets)), n)
    name = read_only(b"TAGS")
    report("find_property", best(lambda: find_property(buf, columns, n, name, at, length)), n)
    scratch, items = new_scratch(), np.empty(room, np.uint8)
    lists = [np.empty(room // 4 + n, np.int32) for _ in range(3)]
    report(
        "properties_map (4 a record)",
        best(lambda: properties_map(buf, columns, 0, n, scratch, lists[0], values, lists[1], items, lists[2])),
        n,
    )
    hosts, flags = columns[codes.STORE_HOST_AT], columns[codes.SYS_FLAG]
    text = np.empty(n * (MAX_HOST_TEXT + 56), np.uint8)
    report("hosts_text", best(lambda: hosts_text(buf, hosts, flags, 0x20, 0, n, text, offsets)), n)
    phy = columns[codes.PHY_OFFSET]
    report("message_ids", best(lambda: message_ids(buf, hosts, flags, phy, 0, n, text, offsets)), n)


def main() -> None:
    bench_crc()
    for body_size in (100, 1024):
        log = write_log(body_size)
        print(f"\n{log.records:,} records with bodies of {body_size} bytes, {log.buf.size / 1e6:.0f} MB")
        bench_encode(body_size, log)
        bench_scan(log)
        bench_dispatch(log)
        bench_columns(log)
    print()
    bench_index()


if __name__ == "__main__":
    main()
