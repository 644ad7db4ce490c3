"""The sleep between two runs of a periodic task."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest

from gantrymq.service.intervals import sleep_interval


@pytest.mark.asyncio
@pytest.mark.parametrize(("interval_ms", "sleeps"), [(50, 1), (100, 1), (1000, 1), (2500, 3), (0, 0)])
async def test_interval_at_clock_of_milliseconds_is_slept_once(
    monkeypatch: pytest.MonkeyPatch, interval_ms: int, sleeps: int
) -> None:
    """uvloop's clock has milliseconds. The rest of 1e-12 s that a float left was slept again and again until the next
    one: 50 turns of the event loop for an interval of 50 ms.
    """
    now_ms, slept = 1_000_003, []

    async def sleep(delay_s: float) -> None:
        nonlocal now_ms
        slept.append(delay_s)
        now_ms += round(delay_s * 1000)
        assert len(slept) < 10

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: Mock(time=lambda: now_ms / 1000))
    await sleep_interval(lambda: interval_ms)
    assert len(slept) == sleeps
    assert now_ms == 1_000_003 + interval_ms
