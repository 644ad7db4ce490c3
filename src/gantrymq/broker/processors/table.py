"""The broker's table of request codes: the rows of all processors, merged.

A code without a row is answered with REQUEST_CODE_NOT_SUPPORTED; with access control only administrators may send it.
A new file of processors needs a name in ``FAMILIES``. A new request code of an existing file needs nothing here.

Source: BrokerController.registerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gantrymq.broker.answers import DispatchCatchUp
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.processors import (
    ack,
    admin_broker,
    admin_clients,
    admin_groups,
    admin_offsets,
    admin_stats,
    admin_timers,
    admin_topics,
    assignment,
    clients,
    disabled_features,
    end_transaction,
    notification,
    offsets,
    peek,
    pop,
    pull,
    query,
    recall,
    reply,
    send,
    send_back,
    users,
)
from gantrymq.broker.processors.ack import ack_lane
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.processors.send_lane import send_lane
from gantrymq.broker.processors.transaction_lane import transaction_lane
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import MAX_FRAME_BYTES
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import BodyLimits, Processor, RequestDispatcher, RequestHook, RunHook

FAMILIES: tuple[Callable[[BrokerContext], Routes], ...] = tuple(
    module.routes
    for module in (
        *(send, send_back, reply, recall, end_transaction),
        *(pull, pop, ack, peek, notification),
        *(clients, offsets, assignment, query),
        *(admin_broker, admin_clients, admin_groups, admin_offsets, admin_stats, admin_timers, admin_topics, users),
        disabled_features,
    )
)


def merge(families: Iterable[Routes]) -> dict[int, Route]:
    """One table of all rows. Raises ValueError for a code that two families serve."""
    table: dict[int, Route] = {}
    for rows in families:
        for code, route in rows.items():
            if code in table:
                raise ValueError(f"request code {code} is served by two processors")
            table[int(code)] = route
    return table


def routes(context: BrokerContext) -> dict[int, Route]:
    """The whole table: processor and permission by request code."""
    return merge(family(context) for family in FAMILIES)


def dispatcher(
    context: BrokerContext,
    table: Routes,
    hooks: Iterable[RequestHook],
    run_hook: RunHook | None,
    when_closed: Callable[[Channel], None],
) -> RequestDispatcher:
    """A dispatcher with the processors of ``table``, with ``hooks`` and with the one for runs."""
    return RequestDispatcher(
        {code: _processor(route, context.answers.caught_up) for code, route in table.items()},
        hooks=hooks,
        run_hook=run_hook,
        lanes=(send_lane(context), transaction_lane(context), ack_lane(context)),
        when_closed=when_closed,
        body_limits=_body_limits(context.config.broker.max_request_body_bytes),
    )


def _processor(route: Route, caught_up: DispatchCatchUp) -> Processor:
    return caught_up.before(route.processor) if route.after_dispatch else route.processor


def _body_limits(max_bytes: int) -> BodyLimits:
    """The limits from maxRequestBodyBytes. Messages are checked against maxMessageSize later."""
    messages = (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    )
    small = (RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
    limits: list[tuple[int, int]] = [(RequestCode.UPDATE_BROKER_CONFIG, max_bytes // 16)]
    limits += [(code, MAX_FRAME_BYTES) for code in messages]
    limits += [(code, max_bytes // 4) for code in small]
    return BodyLimits(max_bytes, dict(limits))
