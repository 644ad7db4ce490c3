"""The name server's table of topics: the number of queues by topic and broker.

Source: RouteInfoManager (topicQueueTable, topicQueueMappingInfoTable).
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from gantrymq.errors import RemotingCommandError
from gantrymq.remoting.bodies.route import PERM_READ, PERM_WRITE, QueueData, TopicQueueMappingInfo

MAX_NAME_LENGTH = 512  # %RETRY% and the longest group name have 262 characters
_MAX_MAPPED = 262_144
FLAG_UNIT = 1
FLAG_UNIT_SUB = 2


def check_names(names: Iterable[str]) -> None:
    """Raises RemotingCommandError for a name that is longer than any that RocketMQ allows."""
    for name in names:
        if len(name) > MAX_NAME_LENGTH:
            raise RemotingCommandError(f"a name of {len(name)} characters, more than {MAX_NAME_LENGTH}: {name[:64]!r}…")


def check_count(count: int, max_topics: int) -> None:
    """Raises RemotingCommandError for more than ``max_topics`` topics."""
    if count > max_topics:
        raise RemotingCommandError(f"there would be {count} topics, more than {max_topics} (maxTopics)")


class TopicTable:
    """Queues by topic and broker name, and the mappings of static topics. A topic without a broker is removed.

    ``entries`` is the number of pairs of a topic and a broker that has it.
    """

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, QueueData]] = {}
        self.entries = 0
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}

    def topics(self) -> list[str]:
        """The names of all registered topics."""
        return list(self._queues)

    def __len__(self) -> int:
        """The number of topics."""
        return len(self._queues)

    def queues(self, topic: str) -> dict[str, QueueData]:
        """The queues of a topic by broker name; empty if no broker has it."""
        return self._queues.get(topic, {})

    def mappings(self, topic: str) -> dict[str, TopicQueueMappingInfo] | None:
        """The mappings of a static topic by broker name; None for any other."""
        return self._mappings.get(topic)

    def has(self, topic: str, broker_name: str) -> bool:
        """Whether a broker has queues of a topic."""
        return broker_name in self._queues.get(topic, ())

    def check_entries(self, names: Collection[str], broker_names: Collection[str], max_entries: int) -> None:
        """Raises RemotingCommandError if these topics at these brokers would exceed ``max_entries`` entries."""
        if self.entries + len(names) * len(broker_names) <= max_entries:
            return
        new = sum(not self.has(topic, name) for topic in names for name in broker_names)
        if self.entries + new > max_entries:
            raise RemotingCommandError(
                f"the topics of all brokers would be {self.entries + new}, more than {max_entries} (maxTopicsOfBrokers)"
            )

    def put_broker(self, broker_name: str, announced: Mapping[str, QueueData], *, replace: bool) -> None:
        """Set the queues of a broker by topic. Without ``replace`` known topics keep their queues."""
        queues = self._queues
        for topic, data in announced.items():
            known = queues.get(topic)
            if known is None:
                queues[topic] = {broker_name: data}
                self.entries += 1
            elif broker_name not in known:
                known[broker_name] = data
                self.entries += 1
            elif replace:
                known[broker_name] = data

    def put(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Set the queues of a topic at the given brokers. Those of other brokers stay."""
        known = self._queues.get(topic)
        if known is None:
            known = self._queues[topic] = {}
        self.entries -= len(known)
        for data in queues:
            known[data.broker_name] = data
        self.entries += len(known)

    def check_mappings(self, mappings: Mapping[str, TopicQueueMappingInfo]) -> None:
        """Raises RemotingCommandError at the limit of mappings, which are never removed."""
        check_names(mappings)
        for mapping in mappings.values():
            check_names((mapping.bname or "", mapping.scope))
        announced = sum(1 + len(mapping.curr_id_map) for mapping in mappings.values())
        if announced > _MAX_MAPPED:
            raise RemotingCommandError(f"mappings of {announced} queues of static topics, more than {_MAX_MAPPED}")
        total = sum(1 + len(mapping.curr_id_map) for of in self._mappings.values() for mapping in of.values())
        if total + announced > _MAX_MAPPED:
            known = sum(
                1 + len(mapping.curr_id_map) for name in mappings for mapping in self._mappings.get(name, {}).values()
            )
            if total - known + announced > _MAX_MAPPED:
                raise RemotingCommandError(
                    f"mappings of {total} queues of static topics are kept, which is the maximum"
                )

    def put_mappings(self, mappings: dict[str, TopicQueueMappingInfo]) -> None:
        """Add the mappings of static topics. Old ones stay, because a broker sends them only when they change."""
        for topic, mapping in mappings.items():
            self._mappings.setdefault(topic, {})[mapping.bname or ""] = mapping

    def delete(self, topic: str) -> None:
        """Remove a topic."""
        self.entries -= len(self._queues.pop(topic, ()))

    def delete_at(self, topic: str, broker_names: Iterable[str]) -> None:
        """Remove a topic at some brokers, and the topic itself if no broker is left."""
        queues = self._queues.get(topic)
        if queues is None:
            return
        self.entries -= len(queues)
        for name in broker_names:
            queues.pop(name, None)
        self.entries += len(queues)
        if not queues:
            self.delete(topic)

    def of_brokers(self, broker_names: set[str]) -> list[str]:
        """The topics of at least one of the brokers, in one pass."""
        return [topic for topic, queues in self._queues.items() if not broker_names.isdisjoint(queues)]

    def drop_brokers(self, broker_names: set[str]) -> None:
        """Remove the queues of brokers that left."""
        for topic in self.of_brokers(broker_names):
            queues = self._queues[topic]
            dropped = [name for name in queues if name in broker_names]
            self.entries -= len(dropped)
            if len(dropped) == len(queues):
                del self._queues[topic]
                continue
            for name in dropped:
                del queues[name]

    def wipe_write_perm(self, broker_name: str) -> int:
        """Clear the write permission of a broker's queues. Returns the number of its topics."""
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def plain_perm(self, broker_name: str) -> int:
        """Remove all other bits from permissions that allow reads and writes.

        Returns the number of the broker's topics.
        """
        both = PERM_READ | PERM_WRITE
        return self._change_perm(broker_name, lambda perm: both if perm & both == both else perm)

    def with_flags(self, wanted: int, unwanted: int = 0) -> list[str]:
        """The topics whose sysFlag (at the first broker) has all bits of ``wanted`` and none of ``unwanted``."""
        topics = []
        for topic, queues in self._queues.items():
            flags = next(iter(queues.values())).topic_sys_flag
            if flags & wanted == wanted and not flags & unwanted:
                topics.append(topic)
        return topics

    def _change_perm(self, broker_name: str, changed: Callable[[int], int]) -> int:
        count = 0
        for queues in self._queues.values():
            data = queues.get(broker_name)
            if data is not None:
                data.perm = changed(data.perm)
                count += 1
        return count
