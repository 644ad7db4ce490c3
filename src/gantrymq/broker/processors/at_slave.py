"""What a slave refuses, before any processor: whatever would change its log or its tables, and reads without a key.

==============================  ========================  ========================================================
requests                        code                      as RocketMQ's slave?
==============================  ========================  ========================================================
sends, replies, pops, acks      SYSTEM_BUSY               sends; a pop there fails at its checkpoint
sends of an acting master       SERVICE_NOT_AVAILABLE     yes: with enableSlaveActingMaster
pulls, peeks                    SYSTEM_BUSY               yes: unless slaveReadEnable is on. Here an acting master
                                                          without a master serves them, too
end of a transaction, recall    SLAVE_NOT_AVAILABLE       yes
reset of offsets                SYSTEM_ERROR              yes
topics, groups, modes, …        SYSTEM_ERROR              no: it accepts the change, and loses it a minute later
==============================  ========================  ========================================================

Everything else is answered from the slave's own tables. A committed offset is kept: a consumer that reads here while
the master is away goes on where it was.

Source: SendMessageProcessor.rejectRequest, PullMessageProcessor.rejectRequest, EndTransactionProcessor,
RecallMessageProcessor, AdminBrokerProcessor.resetOffsetInner and validateSlave.
"""

from __future__ import annotations

from collections.abc import Callable

from gantrymq.broker.processors.recall import UNAVAILABLE
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestHook

_BUSY = "[REJECTREQUEST]system busy, start flow control for a while"
_SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)
_WRITES = (
    *_SENDS,
    RequestCode.POP_MESSAGE,
    RequestCode.POP_LITE_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
)
_READS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.PEEK_MESSAGE)
_CHANGES = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.DELETE_TOPIC_IN_BROKER_LIST,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
)
_AT_SLAVE = (
    "service not available now. It may be caused by one of the following reasons: the broker's disk is full, "
    "messages are put to the slave, message store has been shut down, etc."
)
_CHANGE = "Can't modify topic or subscription group from slave broker, please execute it from master broker."
_REFUSALS: dict[int, tuple[int, str | None]] = {
    **dict.fromkeys((*_WRITES, *_READS), (ResponseCode.SYSTEM_BUSY, _BUSY)),
    RequestCode.END_TRANSACTION: (ResponseCode.SLAVE_NOT_AVAILABLE, None),
    RequestCode.RECALL_MESSAGE: (ResponseCode.SLAVE_NOT_AVAILABLE, UNAVAILABLE),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker"),
    **dict.fromkeys(_CHANGES, (ResponseCode.SYSTEM_ERROR, _CHANGE)),
}


def refusals_of_slave(config: LiveConfig, master: Callable[[], str], is_alone: Callable[[], bool]) -> RequestHook:
    """A hook that refuses these requests while the broker is a slave.

    ``master()`` is its master's address, or empty. ``is_alone()`` says whether its copy has no master.

    Thread rule: the event loop's thread.
    """

    def refuse(channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        refusal = _REFUSALS.get(request.code)
        if refusal is None or not config.is_slave:
            return None
        is_acting = config.broker.enable_slave_acting_master
        if request.code in _READS and (config.broker.slave_read_enable or (is_acting and is_alone())):
            return None
        if request.code in _SENDS and is_acting:
            return request.response(ResponseCode.SERVICE_NOT_AVAILABLE, _AT_SLAVE)
        code, remark = refusal
        if remark is _CHANGE and master():
            remark = f"{remark} The master is {master()}."
        return request.response(code, remark)

    return refuse
