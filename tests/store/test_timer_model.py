"""Timers against a plain model: a dict of due times, over any run of sends, recalls, waits, starts and kills."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_cases import NOON_MS
from timer_cases import SECOND_MS, TIMED, TimerCase

# A window of 20 slots, so that most messages roll.
CONFIG = replace(TIMED, timer_roll_window_slots=20)
DELAYS_MS = st.one_of(st.integers(1, 5_000), st.integers(1, 90_000), st.sampled_from((1_000, 20_000, 21_000, 40_000)))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), DELAYS_MS),
        st.tuples(st.just("recall"), st.integers(0, 30)),
        st.tuples(st.just("wait"), st.sampled_from((100, 1_000, 7_000, 60_000))),
        st.tuples(st.just("reopen"), st.just(0)),
        st.tuples(st.just("kill"), st.just(0)),
    ),
    min_size=1,
    max_size=40,
)


def slot_ms(deliver_ms: int) -> int:
    return (deliver_ms - 1) // SECOND_MS * SECOND_MS


@settings(max_examples=8)
@given(STEPS)
def test_every_message_is_delivered_in_its_second(steps: list[tuple[str, int]]) -> None:
    deliver(steps)


@pytest.mark.slow
@settings(max_examples=200)
@given(STEPS)
def test_every_message_of_many_runs_is_delivered_in_its_second(steps: list[tuple[str, int]]) -> None:
    deliver(steps)


def deliver(steps: list[tuple[str, int]]) -> None:
    """Take the steps, then wait until all timers are due."""
    case, due = TimerCase(config=CONFIG), {}
    recalled: set[int] = set()
    killed = False
    for what, number in steps:
        now_ms = case.clock.now_ms()
        if what == "send":
            key = len(due)
            due[key] = now_ms + number
            case.send(b"%d" % key, deliver_ms=due[key], UNIQ_KEY=f"K{key}")
        elif what == "recall" and number in due and number not in recalled and slot_ms(due[number]) > now_ms:
            recalled.add(number)
            case.send(b"0", deliver_ms=slot_ms(due[number]) + 1, UNIQ_KEY=f"K{number}", TIMER_DEL_UNIQKEY=f"K{number}")
        elif what == "wait":
            case.step()  # what was sent is in the wheel before its time has come
            case.clock.advance(number)
        elif what == "reopen":
            case.reopen()
        elif what == "kill":
            case.kill()
            killed = True
        case.step()
        check(case, due, recalled, killed=killed)
    case.clock.advance(200 * SECOND_MS)
    case.step()
    check(case, due, recalled, killed=killed)
    assert {int(body) for body in case.bodies()} == due.keys() - recalled
    case.close()


def check(case: TimerCase, due: dict[int, int], recalled: set[int], *, killed: bool) -> None:
    """What is due is delivered, once unless there was a kill; nothing else is."""
    write_ms = case.clock.now_ms() // SECOND_MS * SECOND_MS
    found = Counter(int(body) for body in case.bodies())
    assert found.keys() == {key for key, at_ms in due.items() if slot_ms(at_ms) < write_ms} - recalled
    assert killed or set(found.values()) <= {1}
    assert case.clock.now_ms() >= NOON_MS
