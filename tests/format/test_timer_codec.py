"""Slot, unit, checkpoint and recall handle against bytes that the classes of RocketMQ 5.5.0 wrote."""

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.format.recall_handle import RecallHandle, decode_recall_handle, encode_recall_handle
from gantrymq.format.timer import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    SLOT_DTYPE,
    TIMER_UNIT_DTYPE,
    TIMER_UNIT_SIZE,
    WHEEL_SIZE,
    Slot,
    TimerCheckpoint,
    TimerUnit,
    decode_slot,
    decode_timer_checkpoint,
    decode_unit,
    encode_slot,
    encode_timer_blank,
    encode_timer_checkpoint,
    encode_unit,
    is_timer_blank,
    slot_number,
)
from gantrymq.model.java import string_hash

LONGS, INTS = st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 31), (1 << 31) - 1)
TIME_MS, ORDERS = 1_700_000_000_000, string_hash("orders")

# TimerWheel.putSlot(1700000000000, 52, 104, 3, 0), the file of TimerLog.append, TimerCheckpoint.flush, buildHandle.
JAVA_SLOT = bytes.fromhex("000000006553f100000000000000003400000000000000680000000300000000")
JAVA_LOG = bytes.fromhex(
    "00000034ffffffffffffffff000000010000018bcfe568000000138800000000000010000000012cc3df62e50000000000000000"
    "000000340000000000000000000000030000018bcfe5680100001389000000000000112c0000012cc3df62e50000000000000000"
    "000000340000000000000034000000050000018bcfe568020000138a00000000000012580000012cc3df62e50000000000000000"
    "0000002c0000000000000000cbd4319400000000000000000000000000000000000000000000000000000000"
)
JAVA_CHECK = bytes.fromhex(
    "0000018bcfe56be800000000000000680000000000000007000000000000000900000000000000020000018bcfe56fd00000000000000005"
)
JAVA_HANDLE = "djEgb3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDAwMDEgN0YwMDAwMDEwMDAwMkExMzlBNTUwMDAwMDAwMEFCMDE="
UNITS = [
    TimerUnit(-1, MAGIC_DEFAULT, TIME_MS, 5000, 4096, 300, ORDERS),
    TimerUnit(0, MAGIC_DEFAULT | MAGIC_ROLL, TIME_MS + 1, 5001, 4396, 300, ORDERS),
    TimerUnit(52, MAGIC_DEFAULT | MAGIC_DELETE, TIME_MS + 2, 5002, 4696, 300, ORDERS),
]


def test_timer_wheel_is_two_rounds_of_a_week_of_seconds() -> None:
    assert WHEEL_SIZE == 38_707_200
    assert slot_number(TIME_MS // 1000) == 512_000


def test_timer_slot_has_bytes_of_java() -> None:
    slot = Slot(TIME_MS // 1000, 52, 104, 3, 0)
    assert encode_slot(slot) == JAVA_SLOT
    assert decode_slot(JAVA_SLOT) == slot
    assert tuple(np.frombuffer(JAVA_SLOT, SLOT_DTYPE)[0].tolist()) == slot


def test_timer_log_has_bytes_of_java() -> None:
    ours = b"".join(map(encode_unit, UNITS))
    assert (ours + encode_timer_blank(200 - len(ours))).ljust(200, b"\0") == JAVA_LOG
    for number, unit in enumerate(UNITS):
        position = number * TIMER_UNIT_SIZE
        assert decode_unit(JAVA_LOG[position : position + TIMER_UNIT_SIZE], position) == unit
        assert tuple(np.frombuffer(JAVA_LOG, TIMER_UNIT_DTYPE, 3)[number].tolist()) == (52, *unit, 0)
    assert is_timer_blank(JAVA_LOG[156:])
    assert decode_unit(JAVA_LOG[156:], 156) is None
    assert [(unit.rolls, unit.deletes) for unit in UNITS] == [(False, False), (True, False), (False, True)]
    assert UNITS[1].slot_ms == TIME_MS + 5002


def test_timer_checkpoint_has_bytes_of_java() -> None:
    page = TimerCheckpoint(TIME_MS + 1000, 104, 7, 9, 2, TIME_MS + 2000, 5)
    assert encode_timer_checkpoint(page) == JAVA_CHECK
    assert decode_timer_checkpoint(JAVA_CHECK) == page
    assert astuple(decode_timer_checkpoint(JAVA_CHECK[:32]))[:4] == astuple(page)[:4]
    assert decode_timer_checkpoint(b"") == TimerCheckpoint()


@pytest.mark.parametrize(
    ("raw", "position"),
    [
        (bytes(52), 0),
        (JAVA_LOG[:51], 0),
        (b"\0\0\0\x35" + JAVA_LOG[4:52], 0),
        (JAVA_LOG[:12] + b"\0\0\0\x10" + JAVA_LOG[16:52], 0),
        (JAVA_LOG[:12] + b"\0\0\0\0" + JAVA_LOG[16:52], 0),
        (JAVA_LOG[52:104], 0),  # the unit before it would be itself, and a walk would never end
        (JAVA_LOG[:28] + b"\xff" * 8 + JAVA_LOG[36:52], 0),
        (JAVA_LOG[:36] + b"\xff" * 4 + JAVA_LOG[40:52], 0),
    ],
)
def test_arbitrary_bytes_are_not_timer_unit(raw: bytes, position: int) -> None:
    assert decode_unit(raw, position) is None


@given(st.binary(min_size=0, max_size=60), st.integers(0, 1 << 40))
def test_any_bytes_decode_to_timer_unit_or_none(raw: bytes, position: int) -> None:
    unit = decode_unit(raw, position)
    assert unit is None or encode_unit(unit)[:44] == raw[:44]


@given(st.tuples(LONGS, LONGS, LONGS, INTS, INTS))
def test_every_slot_is_read_back(numbers: tuple[int, int, int, int, int]) -> None:
    assert tuple(decode_slot(encode_slot(Slot(*numbers)))) == numbers


def test_recall_handle_has_text_of_java() -> None:
    handle = RecallHandle("orders", "broker-a", "1700000000001", "7F00000100002A139A5500000000AB01")
    assert encode_recall_handle(handle) == JAVA_HANDLE
    assert decode_recall_handle(JAVA_HANDLE) == handle
    assert decode_recall_handle(JAVA_HANDLE.rstrip("=")) == handle


@pytest.mark.parametrize(
    "text", ["", "!", "djEg", "djEgYSBiIGM=", "djIgYSBiIGMgZA==", "é", "djEgb3JkZXJz" * 9 + "A", "+/+/"]
)
def test_forged_recall_handle_raises_one_error(text: str) -> None:
    with pytest.raises(ValueError, match="recall handle is invalid"):
        decode_recall_handle(text)


@given(st.text(max_size=80))
def test_any_text_is_recall_handle_or_raises_one_error(text: str) -> None:
    try:
        decode_recall_handle(text)
    except ValueError as error:
        assert str(error) == "recall handle is invalid"  # noqa: PT017
