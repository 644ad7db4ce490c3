"""Administration of consumer groups: create, change, delete, list, forbid a topic.

Source: AdminBrokerProcessor.
"""

from __future__ import annotations

from gantrymq.auth.policies import Action
from gantrymq.broker import names
from gantrymq.broker.acl.permissions import CHANGES_CLUSTER, GET, READS_CLUSTER, UPDATE, consume, group_in, on, topic_in
from gantrymq.broker.answers import LongAnswers, encode_in_slices
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.measures import Measures
from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.pop.service import Pop
from gantrymq.broker.processors.metadata_pages import page_of
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.tables.persistence import SUBSCRIPTION_GROUP, TOPICS
from gantrymq.broker.tables.subscription_groups import FORBIDDEN_READ
from gantrymq.broker.tables.tables import Tables
from gantrymq.broker.tables.topics import wrong_queues
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.names import CONSUMER_OFFSET
from gantrymq.remoting.bodies.group import (
    DeleteSubscriptionGroupListRequestBody,
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from gantrymq.remoting.body import decode_request
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestRefused


class GroupAdminProcessor:
    """Administrative requests about groups. The answer is sent when the change is on disk."""

    def __init__(
        self, config: LiveConfig, clock: Clock, tables: Tables, pop: Pop, measures: Measures, outer: BrokerOuterAPI
    ) -> None:
        self._config, self._clock, self._pop, self._measures, self._outer = config, clock, pop, measures, outer
        self._topics, self._groups, self._offsets, self._persistence = (
            tables.topics,
            tables.groups,
            tables.offsets,
            tables.persistence,
        )
        self._long = LongAnswers()

    async def update(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        return await self._update(request, [decode_request(SubscriptionGroupConfig, request.body)])

    async def update_list(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: all groups or none."""
        return await self._update(request, decode_request(SubscriptionGroupList, request.body).group_config_list)

    async def _update(self, request: RemotingCommand, groups: list[SubscriptionGroupConfig]) -> RemotingCommand:
        began_ms, is_done = monotonic_ms(self._clock), False
        try:
            await self._change(groups)
            is_done = True
        finally:
            self._measures.meter.groups_updated(monotonic_ms(self._clock) - began_ms, is_done=is_done)
        return request.response(ResponseCode.SUCCESS)

    async def _change(self, groups: list[SubscriptionGroupConfig]) -> None:
        for group in groups:
            name = group.group_name or ""
            wrong = names.wrong_group(name) or wrong_queues(names.retry_topic(name), group.retry_queue_nums)
            if wrong is not None:
                raise RequestRefused(ResponseCode.INVALID_PARAMETER, wrong)
        self._groups.update(groups)
        grown = [
            self._topics.grow_for_group(names.retry_topic(group.group_name or ""), group.retry_queue_nums)
            for group in groups
        ]
        await self._persistence.save(SUBSCRIPTION_GROUP)
        if any(grown):
            await self._persistence.save(TOPICS)
            await self._outer.settled()

    async def delete(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """DELETE_SUBSCRIPTIONGROUP, and with ``cleanOffset`` its offsets."""
        header = request.read(DeleteSubscriptionGroupRequestHeader)
        return await self._delete_all(request, [header.group_name], with_offsets=header.clean_offset)

    async def delete_list(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """DELETE_SUBSCRIPTION_GROUP_LIST: as DELETE_SUBSCRIPTIONGROUP. A blank name refuses the whole list."""
        body = decode_request(DeleteSubscriptionGroupListRequestBody, request.body) if request.body else None
        if body is None or not body.group_name_list:
            return request.response(ResponseCode.INVALID_PARAMETER, "The specified group name list is blank.")
        groups = [group or "" for group in body.group_name_list]
        if not all(group.strip() for group in groups):
            return request.response(ResponseCode.INVALID_PARAMETER, "The specified group name is blank.")
        return await self._delete_all(request, groups, with_offsets=body.clean_offset)

    async def _delete_all(self, request: RemotingCommand, groups: list[str], *, with_offsets: bool) -> RemotingCommand:
        for group in groups:
            self._groups.delete(group)
            self._pop.forget(group=group)
            if with_offsets:
                self._offsets.remove_group(group)
        self._measures.forgotten(groups=groups)
        if with_offsets:
            await self._persistence.save(CONSUMER_OFFSET)
        await self._persistence.save(SUBSCRIPTION_GROUP)
        return request.response(ResponseCode.SUCCESS)

    def get(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_SUBSCRIPTIONGROUP_CONFIG."""
        group = self._groups.find(request.read(GetSubscriptionGroupConfigRequestHeader).group)
        if group is None:
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return request.response(ResponseCode.SUCCESS, body=group.encode())

    async def get_all(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: all groups, or maxGroupNum groups from number groupSeq on."""
        wanted = request.read(GetAllSubscriptionGroupRequestHeader)
        page = page_of(self._groups, self._config.broker, wanted.data_version, wanted.group_seq, wanted.max_group_num)
        chosen = None if page is None else [self._groups.table[name] for name in page]
        header = GetAllSubscriptionGroupResponseHeader(total_group_num=len(self._groups.table))
        body = self._groups.to_body(chosen)
        async with self._long.turn(channel, len(body.subscription_group_table)):
            return request.response(ResponseCode.SUCCESS, header=header, body=await encode_in_slices(body))

    async def forbid(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_GET_GROUP_FORBIDDEN: set and return whether a group may read a topic."""
        header = request.read(UpdateGroupForbiddenRequestHeader)
        topic = header.topic or ""
        if header.readable is not None:
            self._groups.set_forbidden(header.group, topic, FORBIDDEN_READ, forbidden=not header.readable)
            await self._persistence.save(SUBSCRIPTION_GROUP)
        readable = not self._groups.is_forbidden(header.group, topic, FORBIDDEN_READ)
        body = GroupForbidden(topic=topic, group=header.group, readable=readable)
        return request.response(ResponseCode.SUCCESS, "", body=body.encode())


def routes(context: BrokerContext) -> Routes:
    """The rows of the administration of groups."""
    groups = GroupAdminProcessor(
        context.config, context.clock, context.tables, context.pop, context.measures, context.outer
    )
    return {
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Route(groups.update, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Route(
            groups.update_list, CHANGES_CLUSTER, after_dispatch=False
        ),
        RequestCode.DELETE_SUBSCRIPTIONGROUP: Route(
            groups.delete,
            on(DeleteSubscriptionGroupRequestHeader, (Action.DELETE,), group_in("group_name")),
            after_dispatch=False,
        ),
        RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST: Route(groups.delete_list, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Route(
            groups.get,
            consume(GetSubscriptionGroupConfigRequestHeader, group_in("group"), actions=GET),
            after_dispatch=False,
        ),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Route(groups.get_all, READS_CLUSTER, after_dispatch=False),
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: Route(
            groups.forbid,
            on(UpdateGroupForbiddenRequestHeader, UPDATE, group_in("group"), topic_in()),
            after_dispatch=False,
        ),
    }
