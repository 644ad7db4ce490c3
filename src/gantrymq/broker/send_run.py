"""Plain sends to one topic that one read brought, read off their frames by a kernel.

Source: SendMessageRequestHeaderV2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gantrymq.broker.send_properties import ACTED_ON
from gantrymq.kernels import send_columns
from gantrymq.kernels.api import read_sends
from gantrymq.kernels.arrays import Bytes, read_only
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command_run import CommandRun

_MOST = 512
_TEXT_BYTES = 256 * 1024
_FEWEST = 2  # one alone is as quick in the ordinary way


class SendRun(CommandRun):
    """Sends that are plain as ``gantrymq.kernels.read_sends`` has it.

    ``columns`` (int64, the rows of ``gantrymq.kernels.send_columns``) has one column for each, ``text`` is their
    properties, ``wire`` the read they came with; both lengths and ``largest_queue_id`` are over all of them.
    """

    __slots__ = (
        "body_bytes", "columns", "largest_queue_id", "longest_body_bytes", "longest_properties_bytes", "text", "topic",
        "unique_key_bytes", "wire",
    )  # fmt: skip

    wire: Bytes
    text: Bytes
    columns: NDArray[np.int64]
    topic: str
    body_bytes: int
    unique_key_bytes: int
    longest_body_bytes: int
    longest_properties_bytes: int
    largest_queue_id: int

    def __len__(self) -> int:
        return int(self.columns.shape[1])


class FindSendRun:
    """Finds runs of SEND_MESSAGE_V2, with memory of its own. Thread rule: the event loop's thread."""

    code = int(RequestCode.SEND_MESSAGE_V2)

    def __init__(self) -> None:
        names = [name.encode() for name in sorted(ACTED_ON)]
        self._acted_on = read_only(b"".join(names))
        self._ends = np.cumsum([len(name) for name in names], dtype=np.int64)
        self._columns = np.empty((send_columns.N_ROWS, _MOST), np.int64)
        self._seen = np.empty((2, send_columns.MAX_NAMES), np.int64)
        self._text = np.empty(_TEXT_BYTES, np.uint8)

    def __call__(self, data: bytes, begin: int) -> SendRun | None:
        """The plain sends that the frames at ``data[begin:]`` begin with; None for fewer than two."""
        wire, columns = read_only(data), self._columns
        count, end, used, bodies, keys, body, properties, queue_id = read_sends(
            wire, begin, columns, self._text, self._acted_on, self._ends, self._seen
        )
        if count < _FEWEST:
            return None
        run = SendRun(self.code, data, begin, end)
        run.wire, run.text = wire, self._text[:used].copy()
        run.columns = np.ascontiguousarray(columns[:, :count])
        topic_at, length = int(columns[send_columns.TOPIC_AT, 0]), int(columns[send_columns.TOPIC_LENGTH, 0])
        run.topic = data[topic_at : topic_at + length].decode("ascii")
        run.body_bytes, run.unique_key_bytes, run.largest_queue_id = bodies, keys, queue_id
        run.longest_body_bytes, run.longest_properties_bytes = body, properties
        return run
