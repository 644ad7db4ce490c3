"""PULL_MESSAGE and LITE_PULL_MESSAGE: the records of a queue that match a filter.

A pull that finds nothing is held.

Source: PullMessageProcessor, DefaultPullMessageResultHandler.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, cast

from gantrymq.broker import names, refusals
from gantrymq.broker.acl.permissions import consume, group_in, topic_in
from gantrymq.broker.answers import Answers, answer_waiting
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.measures import Measures
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.reads.hot_queue import is_in_memory
from gantrymq.broker.reads.message_puller import MessagePuller, PulledMessages
from gantrymq.broker.reads.record_filter import RecordFilter
from gantrymq.broker.sessions.consumers import (
    BROADCASTING,
    CLUSTERING,
    CONSUME_ACTIVELY,
    SubscriptionError,
    build_subscription,
    is_tag_type,
    tags_codes,
)
from gantrymq.broker.sessions.long_polling import MAX_WAIT_MS, HeldPull, held_bytes
from gantrymq.broker.sessions.sessions import Sessions
from gantrymq.broker.tables.subscription_groups import FORBIDDEN_READ
from gantrymq.broker.tables.tables import Tables
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import PERM_READ, LiveConfig
from gantrymq.errors import FilterSyntaxError
from gantrymq.filter.sql_filter import SqlFilter
from gantrymq.model.status import GetMessageStatus
from gantrymq.remoting.bodies.client import SubscriptionData
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from gantrymq.remoting.bodies.route import MASTER_ID
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import PullSysFlag, RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_head
from gantrymq.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from gantrymq.remoting.quick_answers import encode_found_head
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestRefused
from gantrymq.store.message_store import MessageStore

OFFSET_RESET = "OFFSET_RESET"
_SUCCESS_REMARK = GetMessageStatus.FOUND.value
# As plain ints, because operations on an IntFlag take ten times as long.
_COMMIT_OFFSET, _SUSPEND, _SUBSCRIPTION = map(
    int, (PullSysFlag.COMMIT_OFFSET, PullSysFlag.SUSPEND, PullSysFlag.SUBSCRIPTION)
)
_WRONG_OFFSETS = (
    GetMessageStatus.OFFSET_TOO_SMALL,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE,
)
_PROXY_FOR_BROADCAST = 1  # RequestSource

# ForbiddenType
_BROKER_FORBIDDEN, _GROUP_FORBIDDEN, _TOPIC_FORBIDDEN, _BROADCAST_FORBIDDEN, _SUBSCRIPTION_FORBIDDEN = range(1, 6)

_CODES = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


class _Checked(NamedTuple):
    topic: TopicConfig
    group: SubscriptionGroupConfig
    codes: Collection[int] | None
    record_filter: RecordFilter | None


class PullMessageProcessor:
    """Answers pulls, with RocketMQ's error texts."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        store: MessageStore,
        tables: Tables,
        sessions: Sessions,
        measures: Measures,
        answers: Answers,
    ) -> None:
        self._config, self._clock, self._store, self._measures, self._answers = config, clock, store, measures, answers
        self._topics, self._groups, self._offsets, self._filters = (
            tables.topics,
            tables.groups,
            tables.offsets,
            tables.filters,
        )
        self._consumers, self._holds = sessions.consumers, sessions.holds
        self._puller = MessagePuller(store.lookup)

    def pull(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand | None] | None:
        """Answer a pull at once, or hold it if its sysFlag allows that and there is no message."""
        header = request.read(PullMessageRequestHeader)
        if not self._filters.is_ready and not is_tag_type(header.expression_type):
            return self._pull_when_ready(channel, request, header)
        return self._process(channel, request, header, may_wait=True)

    async def _pull_when_ready(
        self, channel: Channel, request: RemotingCommand, header: PullMessageRequestHeader
    ) -> RemotingCommand | None:
        """The first pull with a filter, as after a restart: the parser is loaded on a thread."""
        if self._config.broker.enable_property_filter:
            await self._filters.begin_loading()
        return self._process(channel, request, header, may_wait=True)

    def _process(
        self, channel: Channel, request: RemotingCommand, request_header: PullMessageRequestHeader, *, may_wait: bool
    ) -> RemotingCommand | None:
        try:
            checked = self._check(channel, request, request_header)
        except RequestRefused as refusal:
            header = PullMessageResponseHeader(
                suggest_which_broker_id=0,
                next_begin_offset=0,
                min_offset=0,
                max_offset=0,
                forbidden_type=refusal.forbidden_type,
            )
            return request.response(refusal.code, refusal.remark, header=header)
        group, topic, queue_id = request_header.consumer_group, request_header.topic, request_header.queue_id
        reset = self._offsets.take_reset(group, topic, queue_id)
        if reset is not None and self._config.broker.use_server_side_reset_offset:
            return self._moved(request, request_header, checked, reset)
        broker = self._config.broker
        pulled = self._puller.pull(
            topic,
            queue_id,
            request_header.queue_offset,
            min(max(request_header.max_msg_nums, 1), broker.max_transfer_count_in_memory),
            min(
                max(request_header.max_msg_bytes or broker.max_transfer_bytes_in_memory, 100),
                broker.max_transfer_bytes_in_memory,
            ),
            checked.codes,
            checked.record_filter,
        )
        if self._keeps_wrong_offsets and pulled.status in _WRONG_OFFSETS:
            pulled.next_begin_offset = request_header.queue_offset
        return self._answer(channel, request, request_header, checked, pulled, may_wait=may_wait)

    # Checks

    def _check(self, channel: Channel, request: RemotingCommand, header: PullMessageRequestHeader) -> _Checked:
        broker = self._config.broker
        if not broker.is_readable:
            raise refusals.broker_forbids(broker, "pulling", _BROKER_FORBIDDEN)
        if request.code == RequestCode.LITE_PULL_MESSAGE and not broker.lite_pull_message_enable:
            remark = f"the broker[{broker.broker_ip1}] for lite pull consumer is forbidden"
            raise RequestRefused(ResponseCode.NO_PERMISSION, remark, _BROKER_FORBIDDEN)
        group = self._groups.find(header.consumer_group)
        if group is None:
            raise refusals.group_missing_to_consume(header.consumer_group)
        if not group.consume_enable:
            raise refusals.group_disabled(header.consumer_group, _GROUP_FORBIDDEN)
        topic = self._check_topic(channel, header)
        if self._groups.is_forbidden(header.consumer_group, header.topic, FORBIDDEN_READ):
            remark = f"the consumer group[{header.consumer_group}] is forbidden for topic[{header.topic}]"
            raise RequestRefused(ResponseCode.NO_PERMISSION, remark, _SUBSCRIPTION_FORBIDDEN)
        subscription = self._subscription(header, group)
        record_filter = self._record_filter(header, subscription)
        self._check_pull_consumer(channel, header.consumer_group)
        return _Checked(topic, group, tags_codes(subscription), record_filter)

    def _check_topic(self, channel: Channel, header: PullMessageRequestHeader) -> TopicConfig:
        topic = self._topics.get(header.topic)
        if topic is None:
            raise refusals.topic_missing(header.topic, refusals.APPLY_TO_CONSUME)
        if not topic.perm & PERM_READ:
            raise refusals.topic_forbids(header.topic, "pulling", _TOPIC_FORBIDDEN)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise refusals.wrong_queue_to_consume(ResponseCode.INVALID_PARAMETER, header.queue_id, topic, channel)
        return topic

    def _subscription(self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> SubscriptionData:
        model = BROADCASTING if header.request_source == _PROXY_FOR_BROADCAST else CLUSTERING
        if header.sys_flag & _SUBSCRIPTION:
            try:
                subscription = build_subscription(
                    header.topic, header.subscription, header.expression_type, self._clock.now_ms()
                )
            except SubscriptionError:
                raise refusals.wrong_subscription() from None
            self._consumers.note_pull(header.consumer_group, model, subscription, monotonic_ms(self._clock))
        else:
            subscription = self._known_subscription(header, group)
        return subscription

    def _record_filter(self, header: PullMessageRequestHeader, subscription: SubscriptionData) -> RecordFilter | None:
        """The filter of a subscription that is not by tags; None for one by tags."""
        kind = subscription.expression_type
        if subscription.class_filter_mode or is_tag_type(kind):
            return None
        broker, sql = self._config.broker, None
        if header.sys_flag & _SUBSCRIPTION:
            if broker.enable_property_filter:
                sql = self._compiled(header, subscription)
        else:
            data = self._filters.get(header.topic, header.consumer_group)
            with suppress(FilterSyntaxError):
                sql = self._filters.compiled(data) if data is not None and broker.enable_property_filter else None
            if data is None or (sql is None and broker.enable_property_filter):
                remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
                raise RequestRefused(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
            if data.client_version < header.sub_version:
                remark = "the consumer's consumer filter data not latest"
                raise RequestRefused(ResponseCode.FILTER_DATA_NOT_LATEST, remark)
        if sql is None:
            raise refusals.filter_unsupported(kind)
        is_retry = broker.filter_support_retry and header.topic.startswith(names.RETRY_PREFIX)
        return RecordFilter(sql, partial(self._find_filter, header.consumer_group) if is_retry else None)

    def _compiled(self, header: PullMessageRequestHeader, subscription: SubscriptionData) -> SqlFilter:
        """The filter of a pull with its own subscription. RocketMQ delivers every message if it is invalid."""
        try:
            return self._filters.compile(subscription.expression_type, header.subscription)
        except FilterSyntaxError:
            raise refusals.wrong_subscription() from None

    def _find_filter(self, group: str, topic: str) -> SqlFilter | None:
        """The filter of a group for the topic that a message of its retry topic came from."""
        data = self._filters.get(topic, group)
        with suppress(FilterSyntaxError):
            return self._filters.compiled(data) if data is not None else None
        return None

    def _known_subscription(
        self, header: PullMessageRequestHeader, config: SubscriptionGroupConfig
    ) -> SubscriptionData:
        """The subscription from the group's heartbeats, if it is as new as the pull requires."""
        name = header.consumer_group
        group = self._consumers.group(name)
        if group is None:
            remark = f"the consumer's group info not exist{names.FAQ}"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if group.is_broadcast and not config.consume_broadcast_enable:
            remark = f"the consumer group[{name}] can not consume by broadcast way"
            raise RequestRefused(ResponseCode.NO_PERMISSION, remark, _BROADCAST_FORBIDDEN)
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            remark = f"the consumer's subscription not exist{names.FAQ}"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if subscription.sub_version < header.sub_version:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription

    def _check_pull_consumer(self, channel: Channel, name: str) -> None:
        if not self._config.broker.reject_pull_consumer_enable or name == names.TOOLS_GROUP:
            return
        group = self._consumers.group(name)
        if group is None or (group.consume_type == CONSUME_ACTIVELY and channel not in group.channels):
            remark = f"the consumer's group info not exist, or the pull consumer is rejected by server.{names.FAQ}"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)

    # Answers

    @property
    def _keeps_wrong_offsets(self) -> bool:
        """Whether an offset that is out of range is not corrected: a slave may be behind its master."""
        return self._config.is_slave and not self._config.store.offset_check_in_slave

    def _suggested_broker(self, pulled: PulledMessages, group: SubscriptionGroupConfig) -> int:
        """The id of the broker to pull from next: a slave for messages that are no longer in memory."""
        if not self._config.broker.slave_read_enable:
            return MASTER_ID
        is_far = pulled.last_phy_offset >= 0 and not is_in_memory(self._store, pulled.last_phy_offset)
        if not is_far and self._config.is_slave:
            return MASTER_ID
        return group.which_broker_when_consume_slowly if is_far else group.broker_id

    def _moved(
        self, request: RemotingCommand, request_header: PullMessageRequestHeader, checked: _Checked, to: int
    ) -> RemotingCommand:
        """Tell the consumer to continue at the reset offset. The older offset in the pull's header is not committed."""
        low = self._store.min_offset_in_queue(request_header.topic, request_header.queue_id)
        high = self._store.max_offset_in_queue(request_header.topic, request_header.queue_id)
        self._offsets.commit_pulled(request_header.consumer_group, request_header.topic, request_header.queue_id, to)
        header = self._header(PulledMessages(GetMessageStatus.OFFSET_OVERFLOW_BADLY, to, low, high), checked)
        return request.response(ResponseCode.PULL_OFFSET_MOVED, OFFSET_RESET, header=header)

    def _answer(
        self,
        channel: Channel,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        checked: _Checked,
        pulled: PulledMessages,
        *,
        may_wait: bool,
    ) -> RemotingCommand | None:
        self._commit(header, pulled.next_begin_offset, may_commit=may_wait)
        if pulled.status is GetMessageStatus.FOUND:
            self._send(channel, request, header, checked, pulled)
            return None
        self._measures.delivered_none()
        if pulled.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE:
            code = ResponseCode.PULL_OFFSET_MOVED if header.queue_offset != 0 else ResponseCode.PULL_NOT_FOUND
        else:
            code = _CODES[pulled.status]
        if code is ResponseCode.PULL_OFFSET_MOVED and self._keeps_wrong_offsets:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        if code is ResponseCode.PULL_NOT_FOUND and may_wait and header.sys_flag & _SUSPEND:
            self._hold(channel, request, header, checked)
            return None
        return request.response(code, pulled.status.value, header=self._header(pulled, checked))

    def _send(
        self,
        channel: Channel,
        request: RemotingCommand,
        request_header: PullMessageRequestHeader,
        checked: _Checked,
        pulled: PulledMessages,
    ) -> None:
        self._measures.delivered(request_header.consumer_group, request_header.topic, pulled.count, pulled.size_bytes)
        header, size_bytes = self._header(pulled, checked), sum(map(len, pulled.pieces))
        head = encode_found_head(request, _SUCCESS_REMARK, header, size_bytes)
        if head is None:
            head = encode_head(request.response(ResponseCode.SUCCESS, _SUCCESS_REMARK, header=header), size_bytes)
        channel.respond_bytes(request, ResponseCode.SUCCESS, [head, *cast("list[bytes]", pulled.pieces)])

    def _hold(
        self, channel: Channel, request: RemotingCommand, header: PullMessageRequestHeader, checked: _Checked
    ) -> None:
        broker = self._config.broker
        wait_ms = header.suspend_timeout_millis if broker.long_polling_enable else broker.short_polling_time_ms
        recheck = self._answers.recheck(channel, request)
        request.drop_content()  # the request has been read, and a body may have a megabyte
        request.is_suspended = True

        def resume() -> None:
            answer = partial(self._process, channel, request, header, may_wait=False)
            answer_waiting(channel, request, recheck, answer)

        texts = (header.topic, header.consumer_group, header.subscription, header.expression_type)
        pull = HeldPull(
            channel,
            header.queue_offset,
            checked.codes,
            monotonic_ms(self._clock) + min(wait_ms, MAX_WAIT_MS),
            resume,
            held_bytes(texts, checked.codes),
        )
        if checked.record_filter is not None:
            pull.is_ready = partial(
                self._puller.has_match, header.topic, header.queue_id, record_filter=checked.record_filter
            )
        self._holds.hold(header.topic, header.queue_id, pull, broker.pull_thread_pool_queue_capacity)

    def _commit(self, header: PullMessageRequestHeader, next_offset: int, *, may_commit: bool) -> None:
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._offsets.commit_pulled(group, topic, queue_id, next_offset)
        if may_commit and header.sys_flag & _COMMIT_OFFSET:
            self._offsets.commit(group, topic, queue_id, header.commit_offset)

    def _header(self, pulled: PulledMessages, checked: _Checked) -> PullMessageResponseHeader:
        return PullMessageResponseHeader(
            suggest_which_broker_id=self._suggested_broker(pulled, checked.group),
            next_begin_offset=pulled.next_begin_offset,
            min_offset=pulled.min_offset,
            max_offset=pulled.max_offset,
            topic_sys_flag=checked.topic.topic_sys_flag,
            group_sys_flag=checked.group.group_sys_flag,
        )


def routes(context: BrokerContext) -> Routes:
    """The rows of pulls."""
    pull = PullMessageProcessor(
        context.config,
        context.clock,
        context.storage.store,
        context.tables,
        context.sessions,
        context.measures,
        context.answers,
    ).pull
    may_pull = consume(PullMessageRequestHeader, topic_in(), group_in())
    return {
        RequestCode.PULL_MESSAGE: Route(pull, may_pull, after_dispatch=False),
        RequestCode.LITE_PULL_MESSAGE: Route(pull, may_pull, after_dispatch=False),
    }
