"""Which processor answers which request of an administrative tool, and who may ask.

Source: AdminBrokerProcessor, QueryMessageProcessor.
"""

from __future__ import annotations

from gantrymq.broker.acl.permissions import ADMINISTRATORS, ANY_ACCOUNT, consume, look, read
from gantrymq.broker.catch_up import DispatchCatchUp
from gantrymq.broker.processors.admin_broker import BrokerAdminProcessor
from gantrymq.broker.processors.admin_clients import ClientAdminProcessor
from gantrymq.broker.processors.admin_groups import GroupAdminProcessor
from gantrymq.broker.processors.admin_offsets import OffsetAdminProcessor
from gantrymq.broker.processors.admin_stats import StatsAdminProcessor
from gantrymq.broker.processors.admin_topics import TopicAdminProcessor
from gantrymq.broker.processors.parts import Parts
from gantrymq.broker.processors.query import QueryMessageProcessor
from gantrymq.broker.processors.route import Route
from gantrymq.broker.processors.turned_off import turned_off
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.headers.consumer import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetConsumeStatsRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from gantrymq.remoting.headers.pull import QueryMessageRequestHeader
from gantrymq.remoting.headers.topic import GetTopicConfigRequestHeader, GetTopicStatsInfoRequestHeader


def admin_routes(parts: Parts) -> dict[int, Route]:
    """The rows of a broker's table that tools use."""
    return {
        **turned_off(parts.config),
        **_broker(parts),
        **_topics(parts),
        **_groups(parts),
        **_clients(parts),
        **_numbers(parts),
        **_messages(parts),
    }


def _broker(parts: Parts) -> dict[int, Route]:
    broker = BrokerAdminProcessor(
        parts.config, parts.clock, parts.store, parts.topics, parts.stats, parts.store_stats, parts.puts, parts.outer
    )
    return {
        RequestCode.UPDATE_BROKER_CONFIG: Route(broker.update_config, ADMINISTRATORS),
        RequestCode.GET_BROKER_CONFIG: Route(broker.get_config, ADMINISTRATORS),
        RequestCode.GET_BROKER_RUNTIME_INFO: Route(broker.runtime_info, ADMINISTRATORS),
        RequestCode.GET_BROKER_HA_STATUS: Route(broker.ha_status, ADMINISTRATORS),
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: Route(broker.clean_queues, ADMINISTRATORS),
        RequestCode.DELETE_EXPIRED_COMMITLOG: Route(broker.delete_expired, ADMINISTRATORS),
    }


def _topics(parts: Parts) -> dict[int, Route]:
    caught_up = DispatchCatchUp(parts.store)
    topics = TopicAdminProcessor(
        parts.config, parts.clock, parts.store, parts.topics, parts.offsets, parts.stats, parts.kept, parts.outer,
        parts.consumers, parts.holds, parts.puts,
    )  # fmt: skip
    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: Route(topics.update, ADMINISTRATORS),
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Route(topics.update_list, ADMINISTRATORS),
        RequestCode.DELETE_TOPIC_IN_BROKER: Route(topics.delete, ADMINISTRATORS),
        RequestCode.CLEAN_UNUSED_TOPIC: Route(topics.clean_unused, ADMINISTRATORS),
        RequestCode.GET_TOPIC_CONFIG: Route(topics.get, look(GetTopicConfigRequestHeader)),
        RequestCode.GET_ALL_TOPIC_CONFIG: Route(topics.get_all, ADMINISTRATORS),
        RequestCode.GET_TOPIC_STATS_INFO: Route(caught_up.before(topics.stats), look(GetTopicStatsInfoRequestHeader)),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Route(topics.list_system, ANY_ACCOUNT),
    }


