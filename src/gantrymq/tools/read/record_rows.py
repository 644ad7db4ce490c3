"""Whole records at given physical offsets, many at a time.

Kernels read a batch of records. A row is one column of the kernel's matrix as a list of ints, in the order of
:mod:`gantrymq.kernels.codes`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import DiskError
from gantrymq.format.index import has_index_key
from gantrymq.format.packed_body import decompress
from gantrymq.format.properties import decode_properties
from gantrymq.format.record import body_crc
from gantrymq.kernels import codes
from gantrymq.kernels.api import read_each
from gantrymq.kernels.arrays import new_columns, read_only
from gantrymq.model.flags import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6
from gantrymq.model.host import Host
from gantrymq.model.java import decode_utf8
from gantrymq.store.log.commit_log import CommitLog, fetch_record
from gantrymq.store.log.mapped_file import MappedFile

MAX_AT_ONCE = 2_048


class Record(NamedTuple):
    """A whole record. ``row`` has the positions of its parts in ``buffer``, the bytes of its file."""

    buffer: memoryview
    row: list[int]

    @property
    def size(self) -> int:
        """The size of the record in bytes."""
        return self.row[codes.SIZE]

    @property
    def topic(self) -> str:
        """The topic that the record names."""
        return decode_utf8(self._bytes(codes.TOPIC_AT, codes.TOPIC_LENGTH))

    @property
    def body(self) -> bytes:
        """The body as stored."""
        return self._bytes(codes.BODY_AT, codes.BODY_LENGTH)

    @property
    def is_body_whole(self) -> bool:
        """Whether the body matches the CRC in the record."""
        body = self.body
        return not body or body_crc(body) == self.row[codes.BODY_CRC]

    @property
    def properties(self) -> dict[str, str]:
        """The properties as Java reads them."""
        return decode_properties(self.raw_properties)

    @property
    def raw_properties(self) -> bytes:
        """The bytes of the properties."""
        return self._bytes(codes.PROPERTIES_AT, codes.PROPERTIES_LENGTH)

    def has_index_key(self, topic: str, key: str) -> bool:
        """Whether the index has the record under this topic and key, not only under their hash."""
        return has_index_key(self.topic, self.properties, topic, key)

    def plain_body(self, most_bytes: int) -> tuple[bytes, str]:
        """The decompressed body of at most ``most_bytes`` and ``""``; if that fails, the stored body and the reason."""
        if not self.row[codes.SYS_FLAG] & COMPRESSED:
            return self.body, ""
        try:
            return decompress(self.body, self.row[codes.SYS_FLAG], most_bytes), ""
        except ValueError as error:
            return self.body, f"{error}; it is shown as it is stored"

    def _bytes(self, at: int, length: int) -> bytes:
        start = self.row[at]
        return bytes(self.buffer[start : start + self.row[length]])

    def fields(self) -> dict[str, object]:
        """The fields that ``dump``, ``log`` and ``query`` have in common, from ``flag`` to ``msgId``."""
        buffer, row = self
        sys_flag, body_at = row[codes.SYS_FLAG], row[codes.BODY_AT]
        born_at, stored_at = row[codes.BORN_HOST_AT], row[codes.STORE_HOST_AT]
        born_host, _ = _host(bytes(buffer[born_at : born_at + (20 if sys_flag & BORN_HOST_V6 else 8)]))
        store_host, host_digits = _host(bytes(buffer[stored_at : stored_at + (20 if sys_flag & STORE_HOST_V6 else 8)]))
        properties_at = row[codes.PROPERTIES_AT]
        return {
            "flag": row[codes.FLAG],
            "sysFlag": sys_flag,
            "bornTimestamp": row[codes.BORN_TIMESTAMP],
            "bornHost": born_host,
            "storeTimestamp": row[codes.STORE_TIMESTAMP],
            "storeHost": store_host,
            "reconsumeTimes": row[codes.RECONSUME_TIMES],
            "preparedTransactionOffset": row[codes.PREPARED_OFFSET],
            "bodyCRC": row[codes.BODY_CRC],
            "properties": decode_properties(
                bytes(buffer[properties_at : properties_at + row[codes.PROPERTIES_LENGTH]])
            ),
            "bodyLength": row[codes.BODY_LENGTH],
            "bodySha256": hashlib.sha256(buffer[body_at : body_at + row[codes.BODY_LENGTH]]).hexdigest(),
            "msgId": f"{host_digits}{row[codes.PHY_OFFSET] & 0xFFFFFFFFFFFFFFFF:016X}",
        }


@lru_cache(maxsize=4096)
def _host(raw: bytes) -> tuple[str, str]:
    """The text of a host, and its hexadecimal digits in a message id."""
    return str(Host.from_bytes(raw)), raw.hex().upper()


class RecordRows:
    """Finds records of ``log`` by physical offset. *Thread rule*: one thread.

    ``report_error`` is called once with the text of each error of the disk. The keys of ``errors`` are these texts, and
    those about bytes that the file system has skipped already.
    """

    def __init__(self, log: CommitLog, report_error: Callable[[str], None]) -> None:
        self._log, self._report_error = log, report_error
        self._columns = new_columns(MAX_AT_ONCE)
        self.errors: dict[str, None] = {}

    def at(self, offset: int) -> Record | None:
        """The record at physical ``offset``, or None if no whole record begins there."""
        return self.read(np.array([offset], np.int64))[0]

    def read(self, offsets: NDArray[np.int64]) -> list[Record | None]:
        """The records at these physical offsets, at most ``MAX_AT_ONCE``; rising offsets are fastest."""
        cuts = np.flatnonzero(np.diff(offsets // self._log.file_size)) + 1
        records: list[Record | None] = []
        for begin, end in pairwise([0, *cuts.tolist(), len(offsets)]):
            records += self._read_in_one_file(offsets[begin:end])
        return records

    def _read_in_one_file(self, offsets: NDArray[np.int64]) -> list[Record | None]:
        count = len(offsets)
        file = self._log.queue.find(int(offsets[0])) if count else None
        if file is None:
            return [None] * count
        array = read_only(file.array.data)
        buffer, base, columns = array.data, file.file_from_offset, self._columns
        positions = np.array([self._fetched(file, position) for position in (offsets - base).tolist()], np.int64)
        read_each(array, positions, count, file.wrote_position, columns)
        return [
            Record(buffer, row) if row[codes.SIZE] and row[codes.PHY_OFFSET] == base + position else None
            for row, position in zip(columns[:, :count].T.tolist(), (offsets - base).tolist(), strict=True)
        ]

    def _fetched(self, file: MappedFile, position: int) -> int:
        """Load the record at ``position`` and return the position; -1 if no record begins there or it is unreadable."""
        if not 0 <= position < file.wrote_position:
            return -1
        try:
            length = fetch_record(file, position)
        except DiskError as error:
            if str(error) not in self.errors:
                self.errors[str(error)] = None
                self._report_error(str(error))
            return -1
        if (lost := file.file.lost_in(position, length)) is not None:  # reported at the end of the command
            self.errors[str(lost)] = None
            return -1
        return position
