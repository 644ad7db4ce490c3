"""Administration of consumer groups: create, change, delete, list, forbid a topic.

Source: AdminBrokerProcessor.
"""

from __future__ import annotations

from gantrymq.broker import names
from gantrymq.broker.answers import LongAnswers, encode_in_slices
from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.pop.service import PopService
from gantrymq.broker.statistics import BrokerStatsManager
from gantrymq.broker.tables.attributes import WrongAttributeError
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.persistence import SUBSCRIPTION_GROUP, TOPICS, ConfigPersistence
from gantrymq.broker.tables.subscription_groups import FORBIDDEN_READ, SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager, wrong_queues
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.names import CONSUMER_OFFSET
from gantrymq.remoting.bodies.group import GroupForbidden, SubscriptionGroupConfig, SubscriptionGroupList
from gantrymq.remoting.body import decode_request
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from gantrymq.remoting.transport.channel import Channel


class GroupAdminProcessor:
    """Administrative requests about groups. The answer is sent when the change is on disk."""

    def __init__(
        self,
        config: LiveConfig,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        stats: BrokerStatsManager,
        kept: ConfigPersistence,
        outer: BrokerOuterAPI,
        pop: PopService,
        meter: BrokerMeter,
        clock: Clock,
    ) -> None:
        self._meter, self._clock = meter, clock
        self._config, self._topics, self._groups, self._offsets = config, topics, groups, offsets
        self._stats, self._kept, self._outer, self._pop = stats, kept, outer, pop
        self._long = LongAnswers()

    async def update(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        return await self._update(request, [decode_request(SubscriptionGroupConfig, request.body)])

    async def update_list(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: all groups or none."""
        return await self._update(request, decode_request(SubscriptionGroupList, request.body).group_config_list)

    async def _update(self, request: RemotingCommand, groups: list[SubscriptionGroupConfig]) -> RemotingCommand:
        began_ms = monotonic_ms(self._clock)
        answer = await self._updated(request, groups)
        took_ms = monotonic_ms(self._clock) - began_ms
        self._meter.groups_updated(took_ms, is_done=answer.code == ResponseCode.SUCCESS)
        return answer

    async def _updated(self, request: RemotingCommand, groups: list[SubscriptionGroupConfig]) -> RemotingCommand:
        for group in groups:
            name = group.group_name or ""
            wrong = names.wrong_group(name) or wrong_queues(names.retry_topic(name), group.retry_queue_nums)
            if wrong is not None:
                return request.response(ResponseCode.INVALID_PARAMETER, wrong)
        try:
            self._groups.update(groups)
        except WrongAttributeError as error:
            return request.response(error.code, str(error))
        grown = [
            self._topics.grow_for_group(names.retry_topic(group.group_name or ""), group.retry_queue_nums)
            for group in groups
        ]
        await self._kept.save(SUBSCRIPTION_GROUP)
        if any(grown):
            await self._kept.save(TOPICS)
            await self._outer.settled()
        return request.response(ResponseCode.SUCCESS)

    async def delete(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """DELETE_SUBSCRIPTIONGROUP, and with ``cleanOffset`` its offsets."""
        asked = request.read(DeleteSubscriptionGroupRequestHeader)
        self._groups.delete(asked.group_name)
        self._pop.forget(group=asked.group_name)
        self._stats.forget([asked.group_name])
        self._meter.forget_groups([asked.group_name])
        if asked.clean_offset:
            self._offsets.remove_group(asked.group_name)
            await self._kept.save(CONSUMER_OFFSET)
        await self._kept.save(SUBSCRIPTION_GROUP)
        return request.response(ResponseCode.SUCCESS)

    def get(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_SUBSCRIPTIONGROUP_CONFIG."""
        group = self._groups.find(request.read(GetSubscriptionGroupConfigRequestHeader).group)
        if group is None:
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return request.response(ResponseCode.SUCCESS, body=group.encode())

    async def get_all(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: all groups, or maxGroupNum groups from number groupSeq on."""
        asked = request.read(GetAllSubscriptionGroupRequestHeader)
        chosen = None
        is_split = (asked.data_version, asked.group_seq, asked.max_group_num) != (None, None, None)
        if self._config.broker.enable_split_metadata and is_split:
            begin = asked.group_seq or 0
            if begin and asked.data_version != self._groups.version.encode().decode():
                begin = 0  # the table has changed, so start over
            limit = self._config.broker.split_metadata_size
            most = min(limit, asked.max_group_num or limit)
            chosen = [self._groups.table[name] for name in sorted(self._groups.table)[begin : begin + most]]
        header = GetAllSubscriptionGroupResponseHeader(total_group_num=len(self._groups.table))
        body = self._groups.to_body(chosen)
        async with self._long.turn(channel, len(body.subscription_group_table)):
            return request.response(ResponseCode.SUCCESS, header=header, body=await encode_in_slices(body))

    async def forbid(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_GET_GROUP_FORBIDDEN: set and return whether a group may read a topic."""
        asked = request.read(UpdateGroupForbiddenRequestHeader)
        topic = asked.topic or ""
        if asked.readable is not None:
            self._groups.set_forbidden(asked.group, topic, FORBIDDEN_READ, forbidden=not asked.readable)
            await self._kept.save(SUBSCRIPTION_GROUP)
        readable = not self._groups.is_forbidden(asked.group, topic, FORBIDDEN_READ)
        body = GroupForbidden(topic=topic, group=asked.group, readable=readable)
        return request.response(ResponseCode.SUCCESS, "", body=body.encode())
