"""Which processor answers which request of an administrator.

Source: AdminBrokerProcessor, QueryMessageProcessor.
"""

from __future__ import annotations

from gantrymq.broker.catch_up import DispatchCatchUp
from gantrymq.broker.processors.admin_broker import BrokerAdminProcessor
from gantrymq.broker.processors.admin_clients import ClientAdminProcessor
from gantrymq.broker.processors.admin_groups import GroupAdminProcessor
from gantrymq.broker.processors.admin_offsets import OffsetAdminProcessor
from gantrymq.broker.processors.admin_stats import StatsAdminProcessor
from gantrymq.broker.processors.admin_topics import TopicAdminProcessor
from gantrymq.broker.processors.parts import Parts
from gantrymq.broker.processors.query import QueryMessageProcessor
from gantrymq.broker.processors.turned_off import turned_off
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.transport.dispatcher import Processor


def admin_processors(parts: Parts) -> dict[int, Processor]:
    """The part of a broker's table that tools use."""
    return {
        **turned_off(parts.config),
        **_broker(parts),
        **_topics(parts),
        **_groups(parts),
        **_clients(parts),
        **_numbers(parts),
        **_messages(parts),
    }


def _broker(parts: Parts) -> dict[int, Processor]:
    broker = BrokerAdminProcessor(
        parts.config, parts.clock, parts.store, parts.topics, parts.stats, parts.store_stats, parts.puts, parts.outer
    )
    return {
        RequestCode.UPDATE_BROKER_CONFIG: broker.update_config,
        RequestCode.GET_BROKER_CONFIG: broker.get_config,
        RequestCode.GET_BROKER_RUNTIME_INFO: broker.runtime_info,
        RequestCode.GET_BROKER_HA_STATUS: broker.ha_status,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: broker.clean_queues,
        RequestCode.DELETE_EXPIRED_COMMITLOG: broker.delete_expired,
    }


def _topics(parts: Parts) -> dict[int, Processor]:
    caught_up = DispatchCatchUp(parts.store)
    topics = TopicAdminProcessor(
        parts.config, parts.clock, parts.store, parts.topics, parts.offsets, parts.stats, parts.kept, parts.outer
    )
    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: topics.update,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: topics.update_list,
        RequestCode.DELETE_TOPIC_IN_BROKER: topics.delete,
        RequestCode.CLEAN_UNUSED_TOPIC: topics.clean_unused,
        RequestCode.GET_TOPIC_CONFIG: topics.get,
        RequestCode.GET_ALL_TOPIC_CONFIG: topics.get_all,
        RequestCode.GET_TOPIC_STATS_INFO: caught_up.before(topics.stats),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topics.list_system,
    }


def _groups(parts: Parts) -> dict[int, Processor]:
    caught_up = DispatchCatchUp(parts.store)
    groups = GroupAdminProcessor(parts.config, parts.groups, parts.offsets, parts.stats, parts.kept)
    offsets = OffsetAdminProcessor(
        parts.config, parts.store, parts.topics, parts.groups, parts.consumers, parts.offsets
    )
    return {
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: groups.update,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: groups.update_list,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: groups.delete,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: groups.get,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups.get_all,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: groups.forbid,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: caught_up.before(offsets.reset),
        RequestCode.CLONE_GROUP_OFFSET: offsets.clone,
        RequestCode.QUERY_CORRECTION_OFFSET: offsets.correction,
        RequestCode.GET_ALL_CONSUMER_OFFSET: offsets.get_all,
        RequestCode.GET_ALL_DELAY_OFFSET: offsets.delay_offsets,
    }


def _clients(parts: Parts) -> dict[int, Processor]:
    clients = ClientAdminProcessor(
        parts.config, parts.store, parts.topics, parts.groups, parts.consumers, parts.producers, parts.offsets,
        parts.address,
    )  # fmt: skip
    return {
        RequestCode.GET_CONSUMER_CONNECTION_LIST: clients.consumers,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: clients.producers,
        RequestCode.GET_ALL_PRODUCER_INFO: clients.all_producers,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: clients.who_consumes,
        RequestCode.QUERY_TOPICS_BY_CONSUMER: clients.topics_of,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: clients.subscription,
        RequestCode.GET_CONSUMER_RUNNING_INFO: clients.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: clients.consume_directly,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: clients.status,
    }


def _numbers(parts: Parts) -> dict[int, Processor]:
    caught_up = DispatchCatchUp(parts.store)
    stats = StatsAdminProcessor(
        parts.config, parts.clock, parts.store, parts.topics, parts.groups, parts.consumers, parts.offsets, parts.stats,
        parts.address,
    )  # fmt: skip
    return {
        RequestCode.GET_CONSUME_STATS: caught_up.before(stats.consume_stats),
        RequestCode.GET_BROKER_CONSUME_STATS: caught_up.before(stats.all_consume_stats),
        RequestCode.QUERY_CONSUME_TIME_SPAN: caught_up.before(stats.time_span),
        RequestCode.VIEW_BROKER_STATS_DATA: stats.view,
    }


def _messages(parts: Parts) -> dict[int, Processor]:
    caught_up = DispatchCatchUp(parts.store)
    query = QueryMessageProcessor(parts.config, parts.store, parts.consumers)
    return {
        RequestCode.QUERY_MESSAGE: caught_up.before(query.query),
        RequestCode.VIEW_MESSAGE_BY_ID: query.view,
        RequestCode.QUERY_CONSUME_QUEUE: caught_up.before(query.queue),
    }
