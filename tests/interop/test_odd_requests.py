"""Timers, delays, transactions, recalls, send-backs: ours answers odd requests, and keeps them, as the real broker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from .java_cluster import JavaCluster
from .odd_requests import SETTINGS, facts_of, play
from .our_broker import OurBroker

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]

# Which answers and records may differ, and why: patterns of names. docs/COMPATIBILITY.md says the same to users.
ALLOWED = {
    r"(record of )?32550 bytes TIMER": "the real broker acknowledges a timer message that it cannot deliver",
    r"DELAY=1 and TIMER_OUT_MS=1$": "the real broker gives a recall handle for a message without a timer",
    r"(record of |end )?half (level|timed)( \d+|: \d+)$": "the real broker loses a prepared message with a delay",
    r"(record of |end )?half long": "a half message that leaves no room for its checks",
    r"end (first|half not one|half consumed and delayed): ": "no half message: the real broker's text is an exception",
    r"filter (a = |a\.b = 1)$": "the real broker does not filter by an expression that it cannot parse",
    r"record of DELAY '(\+2|02|２)'": "the level of a delayed message is stored as a number",
}


def differences(ours: Mapping[str, object], theirs: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    """What differs, by name: ours and the real broker's."""
    names = sorted({*ours, *theirs})
    return {name: (ours.get(name), theirs.get(name)) for name in names if ours.get(name) != theirs.get(name)}


def test_unusual_requests_are_answered_like_real_broker(tmp_path: Path) -> None:
    with JavaCluster(tmp_path / "theirs", SETTINGS) as cluster:
        theirs = asyncio.run(play(cluster.broker))
        with OurBroker(tmp_path / "ours", SETTINGS, namesrv=cluster.namesrv) as broker:
            ours = asyncio.run(play(broker.address))
    found = differences(ours.answers, theirs.answers)
    records = differences(facts_of(tmp_path / "ours"), facts_of(tmp_path / "theirs"))
    found |= {f"record of {name}": of for name, of in records.items()}
    unexpected = {name: of for name, of in found.items() if not any(re.match(pattern, name) for pattern in ALLOWED)}
    assert unexpected == {}
    unused = [pattern for pattern in ALLOWED if not any(re.match(pattern, name) for name in found)]
    assert unused == [], "no longer needed"
