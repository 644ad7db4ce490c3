"""The checkpoint: six numbers on a page of 4096 bytes."""

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.format.checkpoint import CHECKPOINT_SIZE, Checkpoint, decode_checkpoint, encode_checkpoint

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
NUMBERS = bytes.fromhex(
    "0000000000000001 0000000000000002 0000000000000003 0000000000000004 0000000000000005 ffffffffffffffff"
)


def test_checkpoint_has_documented_layout() -> None:
    page = Checkpoint(
        physic_msg_timestamp_ms=1,
        logics_msg_timestamp_ms=2,
        index_msg_timestamp_ms=3,
        master_flushed_offset=4,
        confirm_phy_offset=5,
        logics_physical_offset=-1,
    )
    assert encode_checkpoint(page) == NUMBERS + bytes(4048)
    assert decode_checkpoint(NUMBERS + bytes(4048)) == page


def test_new_page_is_all_zeros() -> None:
    assert encode_checkpoint(Checkpoint()) == bytes(CHECKPOINT_SIZE)


@given(st.lists(LONGS, min_size=6, max_size=6))
def test_checkpoint_round_trips(numbers: list[int]) -> None:
    assert astuple(decode_checkpoint(encode_checkpoint(Checkpoint(*numbers)))) == tuple(numbers)


def test_checkpoint_of_three_numbers_reads_others_as_zero() -> None:
    assert decode_checkpoint(NUMBERS[:24].ljust(4096, b"\0")) == Checkpoint(1, 2, 3)


@pytest.mark.parametrize(
    ("length", "page"),
    [(0, Checkpoint()), (7, Checkpoint()), (8, Checkpoint(1)), (47, Checkpoint(1, 2, 3, 4, 5, -256))],
)
def test_short_checkpoint_reads_missing_numbers_as_zero(length: int, page: Checkpoint) -> None:
    assert decode_checkpoint(NUMBERS[:length]) == page


def test_bytes_after_numbers_are_ignored() -> None:
    assert decode_checkpoint(NUMBERS + b"\xff" * 4048) == decode_checkpoint(NUMBERS)
