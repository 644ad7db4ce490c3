"""Consumer groups: configuration, offsets, connections.

Source: DefaultMQAdminExtImpl, ResetOffsetByTimeCommand, ConsumerProgressSubCommand.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from gantrymq.client.admin.base import AdminBase, order, question
from gantrymq.client.arguments import checks_arguments, text
from gantrymq.client.requests import calls
from gantrymq.client.requests.calls import Call, body_of
from gantrymq.client.requests.group_calls import query_offset, update_offset
from gantrymq.client.requests.routes import TopicRoute
from gantrymq.errors import MQBrokerError, MQClientError, NoRouteError, RemotingError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    MessageRequestModes,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    SetMessageRequestModeRequestBody,
)
from gantrymq.remoting.bodies.group import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from gantrymq.remoting.body import by_queue, decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import (
    ConsumeMessageDirectlyResultRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetAllProducerInfoRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
)
from gantrymq.remoting.headers.offset import CloneGroupOffsetRequestHeader, ResetOffsetRequestHeader

TO_THE_END = -1

T = TypeVar("T")


@checks_arguments(topic=text)  # any name, because stores have topics with names that no client would create
class GroupAdmin(AdminBase):
    """Groups of consumers, and the connections of producer groups."""

    def create_subscription_group(
        self,
        group: str,
        config: SubscriptionGroupConfig | None = None,
        *,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> None:
        """Create or change a group, at one broker, in one cluster, or in all (createAndUpdateSubscriptionGroupConfig).

        Without ``config`` it gets RocketMQ's defaults.
        """
        wanted = replace(config or SubscriptionGroupConfig(), group_name=self._full(group))
        call = order(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, wanted.encode())
        self._call_all(self._masters(broker, cluster), call)

    def delete_subscription_group(
        self, group: str, *, remove_offset: bool = False, broker: str | None = None, cluster: str | None = None
    ) -> None:
        """Delete a group, with ``remove_offset`` also its committed offsets (deleteSubscriptionGroup)."""
        header = DeleteSubscriptionGroupRequestHeader(group_name=self._full(group), clean_offset=remove_offset)
        self._call_all(self._masters(broker, cluster), order(header))

    def subscription_group_config(self, group: str, broker: str) -> SubscriptionGroupConfig:
        """A group's configuration at a broker's address (examineSubscriptionGroupConfig)."""
        header = GetSubscriptionGroupConfigRequestHeader(group=self._full(group))
        return self._client.call(broker, question(header, SubscriptionGroupConfig))

    def subscription_groups(self, broker: str) -> dict[str, SubscriptionGroupConfig]:
        """All groups of a broker (getAllSubscriptionGroup)."""
        call = question(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupWrapper)
        table = self._client.call(broker, call).subscription_group_table
        return {group: table[self._full(group)] for group in self._shown(table)}

    def consume_stats(self, group: str, topic: str | None = None) -> dict[MessageQueue, OffsetWrapper]:
        """The committed and the maximum offset of each queue of a group, for one topic or all (examineConsumeStats).

        A group without a retry topic, such as a broadcasting one, needs ``topic``.
        """
        return self.consume_stats_and_rate(group, topic)[0]

    def consume_stats_and_rate(
        self, group: str, topic: str | None = None
    ) -> tuple[dict[MessageQueue, OffsetWrapper], float]:
        """:meth:`consume_stats`, and the messages per second that the group consumes at all brokers (consumeTps)."""
        header = GetConsumeStatsRequestHeader(
            consumer_group=self._full(group), topic=None if topic is None else self._full(topic)
        )
        stats, tps = dict[MessageQueue, OffsetWrapper](), 0.0
        for answer in self._each(self._brokers_of_stats(group, topic), question(header, ConsumeStats)).values():
            stats |= by_queue(answer.offset_table)
            tps += answer.consume_tps
        if topic is not None:
            stats = {queue: stat for queue, stat in stats.items() if queue.topic == self._full(topic)}
        return self._shown_queues(stats), tps

    def broker_consume_stats(self, broker: str, *, is_order: bool = False) -> ConsumeStatsList:
        """The progress of all groups of a broker, or of those that consume in order (fetchConsumeStatsInBroker)."""
        return self._client.call(broker, question(GetConsumeStatsInBrokerHeader(is_order=is_order), ConsumeStatsList))

    def _brokers_of_stats(self, group: str, topic: str | None) -> dict[str, str]:
        try:
            return self._brokers_of_group(group)
        except NoRouteError:
            if topic is None:
                raise
            return self._brokers_of(self._full(topic))

    def consumer_connection(self, group: str) -> ConsumerConnection:
        """The clients of a group now, and their subscriptions (examineConsumerConnectionInfo).

        Raises MQBrokerError (CONSUMER_NOT_ONLINE) if there is none.
        """
        call = question(GetConsumerConnectionListRequestHeader(consumer_group=self._full(group)), ConsumerConnection)
        return self._first_of_group(group, call)

    def consumer_connections(self, group: str) -> list[ConsumerConnection]:
        """As :meth:`consumer_connection`, of each master to which clients of the group are connected."""
        call = question(GetConsumerConnectionListRequestHeader(consumer_group=self._full(group)), ConsumerConnection)
        brokers = {address: address for address in self._masters(None, None)}
        return list(self._answers(brokers, call, passed_over=ResponseCode.CONSUMER_NOT_ONLINE).values())

    def consumer_running_info(self, group: str, client_id: str, *, jstack: bool = False) -> ConsumerRunningInfo:
        """The state that a consumer reports of itself (getConsumerRunningInfo)."""
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=self._full(group), client_id=client_id, jstack_enable=jstack
        )
        return self._first_of_group(group, question(header, ConsumerRunningInfo))

    def producer_connection(self, group: str, topic: str) -> ProducerConnection:
        """The producers of a group that send to a topic (examineProducerConnectionInfo)."""
        header = GetProducerConnectionListRequestHeader(producer_group=self._full(group))
        address = next(iter(self._brokers_of(self._full(topic)).values()), None)
        if address is None:
            raise MQClientError(f"no broker has topic {topic}")
        connection = self._client.call(address, question(header, ProducerConnection))
        if not connection.connection_set:
            raise MQClientError(f"Not found the producer group connection: {group} of topic {topic}")
        return connection

    def all_producers(self, broker: str) -> dict[str, list[ProducerInfo]]:
        """The producers that are connected to a broker, by group (getAllProducerInfo)."""
        data = self._client.call(broker, question(GetAllProducerInfoRequestHeader(), ProducerTableInfo)).data
        return {group: data[self._full(group)] for group in self._shown(data)}

    def consume_message_directly(
        self, group: str, client_id: str, topic: str, msg_id: str, broker: str
    ) -> ConsumeMessageDirectlyResult:
        """Make a consumer consume one message now (consumeMessageDirectly). ``msg_id`` is the broker's id."""
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=self._full(group), client_id=client_id, msg_id=msg_id, topic=self._full(topic)
        )
        return self._client.call(broker, question(header, ConsumeMessageDirectlyResult))

    def reset_offset_by_time(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Move a group to the first message stored at or after ``timestamp_ms``, or to the end (``TO_THE_END``).

        Connected consumers are notified; for a group without consumers the offsets are written at the brokers. Without
        ``force`` a queue only moves back: one that would move forward stays, and is returned with its current offset.
        (Java asks for all queues at once, and a 5.x broker then moves them forward too, useServerSideResetOffset.)

        Returns the new offsets (resetOffsetByTimestamp, resetOffsetByTimestampOld).
        """
        full_topic, full_group = self._full(topic), self._full(group)
        header = ResetOffsetRequestHeader(
            group=full_group, topic=full_topic, timestamp=timestamp_ms, is_force=force, queue_id=-1
        )
        route = TopicRoute.of(full_topic, self._route_of(full_topic))
        offsets = dict[MessageQueue, int]()
        for name, address in route.brokers.items():
            queues = [queue for queue in route.subscribe if queue.broker_name == name]
            if force:
                offsets |= self._reset(address, header, queues)
                continue
            for queue in queues:
                now = self._client.call(address, query_offset(full_group, queue))
                if now is not None and self._client.call(address, _target(queue, timestamp_ms)) < now:
                    now = self._reset(address, replace(header, queue_id=queue.queue_id), [queue]).get(queue, now)
                if now is not None:
                    offsets[queue] = now
        return self._shown_queues(offsets)

    def _reset(
        self, address: str, header: ResetOffsetRequestHeader, queues: list[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """Let a broker reset ``queues``. If no consumer is connected to do so, write the offsets instead."""
        try:
            moved = self._client.call(address, _reset(header))
            return {queue: offset for queue, offset in moved.items() if queue.topic == header.topic}
        except MQBrokerError as error:
            if error.response_code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
        offsets = {queue: self._client.call(address, _target(queue, header.timestamp)) for queue in queues}
        for queue, offset in offsets.items():
            self._client.call(address, update_offset(header.group, queue, offset))
        return offsets

    def reset_offset_of_queue(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Move a group to an offset of one queue (resetOffsetByQueueId).

        A 5.x broker gives the offset to connected consumers with their next pull. An older one refuses; if no consumer
        is connected, the offset is written instead.
        """
        full = self._full_queue(queue)
        header = ResetOffsetRequestHeader(
            group=self._full(group), topic=full.topic, queue_id=full.queue_id, offset=offset, timestamp=0, is_force=True
        )
        address = self._address_of(full)
        try:
            self._client.call(address, _reset(header))
        except MQBrokerError as error:
            if error.response_code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            self._client.call(address, update_offset(header.group, full, offset))

    def clone_group_offset(self, source: str, target: str, topic: str, *, is_offline: bool = False) -> None:
        """Give a group the offsets that another has of a topic (cloneGroupOffset)."""
        header = CloneGroupOffsetRequestHeader(
            src_group=self._full(source), dest_group=self._full(target), topic=self._full(topic), offline=is_offline
        )
        self._each(self._brokers_of(self._full(topic)), order(header))

    def set_message_request_mode(
        self, topic: str, group: str, mode: str, *, pop_share_queue_num: int = 0, broker: str
    ) -> None:
        """Set whether a group receives a topic by PULL or by POP (setMessageRequestMode)."""
        body = SetMessageRequestModeRequestBody(
            topic=self._full(topic),
            consumer_group=self._full(group),
            mode=mode,
            pop_share_queue_num=pop_share_queue_num,
        )
        self._client.call(broker, order(RequestCode.SET_MESSAGE_REQUEST_MODE, body.encode()))

    def message_request_mode(self, topic: str, group: str, broker: str) -> str | None:
        """PULL or POP, as it was set at a broker; None if it was not set (getAllMessageRequestMode)."""

        def read(response: RemotingCommand, address: str) -> str | None:
            modes = decode_body(MessageRequestModes, body_of(response, address)).message_request_mode_map
            mode = modes.get(self._full(topic), {}).get(self._full(group))
            return None if mode is None else mode.mode

        call = Call(lambda: RemotingCommand(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE), read)
        try:
            return self._client.call(broker, call)
        except MQBrokerError as error:
            if error.response_code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        return None

    def update_consume_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Write a group's offset of a queue (updateConsumeOffset). A connected consumer overwrites it."""
        full = self._full_queue(queue)
        self._client.call(self._address_of(full), update_offset(self._full(group), full, offset))

    def _first_of_group(self, group: str, call: Call[T]) -> T:
        """The answer of the first broker that knows the group's clients."""
        refused: MQBrokerError | None = None
        for name, address in self._brokers_of_group(group).items():
            try:
                return self._client.call(address, call)
            except MQBrokerError as error:
                refused = error
            except RemotingError as error:
                if self.when_missing is None:
                    raise
                self.when_missing(name, error)
        raise refused or MQClientError(f"no broker knows group {group}")


def _target(queue: MessageQueue, timestamp_ms: int) -> Call[int]:
    return calls.max_offset(queue) if timestamp_ms == TO_THE_END else calls.search_offset(queue, timestamp_ms)


def _reset(header: ResetOffsetRequestHeader) -> Call[dict[MessageQueue, int]]:
    def read(response: RemotingCommand, address: str) -> dict[MessageQueue, int]:
        body = body_of(response, address)
        return by_queue(decode_body(ResetOffsetBody, body).offset_table) if body else {}

    return Call(lambda: RemotingCommand.request(header), read)
