"""PULL_MESSAGE and LITE_PULL_MESSAGE: the records of a queue that match a filter.

A pull that finds nothing is held.

Source: PullMessageProcessor, DefaultPullMessageResultHandler.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, cast

from gantrymq.broker import names
from gantrymq.broker.acl.access_control import AccessControl
from gantrymq.broker.answers import answer_waiting
from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.reads.message_puller import MessagePuller, PulledMessages
from gantrymq.broker.reads.record_filter import RecordFilter
from gantrymq.broker.sessions.consumers import (
    BROADCASTING,
    CLUSTERING,
    CONSUME_ACTIVELY,
    ConsumerManager,
    SubscriptionError,
    build_subscription,
    is_tag_type,
    tags_codes,
)
from gantrymq.broker.sessions.long_polling import MAX_WAIT_MS, HeldPull, PullRequestHoldService, held_bytes
from gantrymq.broker.statistics import BrokerStatsManager, StoreStatsService
from gantrymq.broker.tables.consumer_filters import ConsumerFilterManager
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.subscription_groups import FORBIDDEN_READ, SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import PERM_READ, LiveConfig
from gantrymq.errors import FilterSyntaxError
from gantrymq.filter.sql_filter import SqlFilter
from gantrymq.model.status import GetMessageStatus
from gantrymq.remoting.bodies.client import SubscriptionData
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import PullSysFlag, RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_head
from gantrymq.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from gantrymq.remoting.quick_answers import encode_found_head
from gantrymq.remoting.transport.channel import Channel
from gantrymq.store.message_store import MessageStore

OFFSET_RESET = "OFFSET_RESET"
_FOUND = GetMessageStatus.FOUND.value
# As plain ints, because operations on an IntFlag take ten times as long.
_COMMIT_OFFSET, _SUSPEND, _SUBSCRIPTION = map(
    int, (PullSysFlag.COMMIT_OFFSET, PullSysFlag.SUSPEND, PullSysFlag.SUBSCRIPTION)
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


class PullRefusal(Exception):
    """Raised for a pull that is answered with an error.

    ``forbidden_type`` is RocketMQ's number for what is forbidden.
    """

    def __init__(self, code: int, remark: str, forbidden_type: int | None = None) -> None:
        super().__init__(remark)
        self.code, self.remark, self.forbidden_type = code, remark, forbidden_type


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
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        holds: PullRequestHoldService,
        stats: BrokerStatsManager,
        store_stats: StoreStatsService,
        access: AccessControl | None,
        filters: ConsumerFilterManager,
        meter: BrokerMeter,
    ) -> None:
        self._config, self._clock, self._store, self._meter = config, clock, store, meter
        self._puller = MessagePuller(store.lookup)
        self._topics, self._groups, self._consumers = topics, groups, consumers
        self._offsets, self._holds, self._stats, self._store_stats = offsets, holds, stats, store_stats
        self._access, self._filters = access, filters

    def pull(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand | None] | None:
        """Answer a pull at once, or hold it if its sysFlag allows that and there is no message."""
        asked = request.read(PullMessageRequestHeader)
        if not self._filters.is_ready and not is_tag_type(asked.expression_type):
            return self._pull_when_ready(channel, request, asked)
        return self._process(channel, request, asked, may_wait=True)

    async def _pull_when_ready(
        self, channel: Channel, request: RemotingCommand, asked: PullMessageRequestHeader
    ) -> RemotingCommand | None:
        """The first pull with a filter, as after a restart: the parser is loaded on a thread."""
        if self._config.broker.enable_property_filter:
            await self._filters.begin_loading()
        return self._process(channel, request, asked, may_wait=True)

    def _process(
        self, channel: Channel, request: RemotingCommand, asked: PullMessageRequestHeader, *, may_wait: bool
    ) -> RemotingCommand | None:
        try:
            checked = self._check(channel, request, asked)
        except PullRefusal as refusal:
            header = PullMessageResponseHeader(
                suggest_which_broker_id=0, next_begin_offset=0, min_offset=0, max_offset=0,
                forbidden_type=refusal.forbidden_type,
            )  # fmt: skip
            return request.response(refusal.code, refusal.remark, header=header)
        group, topic, queue_id = asked.consumer_group, asked.topic, asked.queue_id
        reset = self._offsets.take_reset(group, topic, queue_id)
        if reset is not None and self._config.broker.use_server_side_reset_offset:
            return self._moved(request, asked, checked, reset)
        broker = self._config.broker
        found = self._puller.pull(
            topic,
            queue_id,
            asked.queue_offset,
            min(max(asked.max_msg_nums, 1), broker.max_transfer_count_in_memory),
            min(
                max(asked.max_msg_bytes or broker.max_transfer_bytes_in_memory, 100),
                broker.max_transfer_bytes_in_memory,
            ),
            checked.codes,
            checked.record_filter,
        )
        return self._answer(channel, request, asked, checked, found, may_wait=may_wait)

    # Checks

    def _check(self, channel: Channel, request: RemotingCommand, asked: PullMessageRequestHeader) -> _Checked:
        broker = self._config.broker
        if not broker.is_readable:
            remark = f"the broker[{broker.broker_ip1}] pulling message is forbidden"
            raise PullRefusal(ResponseCode.NO_PERMISSION, remark, _BROKER_FORBIDDEN)
        if request.code == RequestCode.LITE_PULL_MESSAGE and not broker.lite_pull_message_enable:
            remark = f"the broker[{broker.broker_ip1}] for lite pull consumer is forbidden"
            raise PullRefusal(ResponseCode.NO_PERMISSION, remark, _BROKER_FORBIDDEN)
        group = self._groups.find(asked.consumer_group)
        if group is None:
            remark = f"subscription group [{asked.consumer_group}] does not exist, {names.FAQ}"
            raise PullRefusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {asked.consumer_group}"
            raise PullRefusal(ResponseCode.NO_PERMISSION, remark, _GROUP_FORBIDDEN)
        topic = self._check_topic(channel, asked)
        if self._groups.is_forbidden(asked.consumer_group, asked.topic, FORBIDDEN_READ):
            remark = f"the consumer group[{asked.consumer_group}] is forbidden for topic[{asked.topic}]"
            raise PullRefusal(ResponseCode.NO_PERMISSION, remark, _SUBSCRIPTION_FORBIDDEN)
        subscription = self._subscription(asked, group)
        record_filter = self._record_filter(asked, subscription)
        self._check_pull_consumer(channel, asked.consumer_group)
        return _Checked(topic, group, tags_codes(subscription), record_filter)

    def _check_topic(self, channel: Channel, asked: PullMessageRequestHeader) -> TopicConfig:
        topic = self._topics.get(asked.topic)
        if topic is None:
            remark = f"topic[{asked.topic}] not exist, apply first please! {names.FAQ}"
            raise PullRefusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PERM_READ:
            remark = f"the topic[{asked.topic}] pulling message is forbidden"
            raise PullRefusal(ResponseCode.NO_PERMISSION, remark, _TOPIC_FORBIDDEN)
        if not 0 <= asked.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{asked.queue_id}] is illegal, topic:[{asked.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{channel.address}]"
            )
            raise PullRefusal(ResponseCode.INVALID_PARAMETER, remark)
        return topic

    def _subscription(self, asked: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> SubscriptionData:
        model = BROADCASTING if asked.request_source == _PROXY_FOR_BROADCAST else CLUSTERING
        if asked.sys_flag & _SUBSCRIPTION:
            try:
                found = build_subscription(asked.topic, asked.subscription, asked.expression_type, self._clock.now_ms())
            except SubscriptionError:
                remark = "parse the consumer's subscription failed"
                raise PullRefusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None
            self._consumers.note_pull(asked.consumer_group, model, found, monotonic_ms(self._clock))
        else:
            found = self._known_subscription(asked, group)
        return found

    def _record_filter(self, asked: PullMessageRequestHeader, subscription: SubscriptionData) -> RecordFilter | None:
        """The filter of a subscription that is not by tags; None for one by tags."""
        kind = subscription.expression_type
        if subscription.class_filter_mode or is_tag_type(kind):
            return None
        broker, sql = self._config.broker, None
        if asked.sys_flag & _SUBSCRIPTION:
            if broker.enable_property_filter:
                sql = self._compiled(asked, subscription)
        else:
            data = self._filters.get(asked.topic, asked.consumer_group)
            with suppress(FilterSyntaxError):
                sql = self._filters.compiled(data) if data is not None and broker.enable_property_filter else None
            if data is None or (sql is None and broker.enable_property_filter):
                remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
                raise PullRefusal(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
            if data.client_version < asked.sub_version:
                remark = "the consumer's consumer filter data not latest"
                raise PullRefusal(ResponseCode.FILTER_DATA_NOT_LATEST, remark)
        if sql is None:
            remark = f"The broker does not support consumer to filter message by {kind}"
            raise PullRefusal(ResponseCode.SYSTEM_ERROR, remark)
        is_retry = broker.filter_support_retry and asked.topic.startswith(names.RETRY_PREFIX)
        return RecordFilter(sql, partial(self._find_filter, asked.consumer_group) if is_retry else None)

    def _compiled(self, asked: PullMessageRequestHeader, subscription: SubscriptionData) -> SqlFilter:
        """The filter of a pull with its own subscription. RocketMQ delivers every message if it is invalid."""
        try:
            return self._filters.compile(subscription.expression_type, asked.subscription)
        except FilterSyntaxError:
            remark = "parse the consumer's subscription failed"
            raise PullRefusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None

    def _find_filter(self, group: str, topic: str) -> SqlFilter | None:
        """The filter of a group for the topic that a message of its retry topic came from."""
        data = self._filters.get(topic, group)
        with suppress(FilterSyntaxError):
            return self._filters.compiled(data) if data is not None else None
        return None

    def _known_subscription(self, asked: PullMessageRequestHeader, config: SubscriptionGroupConfig) -> SubscriptionData:
        """The subscription from the group's heartbeats, if it is as new as the pull requires."""
        name = asked.consumer_group
        group = self._consumers.group(name)
        if group is None:
            remark = f"the consumer's group info not exist{names.FAQ}"
            raise PullRefusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if group.is_broadcast and not config.consume_broadcast_enable:
            remark = f"the consumer group[{name}] can not consume by broadcast way"
            raise PullRefusal(ResponseCode.NO_PERMISSION, remark, _BROADCAST_FORBIDDEN)
        found = group.subscriptions.get(asked.topic)
        if found is None:
            remark = f"the consumer's subscription not exist{names.FAQ}"
            raise PullRefusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if found.sub_version < asked.sub_version:
            raise PullRefusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return found

    def _check_pull_consumer(self, channel: Channel, name: str) -> None:
        if not self._config.broker.reject_pull_consumer_enable or name == names.TOOLS_GROUP:
            return
        group = self._consumers.group(name)
        if group is None or (group.consume_type == CONSUME_ACTIVELY and channel not in group.channels):
            remark = f"the consumer's group info not exist, or the pull consumer is rejected by server.{names.FAQ}"
            raise PullRefusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)

    # Answers

    def _moved(
        self, request: RemotingCommand, asked: PullMessageRequestHeader, checked: _Checked, to: int
    ) -> RemotingCommand:
        """Tell the consumer to continue at the reset offset. The older offset in the pull's header is not committed."""
        low = self._store.min_offset_in_queue(asked.topic, asked.queue_id)
        high = self._store.max_offset_in_queue(asked.topic, asked.queue_id)
        self._offsets.commit_pulled(asked.consumer_group, asked.topic, asked.queue_id, to)
        header = self._header(PulledMessages(GetMessageStatus.OFFSET_OVERFLOW_BADLY, to, low, high), checked)
        return request.response(ResponseCode.PULL_OFFSET_MOVED, OFFSET_RESET, header=header)

    def _answer(
        self,
        channel: Channel,
        request: RemotingCommand,
        asked: PullMessageRequestHeader,
        checked: _Checked,
        found: PulledMessages,
        *,
        may_wait: bool,
    ) -> RemotingCommand | None:
        self._commit(asked, found.next_begin_offset, may_commit=may_wait)
        self._store_stats.pulled(found.count)
        if found.status is GetMessageStatus.FOUND:
            self._send(channel, request, asked, checked, found)
            return None
        if found.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE:
            code = ResponseCode.PULL_OFFSET_MOVED if asked.queue_offset != 0 else ResponseCode.PULL_NOT_FOUND
        else:
            code = _CODES[found.status]
        if code is ResponseCode.PULL_NOT_FOUND and may_wait and asked.sys_flag & _SUSPEND:
            self._hold(channel, request, asked, checked)
            return None
        return request.response(code, found.status.value, header=self._header(found, checked))

    def _send(
        self,
        channel: Channel,
        request: RemotingCommand,
        asked: PullMessageRequestHeader,
        checked: _Checked,
        found: PulledMessages,
    ) -> None:
        self._stats.got(asked.consumer_group, asked.topic, found.count, found.size_bytes)
        self._meter.got(asked.consumer_group, asked.topic, found.count, found.size_bytes)
        header, size_bytes = self._header(found, checked), sum(map(len, found.pieces))
        head = encode_found_head(request, _FOUND, header, size_bytes)
        if head is None:
            head = encode_head(request.response(ResponseCode.SUCCESS, _FOUND, header=header), size_bytes)
        channel.respond_bytes(request, ResponseCode.SUCCESS, [head, *cast("list[bytes]", found.pieces)])

    def _hold(
        self, channel: Channel, request: RemotingCommand, asked: PullMessageRequestHeader, checked: _Checked
    ) -> None:
        broker = self._config.broker
        wait_ms = asked.suspend_timeout_millis if broker.long_polling_enable else broker.short_polling_time_ms
        recheck = self._access.recheck(channel, request) if self._access is not None else None
        request.drop_content()  # the request has been read, and a body may have a megabyte
        request.is_suspended = True

        def resume() -> None:
            answer = partial(self._process, channel, request, asked, may_wait=False)
            answer_waiting(channel, request, recheck, answer)

        texts = (asked.topic, asked.consumer_group, asked.subscription, asked.expression_type)
        pull = HeldPull(
            channel,
            asked.queue_offset,
            checked.codes,
            monotonic_ms(self._clock) + min(wait_ms, MAX_WAIT_MS),
            resume,
            held_bytes(texts, checked.codes),
        )
        if checked.record_filter is not None:
            pull.is_ready = partial(
                self._puller.has_match, asked.topic, asked.queue_id, record_filter=checked.record_filter
            )
        self._holds.hold(asked.topic, asked.queue_id, pull, broker.pull_thread_pool_queue_capacity)

    def _commit(self, asked: PullMessageRequestHeader, next_offset: int, *, may_commit: bool) -> None:
        group, topic, queue_id = asked.consumer_group, asked.topic, asked.queue_id
        self._offsets.commit_pulled(group, topic, queue_id, next_offset)
        if may_commit and asked.sys_flag & _COMMIT_OFFSET:
            self._offsets.commit(group, topic, queue_id, asked.commit_offset)

    def _header(self, found: PulledMessages, checked: _Checked) -> PullMessageResponseHeader:
        return PullMessageResponseHeader(
            suggest_which_broker_id=0,
            next_begin_offset=found.next_begin_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
            topic_sys_flag=checked.topic.topic_sys_flag,
            group_sys_flag=checked.group.group_sys_flag,
        )
