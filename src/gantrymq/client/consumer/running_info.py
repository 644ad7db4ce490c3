"""What a consumer says of itself.

Source: DefaultMQPushConsumerImpl.consumerRunningInfo, MQClientInstance.consumerRunningInfo, ConsumerRunningInfo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from enum import Enum

from gantrymq.client.consumer.member import GroupMember
from gantrymq.client.consumer.offsets import OffsetStore
from gantrymq.client.consumer.process_queue import ProcessQueue
from gantrymq.client.consumer.statistics import ConsumerStatistics
from gantrymq.clock import monotonic_ms
from gantrymq.remoting.bodies.client import ConsumerRunningInfo
from gantrymq.remoting.body import keyed

CLIENT_VERSION = "V5_5_0"
_SECRET = frozenset(("access_key", "secret_key", "security_token", "tls"))


def running_info(
    member: GroupMember,
    queues: Iterable[ProcessQueue],
    offsets: OffsetStore,
    statistics: ConsumerStatistics,
    started_ms: int,
    extra: Mapping[str, str],
) -> ConsumerRunningInfo:
    """The answer to GET_CONSUMER_RUNNING_INFO; secrets are left out."""
    now_ms = monotonic_ms(member.clock)
    wall_ahead_ms = member.clock.now_ms() - now_ms
    return ConsumerRunningInfo(
        properties=_settings(member)
        | {
            "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in member.config.name_server_list),
            "PROP_CONSUME_TYPE": member.consume_type,
            "PROP_CLIENT_VERSION": CLIENT_VERSION,
            "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        }
        | dict(extra),
        subscription_set=list(member.subscriptions.values()),
        mq_table=keyed({one.queue: one.info(offsets.read(one.queue) or 0, wall_ahead_ms) for one in queues}),
        status_table={topic: statistics.status(topic, now_ms) for topic in member.subscriptions},
    )


def _settings(member: GroupMember) -> dict[str, str]:
    """The settings under RocketMQ's spelling of their names."""
    shown = {}
    for one in fields(member.config):
        value = getattr(member.config, one.name)
        if one.name in _SECRET or not isinstance(value, str | int | bool | Enum):
            continue
        first, *rest = one.name.split("_")
        name = first + "".join(word.capitalize() for word in rest)
        shown[name] = value.name if isinstance(value, Enum) else str(value)
    return shown
