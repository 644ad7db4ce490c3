"""Whole records that lie elsewhere than they say, and are no copies: which of them are of another place for sure.

One wrong number is a flipped bit, and the record is what its place and its neighbours say. Two that agree are the
truth: the record was written over another one, and is not the message whose place it has.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from gantrymq.store.queue.queue_listing import QueueName
from gantrymq.store.queue.queue_units import PassedOver, Renumbered
from gantrymq.tools.loss import LostRange
from gantrymq.tools.misfiled import lies_at
from gantrymq.tools.queue_files import QueueFiles
from gantrymq.tools.record_claims import RecordClaim, claims_at
from gantrymq.tools.record_lookup import RecordLookup


class Superseded(NamedTuple):
    """A record that gets no unit, and ``reason`` why."""

    phy_offset: int
    size_bytes: int
    reason: str


class Stray(NamedTuple):
    """A record, by its own word, that says that it lies at ``said``."""

    claim: RecordClaim
    said: int

    @property
    def queue(self) -> QueueName:
        """The queue that it names."""
        return self.claim.topic, self.claim.queue_id

    def superseded(self, reason: str) -> Superseded:
        """It gets no unit."""
        text = f"it says that it lay at {self.said}, {reason}"
        return Superseded(self.claim.phy_offset, self.claim.size_bytes, text)


def strays_among(misplaced: Iterable[LostRange], lookup: RecordLookup) -> dict[int, Stray]:
    """By place, those of the ``misplaced`` ranges that are one record."""
    said = {one.start: one.said for one in misplaced if one.said >= 0}
    return {place: Stray(claim, said[place]) for place, claim in claims_at(lookup, said).items()}


def of_other_places(
    strays: Mapping[int, Stray],
    renumbered: Iterable[tuple[str, int, Renumbered]],
    queues: Mapping[QueueName, QueueFiles],
    old_place: Callable[[str, int, int], int],
) -> list[Superseded]:
    """Those that have another queue offset than they say, which fits the place that they say.

    ``old_place`` is where a unit of the old queue leads.
    """
    found = []
    for topic, queue_id, one in renumbered:
        stray = strays.get(one.phy_offset)
        if stray is None or stray.claim.queue_offset < 0:
            continue
        offset = stray.claim.queue_offset
        is_known = old_place(topic, queue_id, offset) == stray.said
        if is_known or lies_at(queues[topic, queue_id], offset, stray.said):
            found.append(stray.superseded(f"as offset {offset} of {topic}/{queue_id}"))
    return found


def in_the_way(strays: Iterable[Stray], passed_over: Sequence[tuple[str, int, PassedOver]]) -> list[Superseded]:
    """Those that keep others out of their queue, or are kept out: one of them is wrong, and the others lie right."""
    found = []
    for stray in strays:
        place, offset = stray.claim.phy_offset, stray.claim.queue_offset
        others = [one for topic, queue_id, one in passed_over if (topic, queue_id) == stray.queue]
        if any(one.phy_offset == place or (one.queue_offset < offset and one.phy_offset > place) for one in others):
            found.append(stray.superseded(f"and is in the way of others of {stray.queue[0]}/{stray.queue[1]}"))
    return found
