"""Sends failed messages back to the broker, which delivers them again later or moves them to the dead letters.

Source: DefaultMQPushConsumerImpl.sendMessageBack, sendMessageBackAsNormalMessage,
ConsumeMessageOrderlyService.sendMessageBack.
"""

from __future__ import annotations

from gantrymq.client.consumer.group.group_client import REQUEST_TIMEOUT_MS
from gantrymq.client.consumer.group.member import GroupMember
from gantrymq.client.namespace import wrap_namespace
from gantrymq.client.producer.async_producer import AsyncProducer, inner_producer
from gantrymq.client.requests.group_calls import send_message_back
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.errors import GantrymqError, MQClientError
from gantrymq.logs import get_logger
from gantrymq.model.delays import retry_level
from gantrymq.model.message import (
    PROPERTY_INSTANCE_ID,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
    Message,
)
from gantrymq.model.message_queue import MessageQueue

INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
_ANY_SIZE = 0x7FFFFFFF

log = get_logger("gantrymq.client.consumer")


class SendBack:
    """Sends messages back. Thread rule: the event loop's thread."""

    def __init__(self, member: GroupMember, max_reconsume_times: int) -> None:
        self._member, self._max_reconsume_times = member, max_reconsume_times
        self._producer: AsyncProducer | None = None

    async def close(self) -> None:
        """Close the inner producer, if there is one."""
        if self._producer is not None:
            await self._producer.close()

    async def back(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Send a message back with CONSUMER_SEND_MSG_BACK; if that fails, as a message of the retry topic.

        Returns whether one of them succeeded.
        """
        topic = self._full(message)
        queue = MessageQueue(topic, message.broker_name, message.queue_id)
        call = send_message_back(self._member.group, message, topic, delay_level, self._max_reconsume_times)
        try:
            address = (await self._member.needed_route(queue)).masters.get(message.broker_name)
            if address is None:
                raise MQClientError(f"Broker[{message.broker_name}] master node does not exist")
            await self._member.client.call(address, call, REQUEST_TIMEOUT_MS)
        except GantrymqError as error:
            log.warning("a message was not sent back", msg_id=message.msg_id, reason=str(error))
            return await self.as_message(message)
        return True

    async def as_message(self, message: ReceivedMessage) -> bool:
        """Send a message to the retry topic of any broker. Returns whether it is stored."""
        properties = dict(message.properties)
        properties.pop(PROPERTY_TRANSACTION_PREPARED, None)
        properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, message.msg_id)
        properties[PROPERTY_RETRY_TOPIC] = self._full(message)
        properties[PROPERTY_RECONSUME_TIME] = str(message.reconsume_times + 1)
        properties[PROPERTY_MAX_RECONSUME_TIMES] = str(self._max_reconsume_times)
        if self._member.config.namespace:
            properties[PROPERTY_INSTANCE_ID] = self._member.config.namespace
        again = Message(
            self._member.retry_topic,
            message.body,
            properties=properties,
            flag=message.flag,
            delay_level=retry_level(message.reconsume_times),
        )
        try:
            await self._inner_producer().send(again)
        except GantrymqError as error:
            log.error("a message was not sent back", msg_id=message.msg_id, reason=str(error))
            return False
        return True

    def _inner_producer(self) -> AsyncProducer:
        if self._producer is None:
            self._producer = inner_producer(  # the retry topic is a full name already
                self._member.config,
                self._member.clock,
                producer_group=INNER_PRODUCER_GROUP,
                max_message_size=_ANY_SIZE,
                max_delay_level=_ANY_SIZE,
            )
            self._producer.start()
        return self._producer

    def _full(self, message: ReceivedMessage) -> str:
        return wrap_namespace(self._member.config.namespace, message.topic)
