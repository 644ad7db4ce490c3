"""RecallMessage: a delayed message is not delivered after all.

Source: RecallMessageActivity, ProducerProcessor (recallMessage).
"""

from __future__ import annotations

from typing import Any

from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.format.recall_handle import decode_recall_handle
from gantrymq.grpc import limits
from gantrymq.grpc.brokers.interface import Brokers, ask, message_type_of
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import Code, GrpcMessageType
from gantrymq.grpc.protocol.messages import RecallMessageResponse
from gantrymq.grpc.protocol.status import CallError, refused, status
from gantrymq.grpc.protocol.validation import require_topic
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader

_DELAYED = (GrpcMessageType.DELAY.name, "MIXED")


class RecallMessage:
    """Answers recalls."""

    def __init__(self, config: GrpcConfig, brokers: Brokers) -> None:
        self._config, self._brokers = config, brokers

    async def recall(self, caller: Caller, request: Any) -> Any:
        """The answer to a RecallMessageRequest: the id of the message. Raises CallError if it is refused."""
        topic = require_topic(request.topic.name)
        expected = message_type_of(await self._brokers.topic(caller, topic))
        if expected not in _DELAYED and self._config.check_message_type:
            raise CallError(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"TopicMessageType validate failed, the expected type is {expected}, but actual type is DELAY",
            )
        try:
            broker_name = decode_recall_handle(request.recall_handle).broker_name
        except ValueError as error:
            raise CallError(Code.INTERNAL_SERVER_ERROR, str(error)) from None
        header = RecallMessageRequestHeader(topic=topic, recall_handle=request.recall_handle, bname=broker_name)
        command = RemotingCommand.request(header)
        response = await ask(self._brokers, caller, broker_name, command, limits.REQUEST_TIMEOUT_MS)
        if response.code != ResponseCode.SUCCESS:
            raise refused(response)
        message_id = response.read(RecallMessageResponseHeader).msg_id
        return RecallMessageResponse(status=status(Code.OK), message_id=message_id)
