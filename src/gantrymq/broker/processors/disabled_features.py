"""Requests for features that this broker does not have: the answers that RocketMQ gives if the feature is off."""

from __future__ import annotations

from gantrymq.broker import refusals
from gantrymq.broker.acl.permissions import CHANGES_CLUSTER, READS_CLUSTER, consume, group_in, topic_in
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.pop import PopLiteMessageRequestHeader
from gantrymq.remoting.transport.channel import Channel

_ANSWERS: dict[int, tuple[int, str | None]] = {
    RequestCode.GET_BROKER_EPOCH_CACHE: (ResponseCode.SYSTEM_ERROR, "this request only for controllerMode "),
    RequestCode.RESET_MASTER_FLUSH_OFFSET: (ResponseCode.SUCCESS, None),
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: (ResponseCode.SUCCESS, None),
    RequestCode.POP_ROLLBACK: (ResponseCode.SUCCESS, None),
}
_COLD_DATA = (
    b'{"runtimeTable":{},"configTable":{},"cgColdReadThreshold":3145728,"globalColdReadThreshold":104857600,'
    b'"globalAcc":0}'
)


def routes(context: BrokerContext) -> Routes:
    """The rows of features that this broker does not have. The permissions are those of brokers that have them."""

    def answer(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(*_ANSWERS[request.code])

    def refuse_pop(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        raise refusals.broker_forbids(context.config.broker, "pop")

    def give_empty(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(ResponseCode.SUCCESS, body=_COLD_DATA)

    may_pop = consume(PopLiteMessageRequestHeader, group_in(), topic_in())
    return {
        **dict.fromkeys(_ANSWERS, Route(answer, CHANGES_CLUSTER, after_dispatch=False)),
        RequestCode.GET_BROKER_EPOCH_CACHE: Route(answer, READS_CLUSTER, after_dispatch=False),
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: Route(give_empty, READS_CLUSTER, after_dispatch=False),
        RequestCode.POP_LITE_MESSAGE: Route(refuse_pop, may_pop, after_dispatch=False),
    }
