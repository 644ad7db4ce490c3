"""What tools ask about timer messages: the checkpoint and the numbers of waiting messages.

Source: AdminBrokerProcessor.getTimerCheckPoint, getTimerMetrics and switchTimerEngine.
"""

from __future__ import annotations

from gantrymq.broker.acl.permissions import CHANGES_CLUSTER, READS_CLUSTER
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.format.timer import encode_timer_checkpoint
from gantrymq.model import fastjson
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel
from gantrymq.store.copied_progress import CopiedProgress
from gantrymq.store.timer.timer_service import TimerMessageService

_WHEEL, _ROCKSDB = "F", "R"  # TIMER_ENGINE_FILE_TIME_WHEEL, TIMER_ENGINE_ROCKSDB_TIMELINE


class TimerAdminProcessor:
    """Answers from ``timers``, at a slave from ``copied``; both are None with timerWheelEnable=false."""

    def __init__(self, timers: TimerMessageService | None, copied: CopiedProgress | None) -> None:
        self._timers, self._copied = timers, copied

    def checkpoint(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_TIMER_CHECK_POINT: the 56 bytes of ``config/timercheck``."""
        if self._timers is not None:
            page = self._timers.checkpoint
        elif self._copied is not None:
            page = self._copied.timer_checkpoint
        else:
            return request.response(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return request.response(ResponseCode.SUCCESS, body=encode_timer_checkpoint(page))

    def metrics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_TIMER_METRICS: how many messages wait for each topic."""
        if self._timers is not None:
            metrics = self._timers.metrics
        elif self._copied is not None:
            metrics = self._copied.timer_metrics
        else:
            return request.response(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        return request.response(ResponseCode.SUCCESS, body=fastjson.dumps(metrics.table()))

    def switch(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """SWITCH_TIMER_ENGINE: the wheel is the only engine, and is running."""
        if self._timers is None:
            return request.response(ResponseCode.INVALID_PARAMETER, "broker timerWheelEnable is false")
        engine = request.ext_fields.get("E_T")
        if engine == _WHEEL:
            return request.response(ResponseCode.SUCCESS, "switch timer engine success")
        if engine == _ROCKSDB:
            remark = "timerRocksDBEnable must be configured true when broker start"
            return request.response(ResponseCode.INVALID_PARAMETER, remark)
        remark = "param error" if request.ext_fields else "param error, extFields is null"
        return request.response(ResponseCode.INVALID_PARAMETER, remark)


def routes(context: BrokerContext) -> Routes:
    """The rows of the timers."""
    store = context.storage.store
    timers = TimerAdminProcessor(store.timers, store.copied_progress if store.config.timer_wheel_enable else None)
    return {
        RequestCode.GET_TIMER_CHECK_POINT: Route(timers.checkpoint, READS_CLUSTER, after_dispatch=False),
        RequestCode.GET_TIMER_METRICS: Route(timers.metrics, READS_CLUSTER, after_dispatch=False),
        RequestCode.SWITCH_TIMER_ENGINE: Route(timers.switch, CHANGES_CLUSTER, after_dispatch=False),
    }