def _groups(parts: Parts) -> dict[int, Route]:
    caught_up = DispatchCatchUp(parts.store)
    groups = GroupAdminProcessor(
        parts.config, parts.topics, parts.groups, parts.offsets, parts.stats, parts.kept, parts.outer
    )
    offsets = OffsetAdminProcessor(
        parts.config, parts.store, parts.topics, parts.groups, parts.consumers, parts.offsets, parts.kept
    )
    return {
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Route(groups.update, ADMINISTRATORS),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Route(groups.update_list, ADMINISTRATORS),
        RequestCode.DELETE_SUBSCRIPTIONGROUP: Route(groups.delete, ADMINISTRATORS),
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Route(
            groups.get, consume(GetSubscriptionGroupConfigRequestHeader, group="group")
        ),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Route(groups.get_all, ADMINISTRATORS),
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: Route(groups.forbid, ADMINISTRATORS),
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Route(caught_up.before(offsets.reset), ADMINISTRATORS),
        RequestCode.CLONE_GROUP_OFFSET: Route(offsets.clone, ADMINISTRATORS),
        RequestCode.QUERY_CORRECTION_OFFSET: Route(offsets.correction, ADMINISTRATORS),
        RequestCode.GET_ALL_CONSUMER_OFFSET: Route(offsets.get_all, ADMINISTRATORS),
        RequestCode.GET_ALL_DELAY_OFFSET: Route(offsets.delay_offsets, ADMINISTRATORS),
    }


def _clients(parts: Parts) -> dict[int, Route]:
    clients = ClientAdminProcessor(
        parts.config, parts.clock, parts.store, parts.records, parts.topics, parts.groups, parts.consumers,
        parts.producers, parts.offsets, parts.address,
    )  # fmt: skip
    return {
        RequestCode.GET_CONSUMER_CONNECTION_LIST: Route(
            clients.consumers, consume(GetConsumerConnectionListRequestHeader)
        ),
        RequestCode.GET_PRODUCER_CONNECTION_LIST: Route(clients.producers, ADMINISTRATORS),
        RequestCode.GET_ALL_PRODUCER_INFO: Route(clients.all_producers, ADMINISTRATORS),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Route(clients.who_consumes, ADMINISTRATORS),
        RequestCode.QUERY_TOPICS_BY_CONSUMER: Route(
            clients.topics_of, consume(QueryTopicsByConsumerRequestHeader, group="group")
        ),
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: Route(
            clients.subscription, consume(QuerySubscriptionByConsumerRequestHeader, group="group", topics=("topic",))
        ),
        RequestCode.GET_CONSUMER_RUNNING_INFO: Route(
            clients.running_info, consume(GetConsumerRunningInfoRequestHeader)
        ),
        RequestCode.CONSUME_MESSAGE_DIRECTLY: Route(clients.consume_directly, ADMINISTRATORS),
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Route(
            clients.status, consume(GetConsumerStatusRequestHeader, group="group", topics=("topic",))
        ),
    }


def _numbers(parts: Parts) -> dict[int, Route]:
    caught_up = DispatchCatchUp(parts.store)
    stats = StatsAdminProcessor(
        parts.config, parts.clock, parts.store, parts.topics, parts.groups, parts.consumers, parts.offsets, parts.stats,
        parts.address,
    )  # fmt: skip
    return {
        RequestCode.GET_CONSUME_STATS: Route(
            caught_up.before(stats.consume_stats), consume(GetConsumeStatsRequestHeader, topics=("topic", "topic_list"))
        ),
        RequestCode.GET_BROKER_CONSUME_STATS: Route(caught_up.before(stats.all_consume_stats), ADMINISTRATORS),
        RequestCode.QUERY_CONSUME_TIME_SPAN: Route(
            caught_up.before(stats.time_span),
            consume(QueryConsumeTimeSpanRequestHeader, group="group", topics=("topic",)),
        ),
        RequestCode.VIEW_BROKER_STATS_DATA: Route(stats.view, ADMINISTRATORS),
    }


def _messages(parts: Parts) -> dict[int, Route]:
    caught_up = DispatchCatchUp(parts.store)
    query = QueryMessageProcessor(parts.config, parts.store, parts.records, parts.consumers)
    return {
        RequestCode.QUERY_MESSAGE: Route(caught_up.before(query.query), read(QueryMessageRequestHeader)),
        RequestCode.VIEW_MESSAGE_BY_ID: Route(caught_up.before(query.view), ADMINISTRATORS),
        RequestCode.QUERY_CONSUME_QUEUE: Route(caught_up.before(query.queue), ADMINISTRATORS),
    }
