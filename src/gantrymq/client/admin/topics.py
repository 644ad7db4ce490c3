"""Administration of topics.

Source: DefaultMQAdminExtImpl, UpdateTopicSubCommand, DeleteTopicSubCommand, TopicStatusSubCommand.
"""

from __future__ import annotations

from collections.abc import Mapping

from gantrymq.client.admin.base import AdminBase, order, question
from gantrymq.client.arguments import checks_arguments, text
from gantrymq.client.requests import calls
from gantrymq.client.requests.calls import Call, success
from gantrymq.errors import MQBrokerError, MQClientError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.model.system_names import AUTO_CREATE_TOPIC
from gantrymq.remoting.bodies.group import GroupList
from gantrymq.remoting.bodies.route import PERM_READ, PERM_WRITE
from gantrymq.remoting.bodies.topic import (
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from gantrymq.remoting.body import by_queue
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import QueryTopicConsumeByWhoRequestHeader
from gantrymq.remoting.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    PutKVConfigRequestHeader,
)
from gantrymq.remoting.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicsByClusterRequestHeader,
    GetTopicStatsInfoRequestHeader,
)

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


@checks_arguments(topic=text)  # any name, because stores have topics with names that no client would create
class TopicAdmin(AdminBase):
    """Topics of a cluster."""

    def create_topic(
        self,
        topic: str,
        *,
        read_queue_nums: int = 8,
        write_queue_nums: int = 8,
        perm: int = PERM_READ | PERM_WRITE,
        order_topic: bool = False,
        attributes: Mapping[str, str] | None = None,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> None:
        """Create or change a topic, at one broker, in one cluster, or in all (createAndUpdateTopicConfig).

        ``attributes`` has mqadmin's syntax: ``{"+message.type": "FIFO"}`` sets one, ``{"-message.type": ""}`` removes
        it.
        """
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=read_queue_nums,
            write_queue_nums=write_queue_nums,
            perm=perm,
            order=order_topic,
            attributes=dict(attributes or {}),
        )
        self.put_topic_config(config, broker=broker, cluster=cluster)

    def put_topic_config(self, config: TopicConfig, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Create or change a topic with all fields of a configuration (createAndUpdateTopicConfig).

        Its ``attributes`` have the syntax of :meth:`create_topic`.
        """
        changes = ",".join(f"{key}={value}" if value else key for key, value in config.attributes.items())
        header = CreateTopicRequestHeader(
            topic=self._full(config.topic_name or ""),
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=changes,
        )
        self._call_all(self._masters(broker, cluster), order(header))

    def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic at its brokers and name servers; with ``cluster`` only there (deleteTopic).

        The order configuration of the topic at the name servers is deleted too, so that a new topic of that name has
        its own. With ``cluster`` the brokers of other clusters stay in it.
        """
        full = self._full(topic)
        within = self.cluster_info().cluster_addr_table.get(cluster, []) if cluster is not None else None
        self._call_all(self._masters(None, cluster), order(DeleteTopicRequestHeader(topic=full)))
        delete_header = DeleteTopicFromNamesrvRequestHeader(topic=full, cluster_name=cluster)
        self._call_all(self._name_servers(), order(delete_header))
        order_counts = {} if within is None else self.order_config(topic)
        self.put_order_config(
            topic, {name: count for name, count in order_counts.items() if name not in (within or ())}
        )

    def order_config(self, topic: str) -> dict[str, int]:
        """The queues of an ordered topic by broker, from ORDER_TOPIC_CONFIG of the name servers; empty if it has none.

        Producers send only to these queues. Every broker marks a topic that is in it as ordered when it registers.
        """
        header = GetKVConfigRequestHeader(namespace=ORDER_TOPIC_CONFIG, key=self._full(topic))
        call = Call(
            lambda: RemotingCommand.request(header),
            lambda response, address: success(response, address).read(GetKVConfigResponseHeader).value,
        )
        try:
            text = self._client.ask_name_server(call) or ""
        except MQBrokerError as error:
            if error.response_code != ResponseCode.QUERY_NOT_FOUND:
                raise
            text = ""
        parts = [part.partition(":") for part in text.split(";")]
        return {broker: int(count) for broker, _, count in parts if count.isascii() and count.isdecimal()}

    def put_order_config(self, topic: str, counts: Mapping[str, int]) -> None:
        """Replace the queues of an ordered topic by broker. Without any the topic is not ordered any more."""
        full = self._full(topic)
        text = ";".join(f"{broker}:{count}" for broker, count in sorted(counts.items()))
        header = (
            PutKVConfigRequestHeader(namespace=ORDER_TOPIC_CONFIG, key=full, value=text)
            if text
            else DeleteKVConfigRequestHeader(namespace=ORDER_TOPIC_CONFIG, key=full)
        )
        self._call_all(self._name_servers(), order(header))

    def follow_queues(self, topic: str, counts: Mapping[str, int]) -> None:
        """Write new numbers of queues to write into the order configuration, for brokers that it has."""
        before = self.order_config(topic)
        after = before | {broker: count for broker, count in counts.items() if broker in before}
        if after != before:
            self.put_order_config(topic, after)

    def topics(self) -> list[str]:
        """All topics, system topics included; with a namespace only its topics (fetchAllTopicList)."""
        names = self._client.ask_name_server(calls.topic_list())
        return self._shown(names)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics of a cluster (fetchTopicsByCLuster)."""
        call = question(GetTopicsByClusterRequestHeader(cluster=cluster), TopicList)
        return self._shown(self._client.ask_name_server(call).topic_list)

    def topic_config(self, topic: str, broker: str) -> TopicConfig:
        """A topic's configuration at a broker's address (examineTopicConfig)."""
        header = GetTopicConfigRequestHeader(topic=self._full(topic))
        return self._client.call(broker, question(header, TopicConfig))

    def topic_configs(self, broker: str) -> dict[str, TopicConfig]:
        """All topics of a broker (getAllTopicConfig)."""
        table = self.topic_table(broker).topic_config_table
        return {topic: table[self._full(topic)] for topic in self._shown(table)}

    def topic_table(self, broker: str) -> TopicConfigSerializeWrapper:
        """The topics of a broker by full name, as a slave gets them, with the version of the table."""
        return self._client.call(broker, question(RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigSerializeWrapper))

    def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """The bounds of each queue, and the store time of its last message (examineTopicStats)."""
        return self.topic_stats_and_rate(topic)[0]

    def topic_stats_and_rate(self, topic: str) -> tuple[dict[MessageQueue, TopicOffset], float]:
        """:meth:`topic_stats`, and the messages per second that all brokers store (topicPutTps)."""
        full, stats, tps = self._full(topic), dict[MessageQueue, TopicOffset](), 0.0
        call = question(GetTopicStatsInfoRequestHeader(topic=full), TopicStatsTable)
        for table in self._each(self._brokers_of(full), call).values():
            stats |= by_queue(table.offset_table)
            tps += table.topic_put_tps
        if not stats:
            raise MQClientError(f"Not found the topic stats info: {full}")
        return self._shown_queues(stats), tps

    def topic_consumers(self, topic: str) -> list[str]:
        """The groups that consume a topic or have consumed it (queryTopicConsumeByWho)."""
        full = self._full(topic)
        header = QueryTopicConsumeByWhoRequestHeader(topic=full)
        lists = self._each(self._brokers_of(full), question(header, GroupList)).values()
        return self._shown(group for group_list in lists for group in group_list.group_list)
