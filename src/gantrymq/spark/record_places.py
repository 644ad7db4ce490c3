"""Where records begin, without reading the log as a whole.

The consume queues know places: the nearest one in front of the wanted offset is taken from them, and only from there
on the log itself is read.
"""

from __future__ import annotations

from collections.abc import Iterable

from gantrymq.errors import DiskError
from gantrymq.kernels import codes
from gantrymq.spark.remote_store import RemoteStore
from gantrymq.store.consume_queue import ConsumeQueue
from gantrymq.store.log_scanner import LogScanner
from gantrymq.store.reader import StoreReader
from gantrymq.store.record_scan import RecordScan


def record_at_or_after(reader: StoreReader, guides: Iterable[ConsumeQueue], offset: int) -> int:
    """Where the first record at or behind ``offset`` begins in its file; the file's end where it cannot be told.

    ``guides`` are queues to ask for a place near it.
    """
    file = reader.log.queue.find(offset)
    if file is None:
        return offset
    known = file.file_from_offset
    for queue in guides:
        unit = queue.entry(queue.find_first(offset) - 1)
        if unit is not None and known < unit.phy_offset < offset and is_record(reader, unit.phy_offset):
            known = unit.phy_offset
    found = _scan_to(reader, known, offset)
    return reader.log.roll_next_file(offset) if found is None else found


def is_record(reader: StoreReader | RemoteStore, offset: int) -> bool:
    """Whether a readable record begins at ``offset``: a place that a damaged unit names is not believed."""
    return reader.message_at(offset) is not None


def _scan_to(reader: StoreReader, start: int, target: int) -> int | None:
    """The first record at or behind ``target``, by the records from ``start`` on; None where they break off before.

    The scanner asks for pages before it looks at them: a bad sector, or a file that was cut, ends no process.
    """
    scanner = LogScanner(reader.log, start, target, RecordScan(codes.CHECK_OFF))
    try:
        for _ in scanner:
            pass
    except DiskError:
        return None
    return None if scanner.stop else scanner.offset
