"""Who gives how much of a batch that is limited: all get their turn, and what is waited for is what there is."""

from __future__ import annotations

from gantrymq.spark.runs import split_proportionally


def test_every_waiting_source_gets_share() -> None:
    """Also where most have a little, again and again, and one has so much that there would be no end of it."""
    waiting = {f"queue-{number:03}": 5 for number in range(160)} | {"a": 1_000_000, "z": 1}
    for _ in range(10):
        given = split_proportionally(waiting, 100)
        assert all(given.values())
        waiting = {key: count - given[key] + 1 for key, count in waiting.items()}


def test_shares_are_in_proportion() -> None:
    assert split_proportionally({"a": 100, "b": 50, "c": 0}, 30) == {"a": 20, "b": 10, "c": 0}
    assert split_proportionally({"a": 7}, 5) == {"a": 5}
    assert split_proportionally({"a": 0, "b": 0}, 5) == {"a": 0, "b": 0}


def test_share_is_at_most_what_waits() -> None:
    assert split_proportionally({"a": 2, "b": 3}, 1000) == {"a": 2, "b": 3}
