"""The frames between a master and its slaves, without I/O.

=================  ==============  ========================================================================
direction          bytes           meaning
=================  ==============  ========================================================================
master to slave    8, 4, size      offset in the log, size of the body, and the log's bytes from that offset
master to slave    8, 4            a heartbeat: the size is 0, the offset is the next that will be sent
slave to master    8               the end of the slave's log: first its request, later acknowledgements
=================  ==============  ========================================================================

All numbers are signed and big-endian. There is no magic, no version and no name. A master sends at most
haTransferBatchSize bytes (32,768) in a frame, and no frame crosses a file of the log. Bodies are cut anywhere, also
within a record.

Source: DefaultHAConnection, DefaultHAClient.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from gantrymq.errors import HAFrameError

HEADER_BYTES = 12
REPORT_BYTES = 8
MAX_BODY_BYTES = (4 << 20) - HEADER_BYTES  # a Java slave has a buffer of 4 MiB

LOGIN_OFFSET = -0x474D_5148_414C_0001  # instead of a request: the peer wants to log in (ha/login.py)
_HEADER = struct.Struct(">qi")
_REPORT = struct.Struct(">q")


class LogFrame(NamedTuple):
    """What a master sent: the bytes of its log from ``offset`` on. A heartbeat has no bytes."""

    offset: int
    body: bytes

    @property
    def is_heartbeat(self) -> bool:
        """Whether the frame only says which offset comes next."""
        return not self.body

    @property
    def end_offset(self) -> int:
        """The offset after the last byte, with which the next frame begins."""
        return self.offset + len(self.body)


def encode_header(offset: int, size: int) -> bytes:
    """Encode the header of a frame. A heartbeat has size 0 and nothing after the header."""
    return _HEADER.pack(offset, size)


def encode_report(offset: int) -> bytes:
    """Encode a slave's report: the end of its log, which is its request if it is the first of a connection."""
    return _REPORT.pack(offset)


LOGIN_BYTES = encode_report(LOGIN_OFFSET)


class FrameReader:
    """Cuts what a slave receives into frames. ``max_body_bytes`` limits the size that a header may name.

    Thread rule: one thread at a time.
    """

    def __init__(self, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._max_body_bytes = max_body_bytes
        self._received = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[LogFrame]:
        """Add received bytes. Yields the frames that are complete, in order; take all of them before the next call.

        Raises HAFrameError for an offset below 0 or a size that is not allowed; the connection is then of no use.
        """
        self._received += data
        position = 0
        try:
            while len(self._received) - position >= HEADER_BYTES:
                offset, size = _HEADER.unpack_from(self._received, position)
                if offset < 0 or not 0 <= size <= self._max_body_bytes:
                    raise HAFrameError(f"a frame of {size} bytes at offset {offset}")
                begin = position + HEADER_BYTES
                if len(self._received) - begin < size:
                    return
                position = begin + size
                yield LogFrame(offset, bytes(memoryview(self._received)[begin:position]))
        finally:
            del self._received[:position]


class ReportReader:
    """Cuts what a master receives into reports. Thread rule: one thread at a time."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Add received bytes. Returns the offsets that are complete, in order. Raises HAFrameError for one below 0."""
        received = self._rest + data
        whole = len(received) - len(received) % REPORT_BYTES
        self._rest = received[whole:]
        offsets = [offset for (offset,) in _REPORT.iter_unpack(received[:whole])]
        for offset in offsets:
            if offset < 0:
                raise HAFrameError(f"a report of the offset {offset}")
        return offsets
