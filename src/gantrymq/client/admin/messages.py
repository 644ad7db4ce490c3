"""Searches for messages: by key, by the producer's id, by the broker's id.

Source: MQAdminImpl.queryMessage, viewMessage; DefaultMQAdminExtImpl.
"""

from __future__ import annotations

from typing import NamedTuple

from gantrymq.client.admin.base import AdminBase, question
from gantrymq.client.admin.dead_letters import origin_of
from gantrymq.client.arguments import checks_arguments, text
from gantrymq.client.connection.resolving import hosts_of
from gantrymq.client.namespace import DLQ_PREFIX, without_namespace
from gantrymq.client.requests import calls
from gantrymq.client.requests.calls import Call, PullResult, PullStatus, body_of
from gantrymq.client.requests.received import ReceivedMessage, received
from gantrymq.client.requests.records import decode_records
from gantrymq.errors import GantrymqError, MQBrokerError, MQClientError, RemotingCommandError, RemotingError
from gantrymq.model.host import Host
from gantrymq.model.message import PROPERTY_REAL_TOPIC, PROPERTY_RETRY_TOPIC, parse_message_id
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.broker import QueryConsumeQueueResponseBody
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.pull import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)

FOREVER_MS = 0x7FFFFFFFFFFFFFFF
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_MAX_PORT = 65_535
_OF_ANOTHER_TOPIC = "The topic does not match the message"
_DAYS_BACK_MS = 3 * 24 * 60 * 60 * 1000


