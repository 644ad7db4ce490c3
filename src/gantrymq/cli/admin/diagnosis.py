"""RocketMQ's diagnosis of a consumer group, from what its consumers report.

Source: ConsumerRunningInfo.analyzeSubscription, analyzeProcessQueue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gantrymq.remoting.bodies.client import ConsumerRunningInfo

_YOUNG_MS = 2 * 60 * 1000  # a consumer that has just started may not have all subscriptions yet
_STUCK_MS = 60 * 1000


def is_push(info: ConsumerRunningInfo) -> bool:
    """Whether it is a push consumer."""
    return info.properties.get("PROP_CONSUME_TYPE") == "CONSUME_PASSIVELY"


def has_one_subscription(infos: Mapping[str, ConsumerRunningInfo], now_ms: int) -> bool:
    """Whether all consumers of a group subscribe to the same. Only push consumers of some age are compared."""
    if not infos:
        return True
    first = infos[min(infos)]
    started = first.properties.get("PROP_CONSUMER_START_TIMESTAMP", "")
    if not is_push(first) or not started.isdecimal() or now_ms - int(started) <= _YOUNG_MS:
        return True
    return len({_subscriptions(info) for info in infos.values()}) == 1


def _subscriptions(info: ConsumerRunningInfo) -> frozenset[tuple[str | None, str | None]]:
    return frozenset((subscription.topic, subscription.sub_string) for subscription in info.subscription_set)


def problems_of(info: ConsumerRunningInfo, now_ms: int) -> list[str]:
    """A text for each queue that a push consumer does not consume, or cannot lock or unlock."""
    return list(_problems(info, now_ms)) if is_push(info) else []


def _problems(info: ConsumerRunningInfo, now_ms: int) -> Iterator[str]:
    from gantrymq.remoting.body import by_queue

    is_orderly = info.properties.get("PROP_CONSUMEORDERLY", "").lower() == "true"
    for queue, state in by_queue(info.mq_table).items():
        name = f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name}"
        if not is_orderly:
            idle_ms = now_ms - state.last_consume_timestamp
            if idle_ms > _STUCK_MS and state.cached_msg_count > 0:
                yield f"{name} has not been consumed for {idle_ms} ms; its listener may be blocked"
        elif not state.locked:
            yield f"{name} has not been locked for {now_ms - state.last_lock_timestamp} ms"
        elif state.droped and state.try_unlock_times > 0:
            yield f"{name} could not be unlocked in {state.try_unlock_times} attempts"
