"""Deletes a topic with all that the broker knows of it, in the order that leaves nothing behind.

Source: AdminBrokerProcessor.deleteTopic.
"""

from __future__ import annotations

import asyncio

from gantrymq.broker import names
from gantrymq.broker.measures import Measures
from gantrymq.broker.pop.records import retry_topic
from gantrymq.broker.pop.service import Pop
from gantrymq.broker.sessions.sessions import Sessions
from gantrymq.broker.storage import Storage
from gantrymq.broker.store_log import log_deletion
from gantrymq.broker.tables.tables import Tables
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.model.receipt_handle import normal_topic

_PUTS_LOOK_S = 0.001


class TopicDeletion:
    """Deletes topics. Thread rule: the event loop's thread."""

    def __init__(
        self, config: LiveConfig, storage: Storage, tables: Tables, sessions: Sessions, pop: Pop, measures: Measures
    ) -> None:
        self._config, self._store, self._puts = config, storage.store, storage.puts
        self._topics, self._groups, self._offsets = tables.topics, tables.groups, tables.offsets
        self._transactions = tables.transaction_metrics
        self._consumers, self._holds, self._pop, self._measures = sessions.consumers, sessions.holds, pop, measures
        self._deleting = dict[str, asyncio.Task[None]]()

    async def delete_with_retries(self, topic: str) -> list[str]:
        """Delete a topic, then its retry topics, because its last pops may have come back in between."""
        groups = {*self._groups.table, *self._offsets.groups_of(topic)}
        await self.delete(topic)
        retries = self._retries_of(topic, groups) if self._config.broker.clear_retry_topic_when_delete_topic else []
        for name in retries:
            await self.delete(name)
        return retries

    def _retries_of(self, topic: str, groups: set[str]) -> list[str]:
        """The retry topics of a topic's popped messages.

        ``%RETRY%a_b_c`` may belong to group a and topic b_c, to group a_b and topic c, or be the topic of all retries
        of a group a_b_c. One that may still be of use stays. (RocketMQ deletes it.)
        """
        topics = []
        for name in self._topics.table:
            if not name.startswith(names.RETRY_PREFIX) or not name.endswith((f"+{topic}", f"_{topic}")):
                continue
            owner = name[len(names.RETRY_PREFIX) : -len(topic) - 1]
            is_v1 = name == retry_topic(topic, owner, is_v2=False)
            is_group = owner in groups or names.retry_topic(owner) in self._topics  # or was, until it was deleted
            if is_v1 and (not is_group or self._is_of_another(name, owner, groups)):
                continue
            topics.append(name)
        return topics

    def _is_of_another(self, retry: str, owner: str, groups: set[str]) -> bool:
        """Whether a retry topic of version 1 may belong to another group than ``owner``."""
        if retry.removeprefix(names.RETRY_PREFIX) in groups:
            return True
        others = (normal_topic(retry, group) for group in groups if group != owner)
        return any(other is not None and other in self._topics for other in others)

    async def delete(self, topic: str) -> None:
        """Delete a topic and all its data. A second deletion meanwhile waits for the first.

        If the second deletion ran after the first, it would delete messages that were sent to the topic since.
        """
        deleting = self._deleting.get(topic)
        if deleting is None:
            deleting = self._deleting[topic] = asyncio.ensure_future(self._delete_now(topic))
            deleting.add_done_callback(lambda _: self._deleting.pop(topic))
        await asyncio.shield(deleting)

    async def _delete_now(self, topic: str) -> None:
        self._topics.delete(topic)
        self._offsets.remove_topic(topic, self._consumers.groups_of(topic))
        self._pop.forget(topic=topic)
        self._measures.forgotten(topics=[topic])
        self._topics.going.add(topic)
        try:
            # Puts that were accepted before are deleted with the topic, and must not start a new queue after it.
            await self._puts.settled()  # checkpoints of its pops, too
            while self._puts.has(topic):
                await asyncio.sleep(_PUTS_LOOK_S)
            deleted = await asyncio.get_running_loop().run_in_executor(None, self._store.delete_topic, topic)
            log_deletion(topic, deleted)
            if self._store.timers is not None:
                self._store.timers.metrics.forget(topic)
            self._transactions.forget(topic)
            self._measures.meter.forget_topics([topic])  # the store's threads have measured until now
        finally:
            self._topics.going.discard(topic)
            self._holds.answer_all(topic)
