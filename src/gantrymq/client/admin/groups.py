"""Consumer groups: their configuration, how far they are, who is in them.

Source: DefaultMQAdminExtImpl, ResetOffsetByTimeCommand, ConsumerProgressSubCommand.
"""

from __future__ import annotations

from typing import TypeVar

from gantrymq.client import calls
from gantrymq.client.admin.ground import AdminGround, order, question
from gantrymq.client.arguments import checks_arguments
from gantrymq.client.calls import Call, body_of
from gantrymq.client.consumer.group_calls import update_offset
from gantrymq.client.routes import TopicRoute
from gantrymq.errors import MQBrokerError, MQClientError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
)
from gantrymq.remoting.bodies.group import (
    ConsumeStats,
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
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
)
from gantrymq.remoting.headers.offset import ResetOffsetRequestHeader

TO_THE_END = -1

T = TypeVar("T")


@checks_arguments()
class GroupAdmin(AdminGround):
    """Groups of consumers, and of producers as far as brokers know them."""

    def create_subscription_group(
        self,
        group: str,
        config: SubscriptionGroupConfig | None = None,
        *,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> None:
        """Make a group or change it, at one broker, in one cluster, or in all (createAndUpdateSubscriptionGroupConfig).

        Without ``config`` it gets RocketMQ's defaults.
        """
        wanted = config or SubscriptionGroupConfig()
        wanted.group_name = self._full(group)
        call = order(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, wanted.encode())
        self._tell_all(self._masters(broker, cluster), call)

    def delete_subscription_group(
        self, group: str, *, remove_offset: bool = False, broker: str | None = None, cluster: str | None = None
    ) -> None:
        """Delete a group, with ``remove_offset`` also how far it was (deleteSubscriptionGroup)."""
        header = DeleteSubscriptionGroupRequestHeader(group_name=self._full(group), clean_offset=remove_offset)
        self._tell_all(self._masters(broker, cluster), order(header))

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
        """How far a group is with each queue, and how far the queue goes (examineConsumeStats)."""
        header = GetConsumeStatsRequestHeader(
            consumer_group=self._full(group), topic=None if topic is None else self._full(topic)
        )
        stats = dict[MessageQueue, OffsetWrapper]()
        for address in self._brokers_of_group(group).values():
            stats |= by_queue(self._client.call(address, question(header, ConsumeStats)).offset_table)
        return self._shown_queues(stats)

    def consumer_connection(self, group: str) -> ConsumerConnection:
        """Who is in a group now, and what it subscribes to (examineConsumerConnectionInfo).

        Raises MQBrokerError (CONSUMER_NOT_ONLINE) where nobody is.
        """
        call = question(GetConsumerConnectionListRequestHeader(consumer_group=self._full(group)), ConsumerConnection)
        return self._first_of_group(group, call)

    def consumer_running_info(self, group: str, client_id: str, *, jstack: bool = False) -> ConsumerRunningInfo:
        """What a consumer says of itself (getConsumerRunningInfo)."""
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=self._full(group), client_id=client_id, jstack_enable=jstack
        )
        return self._first_of_group(group, question(header, ConsumerRunningInfo))

    def producer_connection(self, group: str, topic: str) -> ProducerConnection:
        """Who sends to a topic for a group of producers (examineProducerConnectionInfo)."""
        header = GetProducerConnectionListRequestHeader(producer_group=self._full(group))
        address = next(iter(self._brokers_of(self._full(topic)).values()), None)
        if address is None:
            raise MQClientError(f"no broker has topic {topic}")
        return self._client.call(address, question(header, ProducerConnection))

    def consume_message_directly(
        self, group: str, client_id: str, topic: str, msg_id: str, broker: str
    ) -> ConsumeMessageDirectlyResult:
        """Let a consumer consume one message now (consumeMessageDirectly). ``msg_id`` is the broker's id."""
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=self._full(group), client_id=client_id, msg_id=msg_id, topic=self._full(topic)
        )
        return self._client.call(broker, question(header, ConsumeMessageDirectlyResult))

    def reset_offset_by_time(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Let a group go on at the first message stored at or after a time, or at the end (``TO_THE_END``).

        Consumers that are there are told; for a group that is not online the offsets are written at the brokers.
        Without ``force`` a group only goes back. Gives the new offsets (resetOffsetByTimestamp,
        resetOffsetByTimestampOld).
        """
        full_topic, full_group = self._full(topic), self._full(group)
        header = ResetOffsetRequestHeader(
            group=full_group, topic=full_topic, timestamp=timestamp_ms, is_force=force, queue_id=-1
        )
        route = TopicRoute.of(full_topic, self._route_of(full_topic))
        offsets = dict[MessageQueue, int]()
        for name, address in route.brokers.items():
            try:
                moved = self._client.call(address, _reset(header))
                offsets |= moved
            except MQBrokerError as error:
                if error.response_code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                queues = [queue for queue in route.subscribe if queue.broker_name == name]
                offsets |= {queue: self._move(address, full_group, queue, timestamp_ms) for queue in queues}
        return self._shown_queues(offsets)

    def update_consume_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Write how far a group is with a queue; a consumer that is there overwrites it (updateConsumeOffset)."""
        full = self._full_queue(queue)
        self._client.call(self._address_of(full), update_offset(self._full(group), full, offset))

    def _move(self, address: str, full_group: str, queue: MessageQueue, timestamp_ms: int) -> int:
        at_end = timestamp_ms == TO_THE_END
        call = calls.max_offset(queue) if at_end else calls.search_offset(queue, timestamp_ms)
        offset = self._client.call(address, call)
        self._client.call(address, update_offset(full_group, queue, offset))
        return offset

    def _first_of_group(self, group: str, call: Call[T]) -> T:
        """What the first broker says that knows the group's clients."""
        refused: MQBrokerError | None = None
        for address in self._brokers_of_group(group).values():
            try:
                return self._client.call(address, call)
            except MQBrokerError as error:
                refused = error
        raise refused or MQClientError(f"no broker knows group {group}")


def _reset(header: ResetOffsetRequestHeader) -> Call[dict[MessageQueue, int]]:
    def read(response: RemotingCommand, address: str) -> dict[MessageQueue, int]:
        body = body_of(response, address)
        return by_queue(decode_body(ResetOffsetBody, body).offset_table) if body else {}

    return Call(lambda: RemotingCommand.request(header), read)
