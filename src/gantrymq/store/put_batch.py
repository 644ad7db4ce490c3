"""Many messages in one put: a list of them, or an Arrow table with a row for each.

Columns of a table: ``topic`` (string) and ``body`` (binary or string) must be there; ``queue_id``, ``tags``, ``keys``
(list of strings, or one string), ``properties`` (map of strings), ``delay_level``, ``flag``, ``sys_flag``,
``born_timestamp_ms``, ``reconsume_times`` may be. A row where topic or body is null is MESSAGE_ILLEGAL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.batch_columns import BatchColumns, of_messages, of_table

if TYPE_CHECKING:
    import pyarrow as pa

_OPTIONAL = (
    "queue_id", "tags", "keys", "properties", "delay_level", "flag", "sys_flag", "born_timestamp_ms", "reconsume_times",
)  # fmt: skip
_ILLEGAL = Message("", b"")  # without a topic no put takes it


@dataclass(slots=True)
class PutBatchResult:
    """What became of a batch.

    ``status`` is that of the batch as a whole: PUT_OK, FLUSH_DISK_TIMEOUT, or SERVICE_NOT_AVAILABLE where the store
    takes none. ``phy_offsets``, ``queue_offsets`` and ``sizes`` are int64 with one number for each message in order, -1
    where it was rejected; ``rejected`` says why, by its place in the batch.
    """

    status: PutMessageStatus
    phy_offsets: NDArray[np.int64]
    queue_offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    rejected: dict[int, PutMessageStatus] = field(default_factory=dict)

    @classmethod
    def empty(cls, count: int) -> PutBatchResult:
        """A result for ``count`` messages of which none is stored yet."""
        numbers = np.full((3, count), -1, np.int64)
        return cls(PutMessageStatus.PUT_OK, numbers[0], numbers[1], numbers[2])

    def reject_rest(self, why: PutMessageStatus) -> None:
        """Say of every message that neither is stored nor was rejected that it was, and why."""
        for place in np.flatnonzero(self.phy_offsets < 0).tolist():
            self.rejected.setdefault(place, why)

    @property
    def end_offset(self) -> int:
        """Behind the last stored record; -1 where none was."""
        return int((self.phy_offsets + self.sizes).max(initial=-1))


# Making columns takes 0.6 ms for any list. So many messages go into the log one by one in that time.
FEW_MESSAGES = 200


def columns_of(batch: Sequence[Message] | pa.Table, config: MessageStoreConfig) -> BatchColumns | None:
    """The columns of a plain batch; None for one whose messages go one by one: they must, or that is faster."""
    if not len(batch):
        return None
    if isinstance(batch, Sequence):
        return of_messages(batch, config) if len(batch) >= FEW_MESSAGES else None
    return of_table(batch, config)


def messages_of(batch: Sequence[Message] | pa.Table) -> Iterator[Message]:
    """The messages of a batch, one by one; raises KeyError where a table lacks a column it must have."""
    if isinstance(batch, Sequence):
        yield from batch
        return
    names = [name for name in _OPTIONAL if name in batch.column_names]
    for chunk in batch.select(["topic", "body", *names]).to_batches():
        for row in chunk.to_pylist():
            yield _message(row)


def _message(row: dict[str, Any]) -> Message:
    if row["topic"] is None or row["body"] is None:
        return _ILLEGAL
    given = {name: value for name, value in row.items() if value is not None}
    body, keys = given["body"], given.get("keys", ())
    given["body"] = body.encode() if isinstance(body, str) else body
    given["keys"] = keys.split() if isinstance(keys, str) else [key for key in keys if key is not None]
    given["properties"] = {name: value or "" for name, value in dict(given.get("properties", ())).items()}
    return Message(**given)
