"""Where in a stretch of the log messages with wanted keys can lie: where the index says, and where it says nothing.

Executors look at the keys of what they read, so that a hash that means another key does no harm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import NamedTuple

from gantrymq.spark.key_index import Answer, answers
from gantrymq.spark.store_view import StoreView

NEAR_BYTES = 64 << 10
"""What lies so near to each other is read at once: a disk gives that as quickly as less."""


class Span(NamedTuple):
    """A part of the log from a record's beginning to before another's, or to the end."""

    begin: int
    end: int


def key_spans(view: StoreView, topics: Collection[str], keys: frozenset[str], whole: Span) -> list[Span]:
    """The parts of ``whole`` to be read for messages of ``topics`` (as brokers know them) with one of ``keys``."""
    end = min(whole.end, view.tail_begin)
    if whole.begin >= end:
        return [whole]
    answered: list[Span] = []
    places: set[int] = set()
    for answer in answers(view.reader, view.place, topics, keys):
        span = _known(view, answer, Span(whole.begin, end))
        if span.begin < span.end:
            answered.append(span)
        places.update(answer.places)
    unknown = _between(whole, answered)
    known = sorted(place for place in places if any(one.begin <= place < one.end for one in answered))
    return _joined([*unknown, *_around(view, known, whole)])


def _known(view: StoreView, answer: Answer, within: Span) -> Span:
    """The records of ``within`` that an index file answers for; none where it begins or ends at no record.

    A damaged header does not know where the log can be cut.
    """
    begin, end = max(answer.begin, within.begin), min(answer.end, within.end)
    if begin < end and begin == answer.begin:
        first = view.message_at(begin)
        begin = end if first is None else begin if answer.is_joined else begin + first.size_bytes
    if begin < end < within.end and view.message_at(end) is None:
        begin = end
    return Span(begin, end)


def _between(whole: Span, answered: Iterable[Span]) -> list[Span]:
    """What of ``whole`` no span of ``answered`` holds."""
    left, at = [], whole.begin
    for one in sorted(answered):
        if at < one.begin:
            left.append(Span(at, one.begin))
        at = max(at, one.end)
    return [*left, Span(at, whole.end)] if at < whole.end else left


def _around(view: StoreView, places: list[int], whole: Span) -> list[Span]:
    """The records at ``places``, rising, those that are near to each other together.

    Where none can be read a wanted one may be damaged, or the index is: its log file is read from a record's beginning
    on, so that an executor meets the damage, if there is any.
    """
    cuts = [at + 1 for at, (one, other) in enumerate(pairwise(places)) if other - one > NEAR_BYTES]
    size, spans = view.reader.log.file_size, []
    for low, high in pairwise([0, *cuts, len(places)] if places else []):
        begin, last = places[low], places[high - 1]
        if view.message_at(begin) is None:
            begin = max(begin - begin % size, whole.begin)
        message = view.message_at(last)
        end = min(last - last % size + size, whole.end) if message is None else last + message.size_bytes
        spans.append(Span(begin, end))
    return spans


def _joined(spans: list[Span]) -> list[Span]:
    """The same in order, without overlap, and what is near in one."""
    found: list[Span] = []
    for one in sorted(spans):
        if found and one.begin <= found[-1].end + NEAR_BYTES:
            found[-1] = Span(found[-1].begin, max(found[-1].end, one.end))
        else:
            found.append(one)
    return found
