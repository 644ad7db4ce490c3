"""The topics of a broker: configured ones, system topics, and those created by a first send.

Thread rule: the event loop's thread.

Source: TopicConfigManager, TopicSysFlag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from gantrymq.broker import names
from gantrymq.broker.tables.attributes import TOPIC_ATTRIBUTES, alter, wrong_attribute
from gantrymq.broker.tables.versioned_table import TableVersion, persisted
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import PERM_INHERIT, PERM_READ, PERM_WRITE, LiveConfig
from gantrymq.errors import RemotingError
from gantrymq.model.limits import MAX_QUEUES
from gantrymq.model.message import TIMER_TOPIC
from gantrymq.remoting.bodies.topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper

_READ_WRITE = PERM_READ | PERM_WRITE
_SCHEDULE_QUEUES = 18
_BENCHMARK_QUEUES = 1024
UNIT_FLAG, UNIT_SUB_FLAG = 1, 2


def describe(topic: TopicConfig) -> str:
    """A topic as RocketMQ prints it in its remarks."""
    perm = "".join(
        letter if topic.perm & bit else "-"
        for letter, bit in (("R", PERM_READ), ("W", PERM_WRITE), ("X", PERM_INHERIT))
    )
    attributes = "{" + ", ".join(f"{key}={value}" for key, value in topic.attributes.items()) + "}"
    return (
        f"TopicConfig [topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums}, "
        f"writeQueueNums={topic.write_queue_nums}, perm={perm}, topicFilterType={topic.topic_filter_type}, "
        f"topicSysFlag={topic.topic_sys_flag}, order={str(topic.order).lower()}, attributes={attributes}]"
    )


def wrong_queues(topic: str, count: int) -> str | None:
    """Why a topic cannot have ``count`` queues; None if it can."""
    if count <= MAX_QUEUES:
        return None
    return f"The topic[{topic}] has {count} queues, more than {MAX_QUEUES} that a topic can have."


def queue_ids(topic: str, count: int) -> range:
    """The numbers of a topic's queues. Raises RemotingError if a file claims more than a topic can have."""
    wrong = wrong_queues(topic, count)
    if wrong is not None:
        raise RemotingError(wrong)
    return range(count)


