"""Commit logs of any length on a small disk: files of 1 GiB with some records, a blank up to the end, and a hole."""

from __future__ import annotations

import os
from pathlib import Path

from gantrymq.format.names import COMMIT_LOG, offset_name
from gantrymq.format.record import body_crc, encode_blank, encode_record
from gantrymq.model.message import LOOPBACK, StoredMessage

_FILE = 1 << 30
_QUEUES = 4
_FIRST_MS = 1_750_000_000_000
_BODY = bytes(1024)


def write_files(store: Path, first: int, stop: int, records_a_file: int) -> None:
    """Write the log files ``first`` to before ``stop``, the last one without a blank. Writes nothing else."""
    folder = store / COMMIT_LOG
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, stop):
        _write_file(folder, number, records_a_file, is_last=number == stop - 1)


def _write_file(folder: Path, number: int, count: int, *, is_last: bool) -> None:
    base, records, size = number * _FILE, [], 0
    for i in range(number * count, (number + 1) * count):
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
