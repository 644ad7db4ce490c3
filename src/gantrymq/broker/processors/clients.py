"""HEART_BEAT, UNREGISTER_CLIENT and CHECK_CLIENT_CONFIG.

Source: ClientManageProcessor.
"""

from __future__ import annotations

from gantrymq.broker import names, refusals
from gantrymq.broker.acl.permissions import CHECK_CLIENT_CONFIG, HEART_BEAT, UNREGISTER_CLIENT
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.sessions.consumers import CONSUME_ACTIVELY, is_tag_type
from gantrymq.broker.sessions.producers import ClientChannel
from gantrymq.broker.sessions.sessions import Sessions
from gantrymq.broker.tables.tables import Tables
from gantrymq.broker.tables.topics import UNIT_SUB_FLAG
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import FilterSyntaxError
from gantrymq.remoting.acl import ACCESS_KEY
from gantrymq.remoting.bodies.client import CheckClientRequestBody, ConsumerData, HeartbeatData
from gantrymq.remoting.body import decode_request
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import UnregisterClientRequestHeader
from gantrymq.remoting.transport.channel import Channel

_SUPPORTS_V2, _IS_SUB_CHANGE = "IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE"


class ClientManageProcessor:
    """Registers clients and their subscriptions."""

    def __init__(self, config: LiveConfig, clock: Clock, tables: Tables, sessions: Sessions) -> None:
        self._config, self._clock = config, clock
        self._topics, self._groups, self._filters = tables.topics, tables.groups, tables.filters
        self._consumers, self._producers = sessions.consumers, sessions.producers

    def heart_beat(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """HEART_BEAT in both versions. In version 2 a fingerprint replaces subscriptions that the broker knows."""
        data = decode_request(HeartbeatData, request.body)
        names.require_short("client id", data.client_id)
        account = request.ext_fields.get(ACCESS_KEY, "") if self._config.broker.is_guarded else ""
        now_ms = monotonic_ms(self._clock)
        client = ClientChannel(channel, data.client_id, request.language, request.version, now_ms, account)
        changed = data.heartbeat_fingerprint == 0
        for consumer in data.consumer_data_set:
            changed |= self._consumer(client, consumer, data)
        for producer in data.producer_data_set:
            names.require_short("group", producer.group_name)
            self._producers.register(producer.group_name, client)
        response = request.response(ResponseCode.SUCCESS)
        response.ext_fields.update({_SUPPORTS_V2: "true", _IS_SUB_CHANGE: "true" if changed else "false"})
        return response

    def _consumer(self, client: ClientChannel, consumer: ConsumerData, data: HeartbeatData) -> bool:
        """Register one group of a heartbeat. Returns whether the next heartbeat must contain its subscriptions.

        They are needed if the fingerprint differs from the last one of the group, or if a group without members (after
        a broken connection or a restart of the broker) gets a member that sent none.
        """
        if self._config.broker.reject_pull_consumer_enable and consumer.consume_type == CONSUME_ACTIVELY:
            return False
        name = consumer.group_name
        group = self._groups.find(name)
        if group is None:
            return False
        in_order = any(
            self._topics.is_order_topic(subscription.topic) for subscription in consumer.subscription_data_set
        )
        self._topics.create_for_group(
            names.retry_topic(name),
            group.retry_queue_nums,
            order=in_order,
            sys_flag=UNIT_SUB_FLAG if consumer.unit_mode else 0,
        )
        names.require_short("group's type", consumer.consume_type, consumer.message_model, consumer.consume_from_where)
        before = self._consumers.group(name)
        is_other = data.without_sub if before is None else before.fingerprint != data.heartbeat_fingerprint
        with_subscriptions = not (data.heartbeat_fingerprint and data.without_sub)
        self._consumers.register(
            consumer,
            client,
            notify=group.notify_consumer_ids_changed_enable,
            with_subscriptions=with_subscriptions,
            fingerprint=data.heartbeat_fingerprint,
        )
        if with_subscriptions:
            self._filters.register(name, consumer.subscription_data_set)
            by_tag = all(is_tag_type(subscription.expression_type) for subscription in consumer.subscription_data_set)
            if not by_tag and self._config.broker.enable_property_filter and not self._filters.is_ready:
                self._filters.begin_loading()
        return is_other

    def unregister(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UNREGISTER_CLIENT."""
        header = request.read(UnregisterClientRequestHeader)
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, channel)
        if header.consumer_group is not None:
            group = self._groups.find(header.consumer_group)
            notify = group is None or group.notify_consumer_ids_changed_enable
            self._consumers.unregister(header.consumer_group, channel, notify=notify)
        return request.response(ResponseCode.SUCCESS)

    async def check_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CHECK_CLIENT_CONFIG: whether a filter can be compiled, if it is not by tags."""
        subscription = decode_request(CheckClientRequestBody, request.body).subscription_data
        if subscription is None or is_tag_type(subscription.expression_type):
            return request.response(ResponseCode.SUCCESS)
        kind = subscription.expression_type
        if not self._config.broker.enable_property_filter:
            raise refusals.filter_unsupported(kind)
        if not self._filters.is_ready:
            await self._filters.begin_loading()
        try:
            self._filters.compile(kind, subscription.sub_string)
        except FilterSyntaxError as error:
            return request.response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        return request.response(ResponseCode.SUCCESS)


def routes(context: BrokerContext) -> Routes:
    """The rows of clients that register themselves."""
    clients = ClientManageProcessor(context.config, context.clock, context.tables, context.sessions)
    return {
        RequestCode.HEART_BEAT: Route(clients.heart_beat, HEART_BEAT, after_dispatch=False),
        RequestCode.UNREGISTER_CLIENT: Route(clients.unregister, UNREGISTER_CLIENT, after_dispatch=False),
        RequestCode.CHECK_CLIENT_CONFIG: Route(clients.check_config, CHECK_CLIENT_CONFIG, after_dispatch=False),
    }
