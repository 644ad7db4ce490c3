"""Which queue offsets are believed: one flipped bit moves no message behind it and invents no billion slots."""

import numpy as np
import pytest

from gantrymq.store.queue.queue_dispatch import continuing, repaired_offsets

FAR = 10**12  # so far into the log that any offset of these tests fits in front


def mended(offsets: list[int], expected: int | None, phy_offset: int = FAR, apart: int = 100) -> list[int]:
    """What is believed of records that lie ``apart`` bytes from each other."""
    given = np.array(offsets, np.int64)
    return repaired_offsets(given, phy_offset + apart * np.arange(len(given)), expected).tolist()


@pytest.mark.parametrize("expected", [5, None])
def test_consecutive_offsets_are_kept(expected: int | None) -> None:
    assert mended([5, 6, 7, 8], expected) == [5, 6, 7, 8]


@pytest.mark.parametrize("wrong", [0, 6 + 1024, 1 << 40, -1])
def test_record_contradicted_by_next_record_is_wrong(wrong: int) -> None:
    assert mended([5, wrong, 7, 8], 5) == [5, 6, 7, 8]
    assert mended([wrong, 6, 7, 8], 5) == [5, 6, 7, 8]


@pytest.mark.parametrize("other", [0, 500, 1 << 50])
def test_record_of_other_queue_does_not_take_slot_of_next_record(other: int) -> None:
    assert mended([5, 6, other, 7, 8], 5) == [5, 6, 6, 7, 8]
    assert mended([other, 5, 6], 5) == [4, 5, 6]
    assert mended([5, 6, other, 7], 5) == [5, 6, 6, 7]


def test_record_with_lower_offset_does_not_displace_next_records() -> None:
    assert mended([3, 5, 6, 4, 7], 3) == [3, 5, 6, 4, 7]
    assert mended([3, 5, 4], 3) == [3, 5, 4]


def test_several_records_of_other_queue_take_no_slot() -> None:
    assert mended([5, 500, 501, 6, 7], 5) == [5, 5, 5, 6, 7]
    assert mended([0, 500, 1, 2], 0) == [0, 0, 1, 2]


@pytest.mark.parametrize("wrong", [1 << 40, -1])
def test_implausible_offset_of_last_record_is_replaced(wrong: int) -> None:
    assert mended([5, 6, wrong], 5) == [5, 6, 7]
    assert mended([wrong], 5) == [5]


def test_gap_confirmed_by_next_record_is_kept() -> None:
    assert mended([5, 6, 50_000, 50_001], 5) == [5, 6, 50_000, 50_001]


def test_repeated_records_keep_their_offsets() -> None:
    assert mended([5, 6, 5, 6, 7], 5) == [5, 6, 5, 6, 7]


def test_empty_queue_begins_where_first_records_agree() -> None:
    assert mended([900, 901, 902], None) == [900, 901, 902]
    assert mended([1 << 30, 901, 902], None) == [900, 901, 902]


def test_repaired_offset_is_limited_by_records_fitting_before_it() -> None:
    assert mended([1 << 20], None, phy_offset=910) == [0]
    assert mended([10], None, phy_offset=910) == [10]


@pytest.mark.parametrize("lost", [1, 9])
def test_first_offset_of_queue_is_kept_if_earlier_messages_may_be_lost(lost: int) -> None:
    assert mended([0, lost + 1, lost + 2, lost + 3], None, apart=1000) == [0, lost + 1, lost + 2, lost + 3]


@pytest.mark.parametrize("lost", [10, 1 << 30])
def test_first_offset_of_queue_is_replaced_if_earlier_messages_would_not_fit(lost: int) -> None:
    assert mended([0, lost + 1, lost + 2, lost + 3], None, apart=1000)[0] == lost


@pytest.mark.parametrize("wrong", [11, 1, 1 << 40, -1])
def test_repaired_offset_is_never_negative(wrong: int) -> None:
    """A record of another place can lie in front of a queue's first one; that one says 0, and the next one 1."""
    believed = mended([wrong, 0, 1, 2], None)
    assert believed[1:] == [0, 1, 2]
    assert believed[0] == (wrong if 0 < wrong < 1 << 30 else 0)


def test_queues_continue_where_nothing_would_be_repaired(seed: int) -> None:
    rng, found = np.random.default_rng(seed), set()
    for _ in range(100):
        lengths, expected = rng.integers(1, 5, 20), rng.integers(-1, 4, 20)
        begins = np.cumsum(lengths) - lengths
        claimed = np.arange(lengths.sum()) + np.repeat(expected - begins, lengths)
        claimed += rng.random(len(claimed)) < 0.05
        lie_at = np.sort(rng.integers(0, 4_000, len(claimed)))
        for queue, goes_on in enumerate(continuing(claimed, lie_at, begins, expected).tolist()):
            own = slice(begins[queue], begins[queue] + lengths[queue])
            given, next_one = claimed[own], int(expected[queue])
            assert goes_on == (next_one >= 0 and repaired_offsets(given, lie_at[own], next_one) is given)
            found.add((goes_on, next_one))
    assert len(found) > 5
