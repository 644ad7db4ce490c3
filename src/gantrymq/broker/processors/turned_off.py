"""Requests for what this broker does not do, each with the answer that RocketMQ gives where the feature is off.

Source: AdminBrokerProcessor, PopMessageProcessor, EndTransactionProcessor, RecallMessageProcessor.
"""

from __future__ import annotations

from gantrymq.config.broker_settings import LiveConfig
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import Processor

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
_POP = (
    *(RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE, RequestCode.NOTIFICATION, RequestCode.POLLING_INFO),
    *(RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME),
    RequestCode.POP_LITE_MESSAGE,
)
_BODIES = {
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: b'{"messageRequestModeMap":{}}',
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: (
        b'{"runtimeTable":{},"configTable":{},"cgColdReadThreshold":3145728,"globalColdReadThreshold":104857600,'
        b'"globalAcc":0}'
    ),
}


def turned_off(config: LiveConfig) -> dict[int, Processor]:
    """A processor for each of these codes."""

    def refuse(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        code, remark = _ANSWERS[RequestCode(request.code)]
        return request.response(code, remark)

    def refuse_pop(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        remark = f"the broker[{config.broker.broker_ip1}] pop message is forbidden"
        return request.response(ResponseCode.NO_PERMISSION, remark)

    def give_empty(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(ResponseCode.SUCCESS, body=_BODIES[RequestCode(request.code)])

    return {
        **dict.fromkeys(map(int, _ANSWERS), refuse),
        **dict.fromkeys(map(int, _POP), refuse_pop),
        **dict.fromkeys(map(int, _BODIES), give_empty),
    }
