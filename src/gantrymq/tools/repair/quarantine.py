"""Writes the quarantine of a store: ``lost+found``, a store of its own with the records whose queue nothing proves.

A record is there with its topic, its queue id and its bytes. Its physical offset and its queue offset are those that
the new log gives it; ``quarantine.json`` has the old ones, and its likely home. Every tool reads the directory as a
store: ``store log`` shows the records, ``store export`` writes their messages, and ``store ingest`` puts them back.

After a rebuild the records are in the store's own log, too, because a rebuild does not change the log. The list then
says which records of the log get no unit, so that a second rebuild leaves them out, and verify calls them quarantined.

An ext4 file system has a directory of this name at its root. Nothing in it is removed but what a rebuild has made.

Thread rule: one thread.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from gantrymq.format import names
from gantrymq.format.record import BLANK_SIZE, PHY_OFFSET_AT, QUEUE_OFFSET_AT
from gantrymq.fs.api import FileSystem
from gantrymq.store.entries import Use, names_for
from gantrymq.store.queue.queue_listing import QueueName
from gantrymq.store.recovery.swap_journal import clear_directory
from gantrymq.tools.read.quarantine_list import LIST
from gantrymq.tools.read.record_lookup import RecordLookup
from gantrymq.tools.repair.log_salvage import write_number
from gantrymq.tools.reports import Quarantined

_PAGE_BYTES = 4096


def raw_records(lookup: RecordLookup, records: Iterable[Quarantined]) -> dict[int, bytes]:
    """The bytes of records, by their physical offset."""
    stored = {record.phy_offset: lookup.record(record.phy_offset) for record in records}
    return {phy_offset: record[0] for phy_offset, record in stored.items() if record is not None}


def write_records(fs: FileSystem, store: Path, records: Sequence[Quarantined], raws: Mapping[int, bytes]) -> int:
    """Write the log of the quarantine of ``store`` and its list; durable on return. Raises DiskFullError.

    ``records`` are in the order of the log; ``raws`` has their bytes. Returns the size of the log file in bytes; its
    queues are still to be built.
    """
    directory, log = store / names.LOST_FOUND, bytearray()
    offsets = Counter[QueueName]()
    for item in records:
        record = np.frombuffer(bytearray(raws.get(item.phy_offset, b"")), np.uint8)
        if len(record):
            write_number(record, PHY_OFFSET_AT, len(log))
            write_number(record, QUEUE_OFFSET_AT, offsets[item.slot[:2]])
            offsets[item.slot[:2]] += 1
            log += record.tobytes()
    for name in names_for(Use.QUARANTINED):
        if fs.exists(directory / name):
            clear_directory(fs, directory / name)
    fs.make_directory(directory / names.COMMIT_LOG)
    size = -(-(len(log) + BLANK_SIZE) // _PAGE_BYTES) * _PAGE_BYTES
    _write(fs, directory / names.COMMIT_LOG / names.offset_name(0), bytes(log).ljust(size, b"\0"))
    _write(fs, directory / LIST, json.dumps([item.as_json() for item in records], indent=1).encode())
    fs.sync_directory(directory / names.COMMIT_LOG, directory, store)
    return size


def _write(fs: FileSystem, path: Path, data: bytes) -> None:
    file = fs.open(path, writable=True, create=True)
    try:
        file.resize(len(data))
        file.write_at(0, data)
        file.sync()
    finally:
        file.close()
