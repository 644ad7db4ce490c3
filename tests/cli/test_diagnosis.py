"""What counts as a problem of a consumer group: the rules of RocketMQ's ConsumerRunningInfo."""

from __future__ import annotations

import pytest

from gantrymq.cli.admin.diagnosis import has_one_subscription, problems_of
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import ConsumerRunningInfo, ProcessQueueInfo, SubscriptionData
from gantrymq.remoting.body import keyed

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000


def running(
    subscription: str = "*",
    *,
    age_ms: int = 10 * MINUTE_MS,
    consume_type: str = "CONSUME_PASSIVELY",
    is_orderly: bool = False,
    queue: ProcessQueueInfo | None = None,
) -> ConsumerRunningInfo:
    properties = {
        "PROP_CONSUME_TYPE": consume_type,
        "PROP_CONSUMER_START_TIMESTAMP": str(NOW_MS - age_ms),
        "PROP_CONSUMEORDERLY": str(is_orderly).lower(),
    }
    table = {} if queue is None else keyed({MessageQueue("orders", "broker-a", 0): queue})
    subscriptions = [SubscriptionData(topic="orders", sub_string=subscription)]
    return ConsumerRunningInfo(properties=properties, subscription_set=subscriptions, mq_table=table)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (running(), running(), True),
        (running("TagA"), running("TagB"), False),
        (running("TagA", age_ms=MINUTE_MS), running("TagB"), True),  # it may still change
        (running("TagA", consume_type="CONSUME_ACTIVELY"), running("TagB"), True),
    ],
)
def test_subscriptions_differ_if_any_client_differs(
    one: ConsumerRunningInfo, other: ConsumerRunningInfo, *, is_same: bool
) -> None:
    assert has_one_subscription({"a": one, "b": other}, NOW_MS) is is_same
    assert has_one_subscription({}, NOW_MS)


@pytest.mark.parametrize(
    ("state", "is_orderly", "text"),
    [
        (ProcessQueueInfo(cached_msg_count=1, last_consume_timestamp=NOW_MS - 2 * MINUTE_MS), False, "120000 ms"),
        (ProcessQueueInfo(cached_msg_count=0, last_consume_timestamp=0), False, None),
        (ProcessQueueInfo(cached_msg_count=1, last_consume_timestamp=NOW_MS - MINUTE_MS), False, None),
        (ProcessQueueInfo(locked=False, last_lock_timestamp=NOW_MS - 5), True, "not been locked for 5 ms"),
        (ProcessQueueInfo(locked=True), True, None),
        (ProcessQueueInfo(locked=True, droped=True, try_unlock_times=3), True, "unlocked in 3 attempts"),
    ],
)
def test_stalled_queue_is_reported_as_problem(state: ProcessQueueInfo, *, is_orderly: bool, text: str | None) -> None:
    found = problems_of(running(is_orderly=is_orderly, queue=state), NOW_MS)
    assert len(found) == (text is not None)
    assert all(one.startswith("queue 0 of orders at broker-a ") and str(text) in one for one in found)
    pulling = running(is_orderly=is_orderly, queue=state, consume_type="CONSUME_ACTIVELY")
    assert problems_of(pulling, NOW_MS) == []
