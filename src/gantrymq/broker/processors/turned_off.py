"""Requests for what this broker does not do, each with the answer that RocketMQ gives where the feature is off.

Source: AdminBrokerProcessor, PopMessageProcessor, EndTransactionProcessor, RecallMessageProcessor.
"""

from __future__ import annotations

from gantrymq.broker.acl.permissions import ADMINISTRATORS, END_TRANSACTION, consume, send
from gantrymq.broker.processors.route import Route
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.header import CommandHeader
from gantrymq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopLiteMessageRequestHeader,
    PopMessageRequestHeader,
)
from gantrymq.remoting.headers.send import RecallMessageRequestHeader
from gantrymq.remoting.transport.channel import Channel

_ANSWERS = {
    RequestCode.GET_TIMER_CHECK_POINT: (ResponseCode.SYSTEM_ERROR, "The checkpoint is null"),
    RequestCode.GET_TIMER_METRICS: (ResponseCode.SYSTEM_ERROR, "The timer message store is null"),
    RequestCode.SWITCH_TIMER_ENGINE: (ResponseCode.INVALID_PARAMETER, "broker timerWheelEnable is false"),
    RequestCode.RECALL_MESSAGE: (ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden"),
    RequestCode.END_TRANSACTION: (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed"),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: (
        ResponseCode.SYSTEM_ERROR,
        "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC.",
    ),
    RequestCode.GET_BROKER_EPOCH_CACHE: (ResponseCode.SYSTEM_ERROR, "this request only for controllerMode "),
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: (ResponseCode.SUCCESS, None),
    RequestCode.RESET_MASTER_FLUSH_OFFSET: (ResponseCode.SUCCESS, None),
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: (ResponseCode.SUCCESS, None),
    RequestCode.POP_ROLLBACK: (ResponseCode.SUCCESS, None),
}
# Refused whatever they ask for. The permissions are those that the same requests need where POP is on.
_POP: dict[RequestCode, type[CommandHeader]] = {
    RequestCode.POP_MESSAGE: PopMessageRequestHeader,
    RequestCode.PEEK_MESSAGE: PeekMessageRequestHeader,
    RequestCode.NOTIFICATION: NotificationRequestHeader,
    RequestCode.POLLING_INFO: PollingInfoRequestHeader,
    RequestCode.ACK_MESSAGE: AckMessageRequestHeader,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: ChangeInvisibleTimeRequestHeader,
    RequestCode.POP_LITE_MESSAGE: PopLiteMessageRequestHeader,
}
_BODIES = {
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: b'{"messageRequestModeMap":{}}',
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: (
        b'{"runtimeTable":{},"configTable":{},"cgColdReadThreshold":3145728,"globalColdReadThreshold":104857600,'
        b'"globalAcc":0}'
    ),
}


def turned_off(config: LiveConfig) -> dict[int, Route]:
    """A processor for each of these codes."""

    def refuse(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        code, remark = _ANSWERS[RequestCode(request.code)]
        return request.response(code, remark)

    def refuse_pop(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        remark = f"the broker[{config.broker.broker_ip1}] pop message is forbidden"
        return request.response(ResponseCode.NO_PERMISSION, remark)

    def give_empty(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(ResponseCode.SUCCESS, body=_BODIES[RequestCode(request.code)])

    pop = {int(code): Route(refuse_pop, consume(header, topics=("topic",))) for code, header in _POP.items()}
    return {
        **dict.fromkeys(map(int, _ANSWERS), Route(refuse, ADMINISTRATORS)),
        **dict.fromkeys(map(int, _BODIES), Route(give_empty, ADMINISTRATORS)),
        **pop,
        RequestCode.BATCH_ACK_MESSAGE: Route(refuse_pop, ADMINISTRATORS),  # its body, which names groups, is not read
        RequestCode.END_TRANSACTION: Route(refuse, END_TRANSACTION),
        RequestCode.RECALL_MESSAGE: Route(refuse, send(RecallMessageRequestHeader)),
    }
