"""What a broker reports of itself: texts under RocketMQ's keys, as numbers. A key that is missing gives None.

Source: ClusterListSubCommand, BrokerRuntimeInfo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gantrymq.console.cluster.source import Broker


@dataclass(frozen=True)
class BrokerState:
    """A broker's row. Rates are in messages a second.

    ``accepted`` are the keys, paths and topics that a broker of ours took at its start without honouring them.

    Without an answer ``is_up`` is False, ``problem`` says in two words why, and all numbers are None.
    """

    broker: Broker
    is_up: bool = False
    problem: str = ""
    version: str | None = None
    in_tps: float | None = None
    out_tps: float | None = None
    in_today: int | None = None
    out_today: int | None = None
    disk_ratio: float | None = None
    earliest_ms: int | None = None
    boot_ms: int | None = None
    accepted: tuple[str, ...] = ()


def broker_state(broker: Broker, info: Mapping[str, str]) -> BrokerState:
    """The row of a broker that answered with ``info``."""
    return BrokerState(
        broker,
        is_up=True,
        version=info.get("brokerVersionDesc"),
        in_tps=first_rate(info.get("putTps")),
        out_tps=first_rate(info.get("getTransferredTps")),
        in_today=_between(info, "msgPutTotalTodayMorning", "msgPutTotalTodayNow"),
        out_today=_between(info, "msgGetTotalTodayMorning", "msgGetTotalTodayNow"),
        disk_ratio=_ratio(info.get("commitLogDiskRatio")),
        earliest_ms=whole(info.get("earliestMessageTimeStamp")),
        boot_ms=whole(info.get("bootTimestamp")),
        accepted=tuple(filter(None, info.get("acceptedWithoutEffect", "").split(","))),
    )


def whole(text: str | None) -> int | None:
    """Parse a whole number of a broker. Returns None for another text, and without one."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def first_rate(text: str | None) -> float | None:
    """The first of RocketMQ's three rates, that of the last ten seconds. A broker that just started has none: 0."""
    return None if text is None else _ratio([*text.split(), "0"][0])


def _ratio(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _between(info: Mapping[str, str], begin: str, end: str) -> int | None:
    first, last = whole(info.get(begin)), whole(info.get(end))
    return None if first is None or last is None else last - first
