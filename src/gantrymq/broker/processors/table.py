"""The broker's table of request codes: the processor of each, and the permission that an account needs.

A code without a row is answered with REQUEST_CODE_NOT_SUPPORTED; with access control only administrators may send it.
Requests for features that this broker does not have get the answer that RocketMQ gives if the feature is off.

Source: BrokerController.registerProcessor; AdminBrokerProcessor, QueryMessageProcessor, PopMessageProcessor,
EndTransactionProcessor, RecallMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from gantrymq.broker.acl.access_control import (
    ADMINISTRATORS,
    ANY_ACCOUNT,
    BATCH_ACK_MESSAGE,
    CHECK_CLIENT_CONFIG,
    HEART_BEAT,
    LOCK_BATCH_MQ,
    QUERY_ASSIGNMENT,
    UNLOCK_BATCH_MQ,
    UNREGISTER_CLIENT,
    Permission,
    consume,
    end_transaction,
    look,
    popped,
    read,
    send,
    send_back,
)
from gantrymq.broker.answers import DispatchCatchUp
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.processors.ack import AckMessageProcessor
from gantrymq.broker.processors.admin_broker import BrokerAdminProcessor
from gantrymq.broker.processors.admin_clients import ClientAdminProcessor
from gantrymq.broker.processors.admin_groups import GroupAdminProcessor
from gantrymq.broker.processors.admin_offsets import OffsetAdminProcessor
from gantrymq.broker.processors.admin_stats import StatsAdminProcessor
from gantrymq.broker.processors.admin_timers import TimerAdminProcessor
from gantrymq.broker.processors.admin_topics import TopicAdminProcessor
from gantrymq.broker.processors.assignment import LockProcessor, QueryAssignmentProcessor
from gantrymq.broker.processors.clients import ClientManageProcessor
from gantrymq.broker.processors.end_transaction import EndTransactionProcessor
from gantrymq.broker.processors.notification import NotificationProcessor
from gantrymq.broker.processors.offsets import ConsumerManageProcessor, QueueOffsetProcessor
from gantrymq.broker.processors.peek import PeekMessageProcessor
from gantrymq.broker.processors.pop import PopMessageProcessor
from gantrymq.broker.processors.pull import PullMessageProcessor
from gantrymq.broker.processors.query import QueryMessageProcessor
from gantrymq.broker.processors.recall import RecallMessageProcessor
from gantrymq.broker.processors.reply import ReplyMessageProcessor
from gantrymq.broker.processors.send import SendMessageProcessor
from gantrymq.broker.processors.send_back import ConsumerSendMsgBackProcessor
from gantrymq.broker.processors.send_run import SendRunProcessor
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import MAX_FRAME_BYTES, RemotingCommand
from gantrymq.remoting.header import CommandHeader
from gantrymq.remoting.headers.consumer import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetConsumeStatsRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from gantrymq.remoting.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from gantrymq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopLiteMessageRequestHeader,
    PopMessageRequestHeader,
)
from gantrymq.remoting.headers.pull import PullMessageRequestHeader, QueryMessageRequestHeader
from gantrymq.remoting.headers.send import (
    RecallMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from gantrymq.remoting.headers.topic import GetTopicConfigRequestHeader, GetTopicStatsInfoRequestHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import BodyLimits, Processor, RequestDispatcher, RequestHook


class Route(NamedTuple):
    """The processor of a request code, and the permission that an account needs for it."""

    processor: Processor
    permission: Permission


_ANSWERS = {
    RequestCode.GET_BROKER_EPOCH_CACHE: (ResponseCode.SYSTEM_ERROR, "this request only for controllerMode "),
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: (ResponseCode.SUCCESS, None),
    RequestCode.RESET_MASTER_FLUSH_OFFSET: (ResponseCode.SUCCESS, None),
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: (ResponseCode.SUCCESS, None),
    RequestCode.POP_ROLLBACK: (ResponseCode.SUCCESS, None),
}
# Always rejected. The permissions are those that the requests need where POP is on.
_POP: dict[RequestCode, type[CommandHeader]] = {
    RequestCode.POP_LITE_MESSAGE: PopLiteMessageRequestHeader,
}
_BODIES = {
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: (
        b'{"runtimeTable":{},"configTable":{},"cgColdReadThreshold":3145728,"globalColdReadThreshold":104857600,'
        b'"globalAcc":0}'
    ),
}


def disabled_features(config: LiveConfig) -> dict[int, Route]:
    """The routes of features that this broker does not have."""

    def refuse(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        code, remark = _ANSWERS[RequestCode(request.code)]
        return request.response(code, remark)

    def refuse_pop(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        remark = f"the broker[{config.broker.broker_ip1}] pop message is forbidden"
        return request.response(ResponseCode.NO_PERMISSION, remark)

    def give_empty(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(ResponseCode.SUCCESS, body=_BODIES[RequestCode(request.code)])

    pop = {int(code): Route(refuse_pop, consume(header, topics=("topic",))) for code, header in _POP.items()}
    return {
        **dict.fromkeys(map(int, _ANSWERS), Route(refuse, ADMINISTRATORS)),
        **dict.fromkeys(map(int, _BODIES), Route(give_empty, ADMINISTRATORS)),
        **pop,
    }


def admin_routes(context: BrokerContext) -> dict[int, Route]:
    """The routes for administrative tools."""
    return {
        **disabled_features(context.config),
        **_broker(context),
        **_timers(context),
        **_topics(context),
        **_groups(context),
        **_clients(context),
        **_statistics(context),
        **_queries(context),
    }


def _broker(context: BrokerContext) -> dict[int, Route]:
    broker = BrokerAdminProcessor(
        context.config,
        context.clock,
        context.store,
        context.topics,
        context.stats,
        context.store_stats,
        context.puts,
        context.outer,
    )
    return {
        RequestCode.UPDATE_BROKER_CONFIG: Route(broker.update_config, ADMINISTRATORS),
        RequestCode.GET_BROKER_CONFIG: Route(broker.get_config, ADMINISTRATORS),
        RequestCode.GET_BROKER_RUNTIME_INFO: Route(broker.runtime_info, ADMINISTRATORS),
        RequestCode.GET_BROKER_HA_STATUS: Route(broker.ha_status, ADMINISTRATORS),
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: Route(broker.clean_queues, ADMINISTRATORS),
        RequestCode.DELETE_EXPIRED_COMMITLOG: Route(broker.delete_expired, ADMINISTRATORS),
    }


def _timers(context: BrokerContext) -> dict[int, Route]:
    timers = TimerAdminProcessor(context.store.timers)
    return {
        RequestCode.GET_TIMER_CHECK_POINT: Route(timers.checkpoint, ADMINISTRATORS),
        RequestCode.GET_TIMER_METRICS: Route(timers.metrics, ADMINISTRATORS),
        RequestCode.SWITCH_TIMER_ENGINE: Route(timers.switch, ADMINISTRATORS),
    }


def _topics(context: BrokerContext) -> dict[int, Route]:
    caught_up = DispatchCatchUp(context.store)
    topics = TopicAdminProcessor(
        context.config,
        context.clock,
        context.store,
        context.topics,
        context.offsets,
        context.stats,
        context.kept,
        context.outer,
        context.consumers,
        context.holds,
        context.puts,
        context.pop,
        context.meter,
    )
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


def _groups(context: BrokerContext) -> dict[int, Route]:
    caught_up = DispatchCatchUp(context.store)
    groups = GroupAdminProcessor(
        context.config,
        context.topics,
        context.groups,
        context.offsets,
        context.stats,
        context.kept,
        context.outer,
        context.pop,
        context.meter,
        context.clock,
    )
    offsets = OffsetAdminProcessor(
        context.config,
        context.store,
        context.topics,
        context.groups,
        context.consumers,
        context.offsets,
        context.kept,
        context.pop.reset,
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


def _clients(context: BrokerContext) -> dict[int, Route]:
    clients = ClientAdminProcessor(
        context.config,
        context.clock,
        context.store,
        context.records,
        context.topics,
        context.groups,
        context.consumers,
        context.producers,
        context.offsets,
        context.address,
    )
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


def _statistics(context: BrokerContext) -> dict[int, Route]:
    caught_up = DispatchCatchUp(context.store)
    stats = StatsAdminProcessor(
        context.config,
        context.clock,
        context.store,
        context.topics,
        context.groups,
        context.consumers,
        context.offsets,
        context.stats,
        context.address,
    )
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


def _queries(context: BrokerContext) -> dict[int, Route]:
    caught_up = DispatchCatchUp(context.store)
    query = QueryMessageProcessor(context.config, context.store, context.records, context.consumers)
    return {
        RequestCode.QUERY_MESSAGE: Route(caught_up.before(query.query), read(QueryMessageRequestHeader)),
        RequestCode.VIEW_MESSAGE_BY_ID: Route(caught_up.before(query.view), ADMINISTRATORS),
        RequestCode.QUERY_CONSUME_QUEUE: Route(caught_up.before(query.queue), ADMINISTRATORS),
    }


def send_processor(context: BrokerContext) -> SendMessageProcessor:
    """The processor of sends, which the processors of replies and runs use too."""
    return SendMessageProcessor(
        context.config,
        context.clock,
        context.topics,
        context.groups,
        context.locks,
        context.puts,
        context.stats,
        context.decisions,
        context.transaction_metrics,
        lambda: context.store.disk_used_ratio,
        context.answer,
        context.store.timers,
        context.meter,
    )


def routes(context: BrokerContext, sends: SendMessageProcessor) -> dict[int, Route]:
    """The whole table: processor and permission by request code."""
    return {
        **admin_routes(context),
        **_messages(context, sends),
        **_pops(context),
        **_transactions(context),
        **_consumers(context),
        **_queues(context),
    }


def dispatcher(
    context: BrokerContext,
    table: Mapping[int, Route],
    sends: SendMessageProcessor,
    hooks: Iterable[RequestHook],
    when_closed: Callable[[Channel], None],
) -> RequestDispatcher:
    """A dispatcher with the processors of ``table`` and with ``hooks``."""
    together = SendRunProcessor(
        context.config, context.topics, context.puts, context.stats, sends, context.answer, context.meter
    )
    processors = {code: route.processor for code, route in table.items()}
    return RequestDispatcher(
        processors,
        hooks=hooks,
        run_processor=together.send_run,
        when_closed=when_closed,
        body_limits=_body_limits(context.config.broker.max_request_body_bytes),
    )


def _body_limits(most: int) -> BodyLimits:
    """The limits from maxRequestBodyBytes. Messages are checked against maxMessageSize later."""
    messages = (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    )
    small = (RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
    limits: list[tuple[int, int]] = [(RequestCode.UPDATE_BROKER_CONFIG, most // 16)]
    limits += [(code, MAX_FRAME_BYTES) for code in messages]
    limits += [(code, most // 4) for code in small]
    return BodyLimits(most, dict(limits))


def _messages(context: BrokerContext, sends: SendMessageProcessor) -> dict[int, Route]:
    reply = ReplyMessageProcessor(
        context.config, context.clock, context.producers, context.puts, sends.check, context.address, context.meter
    ).reply
    back = ConsumerSendMsgBackProcessor(
        context.config,
        context.topics,
        context.groups,
        context.records.queued,
        context.puts,
        context.stats,
        context.answer,
        context.access,
        context.meter,
    )
    pull = PullMessageProcessor(
        context.config,
        context.clock,
        context.store,
        context.topics,
        context.groups,
        context.consumers,
        context.offsets,
        context.holds,
        context.stats,
        context.store_stats,
        context.access,
        context.filters,
        context.meter,
    ).pull
    recall = RecallMessageProcessor(
        context.config, context.clock, context.topics, context.puts, context.stats, context.store.timers, context.answer
    ).recall
    may_pull = consume(PullMessageRequestHeader, topics=("topic",))
    # A message can be sent back once its queue has a unit for it, which may be a moment after its acknowledgement.
    sent_back = DispatchCatchUp(context.store).before(back.send_back)
    return {
        RequestCode.SEND_MESSAGE: Route(sends.send, send(SendMessageRequestHeader)),
        RequestCode.SEND_MESSAGE_V2: Route(sends.send, send(SendMessageRequestHeaderV2)),
        RequestCode.SEND_BATCH_MESSAGE: Route(sends.send, send(SendMessageRequestHeaderV2)),
        RequestCode.SEND_REPLY_MESSAGE: Route(reply, send(SendMessageRequestHeader)),
        RequestCode.SEND_REPLY_MESSAGE_V2: Route(reply, send(SendMessageRequestHeaderV2)),
        RequestCode.CONSUMER_SEND_MSG_BACK: Route(sent_back, send_back(context.records.topic_at)),
        RequestCode.RECALL_MESSAGE: Route(recall, send(RecallMessageRequestHeader)),
        RequestCode.PULL_MESSAGE: Route(pull, may_pull),
        RequestCode.LITE_PULL_MESSAGE: Route(pull, may_pull),
    }


def _pops(context: BrokerContext) -> dict[int, Route]:
    pop, waiting = context.pop, context.pop.waiting
    caught_up = DispatchCatchUp(context.store)  # a pop finds what was acknowledged to a producer before
    pops = PopMessageProcessor(
        context.config,
        context.clock,
        context.store,
        context.topics,
        context.offsets,
        context.stats,
        context.store_stats,
        context.access,
        pop.checks,
        pop.revive_log,
        pop.buffer,
        pop.inflight,
        pop.orders,
        waiting.pops,
        context.meter,
        caught_up,
    )
    acks = AckMessageProcessor(
        context.config,
        context.clock,
        context.store,
        context.offsets,
        pop.checks,
        pop.revive_log,
        pop.buffer,
        pop.inflight,
        pop.orders,
        waiting.look,
    )
    notes = NotificationProcessor(
        context.config,
        context.clock,
        context.store,
        context.topics,
        context.offsets,
        context.access,
        pop.checks,
        pop.buffer,
        pop.orders,
        waiting.pops,
        waiting.notifications,
    )
    peeks = PeekMessageProcessor(
        context.config,
        context.store,
        context.topics,
        context.offsets,
        context.stats,
        context.store_stats,
        pop.checks,
        pop.buffer,
        context.meter,
    )
    queue = ("topic",)
    return {
        RequestCode.PEEK_MESSAGE: Route(caught_up.before(peeks.peek), consume(PeekMessageRequestHeader, topics=queue)),
        RequestCode.POP_MESSAGE: Route(pops.pop, consume(PopMessageRequestHeader, topics=queue)),
        RequestCode.ACK_MESSAGE: Route(acks.ack, popped(AckMessageRequestHeader)),
        RequestCode.BATCH_ACK_MESSAGE: Route(acks.batch_ack, BATCH_ACK_MESSAGE),
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: Route(acks.change, popped(ChangeInvisibleTimeRequestHeader)),
        RequestCode.NOTIFICATION: Route(
            caught_up.before(notes.notify), consume(NotificationRequestHeader, topics=queue)
        ),
        RequestCode.POLLING_INFO: Route(notes.polling_info, consume(PollingInfoRequestHeader, topics=queue)),
    }


def _transactions(context: BrokerContext) -> dict[int, Route]:
    caught_up = DispatchCatchUp(context.store)
    processor = EndTransactionProcessor(
        context.config,
        context.clock,
        context.topics,
        context.records.queued,
        context.puts,
        context.stats,
        context.decisions,
        context.transaction_metrics,
        context.access,
        context.store.message_at,
        caught_up,
        context.meter,
    )
    return {
        RequestCode.END_TRANSACTION: Route(processor.end, end_transaction(context.records.real_topic_at)),
        RequestCode.RESUME_CHECK_HALF_MESSAGE: Route(caught_up.before(processor.resume), ADMINISTRATORS),
    }


def _consumers(context: BrokerContext) -> dict[int, Route]:
    clients = ClientManageProcessor(
        context.config,
        context.clock,
        context.topics,
        context.groups,
        context.consumers,
        context.producers,
        context.filters,
    )
    manage = ConsumerManageProcessor(
        context.config, context.store, context.topics, context.groups, context.consumers, context.offsets
    )
    assignment = QueryAssignmentProcessor(
        context.config,
        context.topics,
        context.groups,
        context.consumers,
        context.request_modes,
        context.kept,
        context.outer,
    )
    caught_up = DispatchCatchUp(context.store)
    locks = LockProcessor(context.locks, context.clock)
    return {
        RequestCode.HEART_BEAT: Route(clients.heart_beat, HEART_BEAT),
        RequestCode.UNREGISTER_CLIENT: Route(clients.unregister, UNREGISTER_CLIENT),
        RequestCode.CHECK_CLIENT_CONFIG: Route(clients.check_config, CHECK_CLIENT_CONFIG),
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: Route(
            manage.list_consumers, consume(GetConsumerListByGroupRequestHeader)
        ),
        RequestCode.UPDATE_CONSUMER_OFFSET: Route(
            manage.update, consume(UpdateConsumerOffsetRequestHeader, topics=("topic",))
        ),
        RequestCode.QUERY_CONSUMER_OFFSET: Route(
            caught_up.before(manage.query), consume(QueryConsumerOffsetRequestHeader, topics=("topic",))
        ),
        RequestCode.QUERY_ASSIGNMENT: Route(assignment.query, QUERY_ASSIGNMENT),
        RequestCode.SET_MESSAGE_REQUEST_MODE: Route(assignment.set_mode, ADMINISTRATORS),
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: Route(assignment.get_all_modes, ADMINISTRATORS),
        RequestCode.LOCK_BATCH_MQ: Route(locks.lock, LOCK_BATCH_MQ),
        RequestCode.UNLOCK_BATCH_MQ: Route(locks.unlock, UNLOCK_BATCH_MQ),
    }


def _queues(context: BrokerContext) -> dict[int, Route]:
    queues, caught_up = QueueOffsetProcessor(context.store), DispatchCatchUp(context.store)
    return {
        RequestCode.GET_MAX_OFFSET: Route(caught_up.before(queues.max_offset), look(GetMaxOffsetRequestHeader)),
        RequestCode.GET_MIN_OFFSET: Route(queues.min_offset, look(GetMinOffsetRequestHeader)),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Route(caught_up.before(queues.search), look(SearchOffsetRequestHeader)),
        RequestCode.GET_EARLIEST_MSG_STORETIME: Route(
            caught_up.before(queues.earliest), look(GetEarliestMsgStoretimeRequestHeader)
        ),
    }
