"""The deletion of a topic from an open store: its queues, their directories, and the note that it is deleted.

Source: DefaultMessageStore.deleteTopics, cleanUnusedTopic.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from gantrymq.clock import Clock
from gantrymq.errors import StoreBehindError
from gantrymq.store.durability import Durability
from gantrymq.store.opening import StoreParts
from gantrymq.store.puts import Puts
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.reput import ReputMessageService

_CATCH_UP_S = 5.0
_CATCH_UP_STEP_S = 0.001


class DeletedQueues(NamedTuple):
    """How many queues a deletion removed, and how many messages they had."""

    queues: int
    messages: int


class Deletions:
    """The deletions of topics from an open store. They take the lock of ``puts``.

    ``wake_dispatch`` makes ``dispatch`` continue.

    Thread rule: every method may be called from any thread.
    """

    def __init__(
        self,
        parts: StoreParts,
        *,
        puts: Puts,
        durability: Durability,
        dispatch: ReputMessageService,
        wake_dispatch: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._root, self._log, self._queues, self._deleted = parts.paths.root, parts.log, parts.queues, parts.deleted
        self._puts, self._durability = puts, durability
        self._dispatch, self._wake_dispatch = dispatch, wake_dispatch
        self._clock = clock

    def was_deleted(self, topic: str) -> bool:
        """Whether a topic of this name was deleted, and the log may still have its records. Thread rule: any thread."""
        return topic in self._deleted.delayed_ends

    def is_deleted(self, topic: str, phy_offset: int) -> bool:
        """Whether a topic was deleted after a record at ``phy_offset``, which is about its messages, was put.

        Thread rule: any thread.
        """
        return self._deleted.is_deleted(topic, phy_offset, b"")

    def delete_topic(self, topic: str) -> DeletedQueues:
        """Remove the queues of a topic that have messages. The messages stay in the log until retention removes them.

        Waits until everything put so far is dispatched, finally under the put lock: a later unit would start the queue
        again at its old offset. If the topic has messages, the log is flushed before the deletion is recorded: after a
        power cut, a deletion whose last message is missing is ignored. Delayed messages for the topic are not delivered
        any more. The directories of the topic go, too, unless they hold something else. Raises StoreBehindError if
        dispatch or flush takes too long.
        """
        deadline_s = self._clock.monotonic_s() + _CATCH_UP_S
        self._catch_up(deadline_s)
        if self._queues_with_messages(topic):
            self._make_durable(self._dispatch.queues_end_offset, deadline_s)  # most of it before the lock is taken
        with self._deleted.guard, self._puts.lock:
            self._require_dispatched(deadline_s)
            removed = self._queues_with_messages(topic)
            if removed:  # recorded first: after a kill in between some queues would stay
                newest, end = max(removed, key=lambda queue: queue.max_physic_offset), self._log.wrote_offset
                self._make_durable(end, deadline_s)
                self._deleted.add(topic, newest.last_phy_offset, newest.max_physic_offset, end, self._log.min_offset)
            else:
                self._deleted.add_without_messages(topic, self._log.wrote_offset)
            messages = sum(queue.max_offset - queue.min_offset for queue in removed)
            for queue in removed:
                queue.destroy()
                self._puts.forget_queue(topic, queue.queue_id)
            self._queues.remove_empty_directories(topic)
        return DeletedQueues(len(removed), messages)

    def clean_unused(self, is_used: Callable[[str], bool]) -> None:
        """Remove the empty directories of topics that are not used, which earlier deletions have left.

        Raises StoreBehindError if dispatch, which may be making a directory, takes too long.
        """
        unused = [topic for topic in self._queues.topic_directories() if not is_used(topic)]
        deadline_s = self._clock.monotonic_s() + _CATCH_UP_S
        if unused:
            with self._puts.lock:
                self._require_dispatched(deadline_s)
                for topic in unused:
                    self._queues.remove_empty_directories(topic)

    def _require_dispatched(self, deadline_s: float) -> None:
        self._catch_up(deadline_s)
        if self._dispatch.behind_bytes:
            raise StoreBehindError(self._root, "the dispatch is behind, so no queue is deleted: try again")

    def _queues_with_messages(self, topic: str) -> list[ConsumeQueue]:
        return [queue for queue in self._queues if queue.topic == topic and queue.max_offset > 0]

    def _catch_up(self, deadline_s: float) -> None:
        while self._dispatch.behind_bytes and self._clock.monotonic_s() < deadline_s:
            self._wake_dispatch()
            time.sleep(_CATCH_UP_STEP_S)

    def _make_durable(self, end_offset: int, deadline_s: float) -> None:
        """Wait until the log is on the disk up to ``end_offset``. Raises StoreBehindError at the deadline."""
        while self._log.queue.flushed_where < end_offset:
            if self._clock.monotonic_s() >= deadline_s:
                raise StoreBehindError(self._root, "the log is not flushed, so no queue is deleted: try again")
            self._durability.ask_for_flush()
            time.sleep(_CATCH_UP_STEP_S)
