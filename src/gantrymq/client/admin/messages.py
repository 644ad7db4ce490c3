"""Searches for messages: by key, by the producer's id, by the broker's id.

Source: MQAdminImpl.queryMessage, viewMessage; DefaultMQAdminExtImpl.
"""

from __future__ import annotations

from gantrymq.client.admin.base import AdminBase, question
from gantrymq.client.arguments import checks_arguments, text
from gantrymq.client.namespace import without_namespace
from gantrymq.client.requests import calls
from gantrymq.client.requests.calls import Call, PullResult, PullStatus, body_of
from gantrymq.client.requests.received import ReceivedMessage, received
from gantrymq.client.requests.records import decode_records
from gantrymq.errors import MQBrokerError, MQClientError
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
        """Messages that have a key, oldest first; at most ``max_num`` from each broker (queryMessage).

        The index compares hash codes of topic and key. Messages of another topic or key are left out, as in RocketMQ.
        A broker with an index in RocksDB continues after ``last_key``; others ignore it.
        """
        found = self._query(topic, key, "K", max_num, begin_ms, end_ms, last_key)
        return [message for message in found if key in message.keys]

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
        found = self._query(topic, tag, "T", max_num, begin_ms, end_ms, last_key)
        return [message for message in found if message.tags == tag]

    def query_message_by_unique_key(
        self, topic: str, unique_key: str, *, begin_ms: int | None = None, end_ms: int = FOREVER_MS
    ) -> list[ReceivedMessage]:
        """The messages stored with this producer's id, by default of the last three days (queryMessageByUniqKey)."""
        begin = self._clock.now_ms() - _DAYS_BACK_MS if begin_ms is None else begin_ms
        found = self._query(topic, unique_key, "U", 32, begin, end_ms)
        return [message for message in found if message.msg_id == unique_key]

    def view_message(self, topic: str, msg_id: str) -> ReceivedMessage:
        """A message by the broker's id, or by the producer's (viewMessage).

        Raises MQClientError if there is none. A message of another topic counts as none; RocketMQ shows it. A delayed
        message or a retry belongs both to the topic it was sent to and to the topic that holds it.
        """
        try:
            host, offset = parse_message_id(msg_id)
        except ValueError:
            host = None
        if host is not None and host.port:
            try:
                return self._view(str(host), self._full(topic), offset, msg_id)
            except (MQBrokerError, MQClientError):
                pass  # not the broker's id: the producer's ids have the same number of digits
        found = self.query_message_by_unique_key(topic, msg_id)
        if not found:
            raise MQClientError(f"query message by id finished, but no message: {msg_id} of topic {topic}")
        return found[0]

    def message_at(self, queue: MessageQueue, offset: int) -> ReceivedMessage | None:
        """The message at an offset of a queue; None if there is none."""
        full = self._full_queue(queue)
        pulled = self._client.call(self._address_of(full), calls.pull(full, offset, 1))
        found = self._decoded(pulled.records, queue.broker_name)
        return next((one for one in found if one.queue_offset == offset), None)

    def consume_queue(
        self, broker: str, topic: str, queue_id: int, index: int, count: int, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """The units of a consume queue from ``index`` on; with ``group`` whether each passes the group's filter.

        Source: queryConsumeQueue.
        """
        header = QueryConsumeQueueRequestHeader(
            topic=self._full(topic), queue_id=queue_id, index=index, count=count,
            consumer_group=None if group is None else self._full(group),
        )  # fmt: skip
        return self._client.call(broker, question(header, QueryConsumeQueueResponseBody))

    def _view(self, address: str, full_topic: str, offset: int, msg_id: str) -> ReceivedMessage:
        header = ViewMessageRequestHeader(topic=full_topic, offset=offset)
        if address not in self._addresses():
            raise MQClientError(f"{msg_id} names {address}, which is no broker of this cluster")
        records = self._client.call(address, Call(lambda: RemotingCommand.request(header), body_of))
        for message in self._decoded(records, ""):
            topics = [message.topic, *map(message.properties.get, (PROPERTY_RETRY_TOPIC, PROPERTY_REAL_TOPIC))]
            if full_topic in [self._full(one) for one in topics if one is not None]:
                return message
        raise MQClientError(f"{address} has no message {msg_id}")

    def _query(
        self, topic: str, key: str, kind: str, max_num: int, begin_ms: int, end_ms: int, last_key: str | None = None
    ) -> list[ReceivedMessage]:
        header = QueryMessageRequestHeader(
            topic=self._full(topic), key=key, max_num=max_num, begin_timestamp=begin_ms, end_timestamp=end_ms,
            index_type=kind, last_key=last_key,
        )  # fmt: skip

        def request() -> RemotingCommand:
            command = RemotingCommand.request(header)
            command.ext_fields[UNIQUE_KEY_QUERY] = "true" if kind == "U" else "false"
            return command

        found = list[ReceivedMessage]()
        brokers = self._brokers_of(self._full(topic))
        answers = self._answers(brokers, Call(request, body_of), passed_over=ResponseCode.QUERY_NOT_FOUND)
        for name, records in answers.items():
            found += [one for one in self._decoded(records, name) if self._full(one.topic) == self._full(topic)]
        return sorted(found, key=lambda message: message.store_timestamp_ms)

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

    def _addresses(self) -> set[str]:
        table = self.cluster_info().broker_addr_table
        return {address for one in table.values() for address in one.broker_addrs.values()}