@checks_arguments(topic=text)  # any name, because stores have topics with names that no client would create
class MessageAdmin(AdminBase):
    """Single messages of a cluster."""

    def query_message(
        self,
        topic: str,
        key: str,
        *,
        max_num: int = 64,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
        last_key: str | None = None,
    ) -> list[ReceivedMessage]:
        """The newest ``max_num`` messages of all brokers that have a key, oldest first (queryMessage).

        The index compares hash codes of topic and key. Messages of another topic or key are left out, as in RocketMQ.
        A broker with an index in RocksDB continues after ``last_key``; others ignore it.
        """
        messages = self._query(topic, key, "K", max_num, begin_ms, end_ms, last_key)
        return _newest_messages([message for message in messages if key in message.keys], max_num)

    def query_message_by_tag(
        self,
        topic: str,
        tag: str,
        *,
        max_num: int = 64,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
        last_key: str | None = None,
    ) -> list[ReceivedMessage]:
        """Messages that have a tag, as :meth:`query_message`. Stores of RocketMQ before 5.5.0 have no index of tags."""
        messages = self._query(topic, tag, "T", max_num, begin_ms, end_ms, last_key)
        return _newest_messages([message for message in messages if message.tags == tag], max_num)

    def query_message_by_unique_key(
        self, topic: str, unique_key: str, *, begin_ms: int | None = None, end_ms: int = FOREVER_MS
    ) -> list[ReceivedMessage]:
        """The messages stored with this producer's id, by default of the last three days (queryMessageByUniqKey)."""
        begin = self._clock.now_ms() - _DAYS_BACK_MS if begin_ms is None else begin_ms
        messages = self._query(topic, unique_key, "U", 32, begin, end_ms)
        return [message for message in messages if message.msg_id == unique_key]

    def view_message(self, topic: str, msg_id: str) -> ReceivedMessage:
        """A message by the broker's id, or by the producer's (viewMessage).

        A broker's id holds the address that the broker had. The broker that is registered under it now is asked first,
        by its IP address or host name; the others are asked if it does not have the message. ``broker_name`` of the
        result is the broker that has it. (RocketMQ connects to the address in the id.)

        Raises MQClientError if there is none. A message of another topic counts as none; RocketMQ shows it. A delayed
        message or a retry belongs both to the topic it was sent to and to the topic that holds it.
        """
        try:
            host, offset = parse_message_id(msg_id)
        except ValueError:
            host, offset = Host(b"", 0), -1  # the producer's id, whatever its form
        # A producer's id may have the form of a broker's. Its offset is then not in the log.
        is_place = 0 < host.port <= _MAX_PORT and offset >= 0
        brokers = self._brokers() if is_place else {}
        near = {
            name: broker_data.address
            for name, broker_data in brokers.items()
            if any(host in hosts_of(at) for at in broker_data.all)
        }
        rest = {name: broker_data.address for name, broker_data in brokers.items() if name not in near}
        failed = dict[str, GantrymqError]()
        message = self._view(near, self._full(topic), offset, msg_id, failed)
        if message is None:
            try:
                message = next(iter(self.query_message_by_unique_key(topic, msg_id)), None)
            except RemotingError as error:
                failed[topic] = error
        if message is None:
            message = self._view(rest, self._full(topic), offset, msg_id, failed)
        if message is not None:
            return message
        for name, failure in failed.items():  # a broker that does not answer may have it
            if self.when_missing is None or name == topic:
                raise failure
            self.when_missing(name, failure)
        raise MQClientError(f"query message by id finished, but no message: {msg_id} of topic {topic}")

    def message_at(self, queue: MessageQueue, offset: int) -> ReceivedMessage | None:
        """The message at an offset of a queue; None if there is none."""
        full = self._full_queue(queue)
        pulled = self._client.call(self._address_of(full), calls.pull(full, offset, 1))
        messages = self._decoded(pulled.records, queue.broker_name)
        return next((message for message in messages if message.queue_offset == offset), None)

    def consume_queue(
        self, broker: str, topic: str, queue_id: int, index: int, count: int, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """The units of a consume queue from ``index`` on; with ``group`` whether each passes the group's filter.

        Source: queryConsumeQueue.
        """
        header = QueryConsumeQueueRequestHeader(
            topic=self._full(topic),
            queue_id=queue_id,
            index=index,
            count=count,
            consumer_group=None if group is None else self._full(group),
        )
        return self._client.call(broker, question(header, QueryConsumeQueueResponseBody))

    def _view(
        self, brokers: dict[str, str], full_topic: str, offset: int, msg_id: str, failed: dict[str, GantrymqError]
    ) -> ReceivedMessage | None:
        """The message with a broker's id, of the first broker that has it. Brokers that fail enter ``failed``."""
        for name, address in brokers.items():
            try:
                messages = self._decoded(self._records_at(address, full_topic, offset), name)
            except (MQBrokerError, RemotingCommandError):
                continue  # it has no record at this offset
            except RemotingError as error:
                failed[name] = error
                continue
            for message in messages:
                topics = [message.topic, *map(message.properties.get, (PROPERTY_RETRY_TOPIC, PROPERTY_REAL_TOPIC))]
                if message.topic.startswith(DLQ_PREFIX):
                    topics.append(origin_of(message.properties, self._full(message.topic).removeprefix(DLQ_PREFIX)))
                is_of_topic = full_topic in [self._full(topic) for topic in topics if topic is not None]
                if is_of_topic and message.offset_msg_id == msg_id.upper():
                    return message
        return None

    def _records_at(self, address: str, full_topic: str, offset: int) -> bytes:
        def ask(header: ViewMessageRequestHeader) -> bytes:
            return self._client.call(address, Call(lambda: RemotingCommand.request(header), body_of))

        try:
            return ask(ViewMessageRequestHeader(topic=full_topic, offset=offset))
        except MQBrokerError as error:
            if error.response_code != ResponseCode.NO_PERMISSION or error.remark != _OF_ANOTHER_TOPIC:
                raise
            # Since 5.5.1. The message may be a retry, whose property names its topic.
            return ask(ViewMessageRequestHeader(offset=offset))

    def _query(
        self, topic: str, key: str, kind: str, max_num: int, begin_ms: int, end_ms: int, last_key: str | None = None
    ) -> list[ReceivedMessage]:
        header = QueryMessageRequestHeader(
            topic=self._full(topic),
            key=key,
            max_num=max_num,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            index_type=kind,
            last_key=last_key,
        )

        def request() -> RemotingCommand:
            command = RemotingCommand.request(header)
            command.ext_fields[UNIQUE_KEY_QUERY] = "true" if kind == "U" else "false"
            return command

        messages = list[ReceivedMessage]()
        brokers = self._brokers_of(self._full(topic))
        answers = self._answers(brokers, Call(request, body_of), passed_over=ResponseCode.QUERY_NOT_FOUND)
        for name, records in answers.items():
            messages += [
                message for message in self._decoded(records, name) if self._full(message.topic) == self._full(topic)
            ]
        return sorted(messages, key=lambda message: (message.store_timestamp_ms, message.phy_offset))

    def _decoded(self, records: bytes, broker_name: str) -> list[ReceivedMessage]:
        nothing = PullResult(PullStatus.FOUND, 0, 0, 0, 0, b"")
        messages = [
            received(stored, MessageQueue(stored.topic, broker_name, stored.queue_id), nothing)
            for stored in decode_records(
                records,
                decompressed=self.decompresses,
                max_decompressed_body_size=self.config.max_decompressed_body_size,
            )
        ]
        for message in messages:
            message.topic = without_namespace(self.config.namespace, message.topic)
        return messages

    def _brokers(self) -> dict[str, _Broker]:
        table = self.cluster_info().broker_addr_table
        return {
            name: _Broker(broker_data.address, tuple(broker_data.broker_addrs.values()))
            for name, broker_data in sorted(table.items())
            if broker_data.address is not None
        }


class _Broker(NamedTuple):
    """A registered broker: the address of its master, else of a slave, and all its addresses."""

    address: str
    all: tuple[str, ...]


def _newest_messages(messages: list[ReceivedMessage], max_num: int) -> list[ReceivedMessage]:
    """The last ``max_num`` messages: each broker returned as many of its own."""
    return messages[max(len(messages) - max_num, 0) :]
