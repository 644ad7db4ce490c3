"""Puts that wait as one: each has its own result, and all of them share the cost of a put.

Source: none; RocketMQ puts each by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.record import BLANK_SIZE
from gantrymq.model.host import Host
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.log.appendable import Appendable, NextOffsets
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.put_result import PutMessageResult

_PUT_OK = PutMessageStatus.PUT_OK


class PutGroup:
    """At least one appendable, in the order in which they are stored, as one appendable.

    One that cannot be stored is left out. ``results`` has the result of each once the group was appended. The result of
    the group has the physical offset of each put that was stored, and is that of the first if there is none.
    """

    __slots__ = ("_each", "results", "size_bytes")

    def __init__(self, each: Sequence[Appendable]) -> None:
        self._each = each
        self.results: list[PutMessageResult] = []

    @property
    def topic(self) -> str:
        """The topic of the first."""
        return self._each[0].topic

    @property
    def queue_id(self) -> int:
        """The queue id of the first."""
        return self._each[0].queue_id

    @property
    def body_bytes(self) -> int:
        """The size of all bodies in bytes."""
        return sum(appendable.body_bytes for appendable in self._each)

    @property
    def wait_store_msg_ok(self) -> bool:
        """Whether one of them waits for the disk."""
        return any(appendable.wait_store_msg_ok for appendable in self._each)

    def check(self, config: MessageStoreConfig, store_host: Host) -> PutMessageStatus:
        """Check each. Returns PUT_OK if one can be stored, or the reason why the first cannot."""
        statuses = [appendable.check(config, store_host) for appendable in self._each]
        self.results = [
            PutMessageResult(status, appendable.topic, appendable.queue_id)
            for appendable, status in zip(self._each, statuses, strict=True)
        ]
        sizes = [
            appendable.size_bytes for appendable, status in zip(self._each, statuses, strict=True) if status is _PUT_OK
        ]
        self.size_bytes = sum(sizes)
        if not sizes:
            return statuses[0]
        fits = self.size_bytes + BLANK_SIZE <= config.mapped_file_size_commit_log
        return _PUT_OK if fits else PutMessageStatus.MESSAGE_ILLEGAL

    def append(
        self, file: MappedFile, next_offsets: NextOffsets, store_timestamp_ms: int, store_host: Host
    ) -> PutMessageResult:
        """Write the records of each that passed its check."""
        begin = file.wrote_position
        for number, checked in enumerate(self.results):
            if checked.status is _PUT_OK:
                appendable = self._each[number]
                self.results[number] = appendable.append(file, next_offsets, store_timestamp_ms, store_host)
        stored = [result for result in self.results if result.is_stored]
        if not stored:
            return self.results[0]
        first = stored[0]
        return PutMessageResult(
            _PUT_OK, first.topic, first.queue_id, first.phy_offset, first.queue_offset, file.wrote_position - begin,
            store_timestamp_ms, store_host, [result.phy_offset for result in stored],
        )  # fmt: skip
