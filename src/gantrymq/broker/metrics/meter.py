"""What the broker's parts call to measure their work. This class measures nothing, so that they need not ask.

Thread rule: the event loop's thread.

Source: BrokerMetricsManager, PopMetricsManager.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from gantrymq.broker.appends.send_runs import WireSends
from gantrymq.format.pop_checkpoint import PopKey
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.put_result import PutMessageResult


class ReviveKind(Enum):
    """The kinds of records of the revive topic (PopReviveMessageType)."""

    CHECKPOINT = "CK"
    ACK = "ACK"


class BrokerMeter:
    """Methods that do nothing, for :class:`gantrymq.broker.metrics.recorder.RecordingMeter` to override."""

    # Messages

    def stored(self, result: PutMessageResult, properties: str | None) -> None:
        """A send was stored. ``properties`` are those of its request."""

    def stored_run(self, sends: WireSends, result: PutMessageResult) -> None:
        """A run of sends was stored."""

    def got(self, group: str, topic: str, messages: int, size_bytes: int, *, is_retry: bool | None = None) -> None:
        """Messages were delivered to a group. Only a pop says whether they are from the retry topic."""

    def sent_to_dlq(self, group: str, topic: str) -> None:
        """A message went to the dead letters of its group."""

    # Transactions

    def committed(self, topic: str, latency_s: int) -> None:
        """A transactional message was committed, ``latency_s`` seconds after its birth."""

    def rolled_back(self, topic: str) -> None:
        """A transactional message was rolled back."""

    # POP

    def revive_record_put(self, key: PopKey, kind: ReviveKind, status: PutMessageStatus) -> None:
        """A checkpoint or an acknowledgement was put into the revive topic."""

    def revive_record_read(self, key: PopKey, kind: ReviveKind, queue_id: int) -> None:
        """A checkpoint or an acknowledgement was read from a queue of the revive topic."""

    def revived(self, key: PopKey, status: PutMessageStatus) -> None:
        """A message was put into the retry topic of its group."""

    def buffer_scanned(self, took_ms: int) -> None:
        """The checkpoints in memory were scanned."""

    # Administration

    def topics_updated(self, took_ms: int, *, is_done: bool, is_system: bool) -> None:
        """Topics were created or changed."""

    def groups_updated(self, took_ms: int, *, is_done: bool) -> None:
        """Groups were created or changed."""

    def forget_topics(self, topics: Collection[str]) -> None:
        """Remove the series of deleted topics."""

    def forget_groups(self, groups: Collection[str]) -> None:
        """Remove the series of deleted groups."""


NO_METER = BrokerMeter()
