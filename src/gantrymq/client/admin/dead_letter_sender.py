"""Sending dead letters again: the topic that the group's consumers read, and the message that a producer sends.

A consumer that pulls reads its group's retry topic ``%RETRY%group``. One that pops reads ``%RETRY%group_topic``
instead, for each topic that it pops. A copy in the other one is stored, and no consumer ever receives it.

Source: KeyBuilder, PopMessageProcessor, SendMessageProcessor.handleRetryAndDLQ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from gantrymq.client.admin.dead_letters import copy_to_send, displayed_origin_topic, origin_of
from gantrymq.client.connection.blocking_client import BlockingClient
from gantrymq.client.namespace import RETRY_PREFIX, wrap_namespace
from gantrymq.client.producer.outgoing import prepare
from gantrymq.client.producer.producer import Producer
from gantrymq.client.requests.calls import Call
from gantrymq.client.requests.send_result import SendResult, read_send_result
from gantrymq.client.unique_id import UniqueIdGenerator
from gantrymq.clock import SystemClock
from gantrymq.errors import MQBrokerError, MQClientError, NoRouteError
from gantrymq.model import message as names
from gantrymq.model.message import Message, StoredMessage
from gantrymq.model.message_queue import MessageQueue
from gantrymq.model.receipt_handle import normal_topic, retry_topic_v1
from gantrymq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from gantrymq.client.admin.admin_client import AdminClient
    from gantrymq.client.producer.settings import ProducerConfig
    from gantrymq.client.requests.received import ReceivedMessage
    from gantrymq.remoting.bodies.client import ConsumerConnection


class RetryTopic(NamedTuple):
    """The topic to which a copy goes. ``broker_name`` is empty if any broker will do."""

    topic: str
    origin: str
    broker_name: str = ""


class DeadLetterSender:
    """Sends the dead letters of one group to the retry topic that its consumers read.

    What it finds out about the group is kept, so use a new one for each run. Close it: an entry of a group that
    a broker makes for the name of a retry topic is removed then.

    Thread rule: one thread at a time.
    """

    def __init__(self, admin: AdminClient, config: ProducerConfig, group: str) -> None:
        self._admin, self._config = admin, config
        self._group = wrap_namespace(config.namespace, group)
        self._producer: Producer | None = None
        self._clock = SystemClock()
        self._direct, self._ids = BlockingClient(config, self._clock), UniqueIdGenerator(self._clock)
        self._members: list[ConsumerConnection] | None = None
        self._read: set[str] | None = None
        self._targets: dict[tuple[str, str, bool], RetryTopic] = {}
        self._groups: dict[str, set[str]] = {}  # those of each broker before the first send, by address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the producer, and remove groups that brokers made for the names of retry topics."""
        self._direct.close()
        if self._producer is not None:
            self._producer.close()
        made = {target.topic.removeprefix(RETRY_PREFIX) for target in self._targets.values() if target.broker_name}
        for address, before in self._groups.items():
            for name in made & self._admin.subscription_groups(address).keys() - before:
                # Without remove_offset a broker of RocketMQ 5.5.0 creates the group again while it deletes it: it looks
                # the group up to learn its type, and a lookup creates (AdminBrokerProcessor.deleteSubscriptionGroup).
                self._admin.delete_subscription_group(name, remove_offset=True, broker=address)

    def origin(self, properties: Mapping[str, str]) -> str | None:
        """The topic that a letter had, by its properties, without the namespace; None if they do not say."""
        return displayed_origin_topic(properties, self._group, self._config.namespace)

    def target(self, letter: ReceivedMessage) -> RetryTopic:
        """The retry topic that the group's consumers read for the topic of a letter.

        Raises MQClientError if the letter does not name its topic, or if no consumer would receive the copy.
        """
        origin = origin_of(letter.properties, self._group)
        if origin is None:
            raise MQClientError("it does not say of which topic it was; give --topic")
        was_popped = self._was_popped(letter)
        key = (origin, letter.broker_name, was_popped)
        if key not in self._targets:
            pops = self._pops(origin, was_popped=was_popped)
            pop_target = self._pop_target(origin, letter.broker_name) if pops else None
            self._targets[key] = pop_target or RetryTopic(f"{RETRY_PREFIX}{self._group}", origin)
        return self._targets[key]

    def send(self, letter: StoredMessage, target: RetryTopic | str) -> SendResult:
        """Send a letter, whose body is decompressed, to its :meth:`target`, or to a topic."""
        if isinstance(target, RetryTopic) and target.broker_name:
            return self._send_to_broker(copy_to_send(letter, target.topic, target.origin), target)
        if self._producer is None:
            self._producer = Producer(self._config)
        if isinstance(target, str):
            return self._producer.send(copy_to_send(letter, target))
        return self._producer.send(copy_to_send(letter, target.topic, target.origin))

    def _send_to_broker(self, message: Message, target: RetryTopic) -> SendResult:
        """Send to the broker itself: a broker makes its retry topics without telling the name servers at once."""
        address = dict(self._brokers())[target.broker_name]
        queue = MessageQueue(target.topic, target.broker_name, 0)
        outgoing = prepare(message, self._ids.new(), self._config)
        call = Call(
            lambda: outgoing.request(self._config, queue, self._clock.now_ms()),
            lambda response, at: read_send_result(response, at, queue, outgoing.ids),
        )
        self._make_topic(target.topic, address)
        try:
            return self._direct.call(address, call, self._config.send_msg_timeout_ms)
        except MQBrokerError as error:
            if error.response_code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
        # The broker takes the rest of the retry topic's name for a group, and makes no groups itself.
        self._admin.create_subscription_group(target.topic.removeprefix(RETRY_PREFIX), broker=address)
        return self._direct.call(address, call, self._config.send_msg_timeout_ms)

    # How the group consumes

    def _was_popped(self, letter: StoredMessage) -> bool:
        """Whether a letter shows that it was popped: once again after a failure at least."""
        retry = letter.properties.get(names.PROPERTY_RETRY_TOPIC, "")
        return retry.startswith(RETRY_PREFIX) or names.PROPERTY_FIRST_POP_TIME in letter.properties

    def _pops(self, origin: str, *, was_popped: bool) -> bool:
        """Whether the group pops a topic.

        What connected consumers subscribe to decides; else the mode that is set, the letter itself, and at last the
        topics of which the group has offsets: one that pulls has those of ``%RETRY%group``.
        """
        subscribed = {topic for connection in self._connections() for topic in connection.subscription_table}
        retry = f"{RETRY_PREFIX}{self._group}"
        if retry in subscribed:
            return False  # also a consumer in POP mode that the broker assigns its queues pulls this topic
        if origin in subscribed or was_popped or self._is_set_to_pop(origin):
            return True
        if self._read is None:
            self._read = self._topics_with_offsets()
        return retry not in self._read and origin in self._read

    def _connections(self) -> list[ConsumerConnection]:
        if self._members is None:
            self._members = list(self._admin.consumer_connections(self._group))
        return self._members

    def _is_set_to_pop(self, origin: str) -> bool:
        modes = (self._admin.message_request_mode(origin, self._group, broker) for _, broker in self._brokers())
        return any(mode == "POP" for mode in modes)

    def _topics_with_offsets(self) -> set[str]:
        try:
            stats = self._admin.consume_stats(self._group)
        except (MQClientError, MQBrokerError):  # it has no retry topic, or no offsets
            return set()
        return {wrap_namespace(self._config.namespace, queue.topic) for queue in stats}

    # Where a group that pops reads

    def _pop_target(self, origin: str, broker_name: str) -> RetryTopic:
        """The retry topic at the broker of the letter, or at another one that has the topic."""
        try:
            route = self._admin.topic_route(origin)
        except NoRouteError:
            raise MQClientError(
                f"no broker has topic {origin}, so no consumer of {self._group} pops it; give --topic"
            ) from None
        masters = {
            broker_data.broker_name: broker_data.broker_addrs[0]
            for broker_data in route.broker_datas
            if 0 in broker_data.broker_addrs
        }
        if not masters:
            raise MQClientError(f"topic {origin} has no master broker now")
        name = broker_name if broker_name in masters else min(masters)
        settings = self._admin.broker_config(masters[name])
        if (
            settings.get("enableRetryTopicV2") == "true"
            and settings.get("retrieveMessageFromPopRetryTopicV1", "true") != "true"
        ):
            raise MQClientError(
                f"{name} pops retries only from a topic with a plus in its name, to which no broker accepts sends: "
                f"`gantrymq admin broker config set -b {name} retrieveMessageFromPopRetryTopicV1=true` changes that"
            )
        retry = retry_topic_v1(origin, self._group)
        if masters[name] not in self._groups:
            self._groups[masters[name]] = set(self._admin.subscription_groups(masters[name]))
        for other in sorted(self._groups[masters[name]] - {self._group}):
            topic = normal_topic(retry, wrap_namespace(self._config.namespace, other))
            if topic and topic in self._admin.topic_configs(masters[name]):
                raise MQClientError(
                    f"{retry} is also what group {other} reads for topic {topic}, which would receive it too: "
                    "give --topic"
                )
        return RetryTopic(retry, origin, name)

    def _make_topic(self, topic: str, address: str) -> None:
        """Create a retry topic with one queue, as the broker does for a first retry, if it is not there."""
        try:
            self._admin.topic_config(topic, address)
        except MQBrokerError as error:
            if error.response_code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            self._admin.create_topic(topic, read_queue_nums=1, write_queue_nums=1, broker=address)

    def _brokers(self) -> Iterator[tuple[str, str]]:
        """Name and address of each master."""
        for name, broker in self._admin.cluster_info().broker_addr_table.items():
            if 0 in broker.broker_addrs:
                yield name, broker.broker_addrs[0]
