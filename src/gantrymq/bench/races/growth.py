"""What must not grow with the store: time and memory of opening it, recovering it, getting from it.

The stores have commit log files of 1 GiB that are nearly all hole: a few records, then a blank up to the end. A clean
open looks at the ends only; recovery after a kill begins with the last files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gantrymq.bench.process import run_command, run_ours
from gantrymq.format.names import offset_name
from gantrymq.format.record import body_crc, encode_blank, encode_record
from gantrymq.model.message import LOOPBACK, StoredMessage

SIZES_GIB = (1, 2, 10, 50, 100)
_FILE = 1 << 30
_RECORDS_A_FILE = 1000
_QUEUES = 4
_GETS = 20_000
_FIRST_MS = 1_750_000_000_000
_BODY = bytes(1024)


@dataclass(frozen=True)
class Growth:
    """The costs at one size: times in ms (of a get in µs), memory in MiB without page cache."""

    size_gib: int
    rebuild_ms: float
    open_ms: float
    info_ms: float
    recover_ms: float
    get_us: float
    rss_anon_mib: float


def measure(folder: Path, sizes_gib: tuple[int, ...], report: Callable[[str], None]) -> list[dict[str, Any]]:
    """The costs at every size; the same store grows from one to the next."""
    store, made, found = folder / "growing", 0, []
    for size_gib in sizes_gib:
        report(f"a store of {size_gib} GiB")
        for number in range(max(made - 1, 0), size_gib):
            _write_file(store / "commitlog", number, is_last=number == size_gib - 1)
        made = size_gib
        found.append(asdict(_measure(store, size_gib)))
    return found


def _measure(store: Path, size_gib: int) -> Growth:
    rebuild_ms = _took_ms("store", "recover", str(store))
    opened = run_ours("open_reader", store=store)
    info_ms = _took_ms("store", "info", str(store))
    got = run_ours("get_each", store=store, count=_GETS)
    (store / "abort").write_text("1")
    recover_ms = _took_ms("store", "recover", str(store))
    get_us, memory_mib = got["getMicros"], opened["rssAnonMib"]
    return Growth(size_gib, rebuild_ms, opened["openMs"], info_ms, recover_ms, get_us, memory_mib)


def _write_file(folder: Path, number: int, *, is_last: bool) -> None:
    """A file of the log: its records, a blank where another file follows, and a hole."""
    folder.mkdir(parents=True, exist_ok=True)
    base, records, size = number * _FILE, [], 0
    for i in range(number * _RECORDS_A_FILE, (number + 1) * _RECORDS_A_FILE):
        raw = encode_record(_message(i, base + size), b"growth", f"KEYS\1key-{i}\2".encode())
        records.append(raw)
        size += len(raw)
    path = folder / offset_name(base)
    path.write_bytes(b"".join(records) + (b"" if is_last else encode_blank(_FILE - size)))
    os.truncate(path, _FILE)


def _message(number: int, phy_offset: int) -> StoredMessage:
    stored_ms = _FIRST_MS + number
    return StoredMessage(
        topic="growth",
        queue_id=number % _QUEUES,
        queue_offset=number // _QUEUES,
        phy_offset=phy_offset,
        size_bytes=0,
        flag=0,
        sys_flag=0,
        born_timestamp_ms=stored_ms,
        born_host=LOOPBACK,
        store_timestamp_ms=stored_ms,
        store_host=LOOPBACK,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=body_crc(_BODY),
        body=_BODY,
        properties={},
    )


def _took_ms(*words: str) -> float:
    began = time.perf_counter()
    run_command(*words)
    return (time.perf_counter() - began) * 1000