class TopicConfigManager:
    """The table of topics. ``changed(made)`` is called when it must be registered, with the names of new topics.

    ``edits`` counts changes, so that a caller can see whether to save the table.
    """

    def __init__(self, config: LiveConfig, clock: Clock, changed: Callable[[list[str]], None] = lambda _: None) -> None:
        self._config, self._changed = config, changed
        self._version = TableVersion(clock)
        self._table: dict[str, TopicConfig] = {}
        self.system_topics = set(names.SYSTEM_TOPICS)
        self.going: set[str] = set()  # being deleted; not created again before their messages are deleted
        self.edits = 0
        for topic in self._system_topics():
            self._table[str(topic.topic_name)] = topic
            self.system_topics.add(str(topic.topic_name))

    def _system_topics(self) -> Iterable[TopicConfig]:
        broker = self._config.broker
        inherit = PERM_INHERIT | _READ_WRITE
        yield _topic(names.SELF_TEST_TOPIC, 1)
        if broker.auto_create_topic_enable:
            yield _topic(names.AUTO_CREATE_TOPIC, broker.default_topic_queue_nums, inherit)
        yield _topic(names.BENCHMARK_TOPIC, _BENCHMARK_QUEUES)
        yield _topic(broker.broker_cluster_name, 16, inherit if broker.cluster_topic_enable else PERM_INHERIT)
        yield _topic(broker.broker_name, 1, inherit if broker.broker_topic_enable else PERM_INHERIT)
        yield _topic(names.OFFSET_MOVED_EVENT, 1)
        yield _topic(names.SCHEDULE_TOPIC, _SCHEDULE_QUEUES)
        if broker.trace_topic_enable:
            yield _topic(broker.msg_trace_topic_name, 1)
        yield _topic(broker.broker_cluster_name + names.REPLY_TOPIC_SUFFIX, 1)
        yield _topic(names.REVIVE_TOPIC_PREFIX + broker.broker_cluster_name, broker.revive_queue_num)
        yield _topic(names.SYNC_MEMBER_PREFIX + broker.broker_name, 1, PERM_INHERIT)
        yield _topic(names.TRANS_HALF_TOPIC, 1)
        yield _topic(names.TRANS_OP_HALF_TOPIC, 1)
        yield _topic(names.ROCKSDB_TRANS_HALF_TOPIC, 1)
        yield _topic(names.ROCKSDB_TRANS_OP_HALF_TOPIC, 1)
        if self._config.store.timer_wheel_enable:
            yield _topic(TIMER_TOPIC, 1)

    # Queries

    def get(self, topic: str) -> TopicConfig | None:
        """The topic's configuration, or None (selectTopicConfig). The caller must not change it."""
        return self._table.get(topic)

    def __contains__(self, topic: str) -> bool:
        """Whether there is such a topic."""
        return topic in self._table

    @property
    def table(self) -> Mapping[str, TopicConfig]:
        """All topics by name."""
        return self._table

    @property
    def version(self) -> DataVersion:
        """The version of the table."""
        return self._version.value

    def is_order_topic(self, topic: str) -> bool:
        """Whether a topic is marked as ordered."""
        config = self._table.get(topic)
        return config is not None and config.order

    def is_system_topic(self, topic: str) -> bool:
        """Whether a topic is RocketMQ's own."""
        return topic in self.system_topics or topic.startswith(names.SYSTEM_TOPIC_PREFIX)

    # Changes

    def planned_by_send(self, topic: str, default_topic: str, queue_nums: int, sys_flag: int) -> TopicConfig | None:
        """The topic that a send creates with ``default_topic`` as template, once the send is accepted (:meth:`add`).

        Returns None if there is no such template, or if it may not be inherited. Raises RemotingError if the broker may
        have no more topics. (createTopicInSendMessageMethod)
        """
        pattern = self._table.get(default_topic)
        if pattern is None:
            return None
        perm = pattern.perm
        if default_topic == names.AUTO_CREATE_TOPIC and not self._config.broker.auto_create_topic_enable:
            perm = _READ_WRITE
        if not perm & PERM_INHERIT:
            return None
        queues = max(min(queue_nums, pattern.write_queue_nums), 0)
        created = _topic(topic, queues, perm & ~PERM_INHERIT)
        created.topic_sys_flag, created.topic_filter_type = sys_flag, pattern.topic_filter_type
        self._require_room([topic])
        return created

    def planned_for_group(self, topic: str, queue_nums: int, *, sys_flag: int = 0) -> TopicConfig:
        """As :meth:`planned_by_send`, a group's retry or dead letter topic; the existing one if there is one."""
        config = self._table.get(topic)
        if config is None:
            config = _topic(topic, queue_nums)
            config.topic_sys_flag = sys_flag
            self._require_room([topic])
        return config

    def add(self, planned: TopicConfig) -> None:
        """Create a planned topic, unless it exists."""
        if planned.topic_name not in self._table:
            self._put([planned])

    def create_for_group(
        self, topic: str, queue_nums: int, *, order: bool | None = None, sys_flag: int = 0
    ) -> TopicConfig | None:
        """A group's retry or dead letter topic, created if missing. None while it is being deleted.

        (createTopicInSendMessageBackMethod)

        ``order`` None keeps the mark of an existing topic. RocketMQ removes the mark with every message that is sent
        back, and sets it again with the next heartbeat.
        """
        config = self._table.get(topic)
        if config is not None:
            if order is not None and config.order != order and not self._config.is_slave:
                config = msgspec.structs.replace(config, order=order)
                self._put([config])
            return config
        if topic in self.going:
            return None
        if self._config.is_slave:  # it has the topics of its master
            return _topic(topic, queue_nums)
        created = _topic(topic, queue_nums)
        created.topic_sys_flag, created.order = sys_flag, bool(order)
        self._put([created])
        return created

    def grow_for_group(self, topic: str, queue_nums: int) -> bool:
        """Increase the queues of a group's retry topic if it has fewer. Returns whether it was changed.

        The number is never reduced, because messages in the queues must still be consumed.
        """
        config = self._table.get(topic)
        if config is None or min(config.read_queue_nums, config.write_queue_nums) >= queue_nums:
            return False
        read, write = max(config.read_queue_nums, queue_nums), max(config.write_queue_nums, queue_nums)
        self._put([msgspec.structs.replace(config, read_queue_nums=read, write_queue_nums=write)])
        return True

    def update(self, topics: list[TopicConfig]) -> None:
        """Create or change topics. Their attributes are changes, ``+name`` and ``-name``. Raises RequestRefused.

        (updateTopicConfigList)
        """
        ready = []
        for topic in topics:
            old = self._table.get(str(topic.topic_name))
            current = old.attributes if old is not None else {}
            if any(name[1:] == "reserve.time" for name in topic.attributes):
                raise wrong_attribute("Update topic reserveTime not supported")
            changed = alter(TOPIC_ATTRIBUTES, current, topic.attributes, create=old is None)
            ready.append(msgspec.structs.replace(topic, attributes=changed))
        self._put(ready)

    def set_order(self, topics: Iterable[str]) -> None:
        """Set ``order`` to true for each of ``topics`` that exists here.

        They are the topics under ORDER_TOPIC_CONFIG in the key-value configuration of a name server. No topic is set to
        false. Source: updateOrderTopicConfig.
        """
        for name in topics:
            config = self._table.get(name)
            if config is not None and not config.order:
                self._table[name] = msgspec.structs.replace(config, order=True)
                self._version.next()
                self.edits += 1

    def renew(self) -> None:
        """Register again although no topic changed, because the broker's permission did."""
        self._version.next()
        self.edits += 1
        self._changed([])

    def follow(self, table: Mapping[str, TopicConfig], version: DataVersion | None) -> None:
        """Take a master's topics, at a slave. Own system topics stay. None keeps the version, so that it differs."""
        own = {name: topic for name, topic in self._table.items() if name not in table and self.is_system_topic(name)}
        made = [name for name in table if name not in self._table]
        self._table = dict(table) | own
        if version is not None:
            self._version.value = version
        self.edits += 1
        self._changed(made)

    def delete(self, topic: str) -> bool:
        """Delete a topic. Returns whether it existed."""
        if self._table.pop(topic, None) is None:
            return False
        self._version.next()
        self.edits += 1
        return True

    def _put(self, topics: list[TopicConfig]) -> None:
        made = [name for topic in topics if (name := str(topic.topic_name)) not in self._table]
        self._require_room(made)
        for topic in topics:
            self._table[str(topic.topic_name)] = topic
            self._version.next()
        self.edits += 1
        self._changed(made)

    def _require_room(self, made: list[str]) -> None:
        max_topics = self._config.broker.max_topics
        if made and len(self._table) + len(made) > max_topics:
            raise RemotingError(f"the broker has {len(self._table)} topics, and may have {max_topics} (maxTopics)")

    # Saving and sending

    def to_body(self, topics: Iterable[TopicConfig] | None = None) -> TopicConfigSerializeWrapper:
        """The table, or some of it, with its version."""
        chosen = self._table if topics is None else {str(topic.topic_name): topic for topic in topics}
        return TopicConfigSerializeWrapper(topic_config_table=dict(chosen), data_version=self._version.value)

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """A function that makes the content of topics.json from the current table. It may run on any thread."""
        return partial(persisted, self.to_body())

    def to_json(self) -> dict[str, Any]:
        """The content of topics.json."""
        return self.snapshot()()

    def load(self, value: dict[str, Any]) -> None:
        """Load the content of topics.json. Raises RemotingCommandError or msgspec.ValidationError."""
        saved = msgspec.convert(value, TopicConfigSerializeWrapper, strict=False)
        self._table = saved.topic_config_table | {
            name: config for name, config in self._table.items() if name not in saved.topic_config_table
        }
        self._version.value = saved.data_version


def _topic(name: str, queue_nums: int, perm: int = _READ_WRITE) -> TopicConfig:
    queues = min(queue_nums, MAX_QUEUES)
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
