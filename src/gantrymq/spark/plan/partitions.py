"""Divides what is to be read of a store into partitions, on the driver.

The selected messages of each queue are in one stretch of the log, from the first to the last of them. It is cut into
runs of about equal bytes, or of a number of messages. Executors read runs, which is sequential reading of files for any
number of queues. Planning reads the consume queues where it needs a place, and never the log as a whole.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import pairwise

from gantrymq.model.message import PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_INNER_MULTI_QUEUE_OFFSET, StoredMessage
from gantrymq.spark.data_loss import report
from gantrymq.spark.plan.key_index import Span, key_spans
from gantrymq.spark.plan.log_order import QueueRange, cut_places
from gantrymq.spark.plan.queue_view import QueueView
from gantrymq.spark.plan.store_view import StoreView
from gantrymq.spark.runs import ENDLESS, AuditPlan, Bounds, LogPiece, LogRun, QueueBounds, usable_cores
from gantrymq.spark.selection import RowFilter, Selection

# A task costs Spark about 75 ms, in which a core reads about 100 MB.
LARGEST_RUN_BYTES = 512 << 20
SMALLEST_RUN_BYTES = 16 << 20
_FURTHER_QUEUES = (
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
)  # the further topics of a message, and its offsets there


def plan_runs(
    view: StoreView,
    wanted: Mapping[tuple[str, int], QueueRange],
    selection: Selection,
    rows: RowFilter | None,
    *,
    whole: bool,
    min_partitions: int,
    max_records: int | None,
    use_index: bool,
    fail_on_data_loss: bool,
) -> list[LogRun]:
    """The partitions of the ranges ``wanted``, which are by topic (as rows show it) and queue id; empty without any.

    ``whole`` says that these are all messages of the queues that ``selection`` takes. With ``use_index`` the index
    locates messages with wanted keys. Raises DataLossError if a file of the log is missing or too short.
    """
    begins = {key: _begin(view, range_, whole=whole) for key, range_ in wanted.items()}
    span = _span(view, _stretches(view, wanted, begins, selection, whole=whole), rows)
    if span.begin >= span.end:
        return []
    spans = _key_spans(view, wanted, rows, span, whole=whole) if use_index else [span]
    if max_records:
        cuts = _row_cuts(view, wanted.values(), span, min_partitions, max_records)
    else:
        cuts = _byte_cuts(view, spans, min_partitions)
    pieces = _pieces(view, spans, [span.begin, *cuts, span.end], fail_on_data_loss=fail_on_data_loss)
    bounds = _unread(view, selection, wanted)
    bounds |= {key: _bounds(range_, begins[key], whole=whole) for key, range_ in wanted.items()}
    log_end, is_audited = view.log_end(), spans == [span]
    return [
        LogRun(part, view.broker, selection, bounds, rows, log_end, _audit(view, number, len(cuts), is_audited))
        for number, part in enumerate(pieces)
        if part
    ]


def _begin(view: StoreView, range_: QueueRange, *, whole: bool) -> int:
    """The physical offset before which no wanted message of a queue lies."""
    has_begin = len(range_) > 0 and not (whole and view.begins_late(range_.queue))
    return _message(view, range_.queue, range_.low).begin if has_begin else view.begin


def _stretches(
    view: StoreView,
    wanted: Mapping[tuple[str, int], QueueRange],
    begins: Mapping[tuple[str, int], int],
    selection: Selection,
    *,
    whole: bool,
) -> list[Span]:
    """The stretches of the log that have the wanted messages: the whole log if all queues are read as a whole."""
    if whole and selection == Selection():
        return [Span(view.begin, view.end)] if view.begin < view.end else []
    stretches = [_stretch(view, range_, begins[key], whole=whole) for key, range_ in wanted.items()]
    return [stretch for stretch in stretches if stretch.begin < stretch.end]


def _key_spans(
    view: StoreView, wanted: Mapping[tuple[str, int], QueueRange], rows: RowFilter | None, span: Span, *, whole: bool
) -> list[Span]:
    """The parts of ``span`` in which the index has a wanted key; all of it if no key is wanted."""
    if rows is None or not rows.keys:
        return [span]
    topics = {range_.queue.topic for range_ in wanted.values() if whole or len(range_)}
    return key_spans(view, topics, min(rows.keys, key=len), span)


def _pieces(
    view: StoreView, spans: Sequence[Span], cuts: Sequence[int], *, fail_on_data_loss: bool
) -> list[tuple[LogPiece, ...]]:
    """The pieces of files between each two cuts. Raises DataLossError if a file is missing or too short."""
    losses: list[str] = []
    parts = [_within(spans, start, stop) for start, stop in pairwise(cuts)]
    pieces = [tuple(piece for span in part for piece in view.pieces(*span, losses)) for part in parts]
    report(losses, fail=fail_on_data_loss)
    return pieces


def _audit(view: StoreView, number: int, last: int, is_audited: bool) -> AuditPlan | None:
    if not is_audited:
        return None
    return AuditPlan(view.location, view.reader.log.file_size, is_first=number == 0, is_last=number == last)


def _within(spans: Sequence[Span], start: int, stop: int) -> list[Span]:
    """The parts of ``spans`` in [start, stop)."""
    return [
        Span(max(span.begin, start), min(span.end, stop)) for span in spans if span.begin < stop and start < span.end
    ]


def _bounds(range_: QueueRange, begin: int, *, whole: bool) -> Bounds:
    """The bounds by which executors select a queue whose first message lies at ``begin``.

    For a whole queue they admit all that the log has, because a damaged unit may make it seem to end early. If its
    first messages are gone, the log has nothing before them either.
    """
    if whole:
        return Bounds(0, ENDLESS, 0 if range_.low else begin)
    return Bounds(range_.low, range_.high, begin, *_end(range_.queue))


def _end(queue: QueueView) -> tuple[int, int]:
    """The end of a queue and the physical offset of its last message; ENDLESS for both if unknown."""
    end = queue.max_offset
    return (end, queue.phy_offset(end - 1)) if queue.min_offset < end else (ENDLESS, ENDLESS)


def _unread(view: StoreView, selection: Selection, wanted: Container[tuple[str, int]]) -> QueueBounds:
    """Bounds for existing queues of which nothing is read. A record of any further queue then reveals a lost queue."""
    shown = {key: selection.shown_topic(key[0]) for key in view.queues}
    return {
        (topic, key[1]): Bounds(0, 0, 0, *_end(view.queues[key]))
        for key, topic in shown.items()
        if topic is not None and (topic, key[1]) not in wanted
    }


def _stretch(view: StoreView, range_: QueueRange, begin: int, *, whole: bool) -> Span:
    """The stretch from the first message of a queue, at ``begin``, to after the last one; empty without any.

    For a whole queue whose apparent end is a damaged unit it reaches to the log's end.
    """
    if whole and view.may_continue(range_.queue):
        return Span(begin, view.end)
    return Span(begin, _message(view, range_.queue, range_.high - 1).end if len(range_) else begin)


def _span(view: StoreView, stretches: Sequence[Span], rows: RowFilter | None) -> Span:
    """The part of the log to read."""
    begin = min((stretch.begin for stretch in stretches), default=view.end)
    end = max((stretch.end for stretch in stretches), default=begin)
    low, high = rows.bounds("phy_offset") if rows is not None else (None, None)
    if low is not None and begin < low < end:
        begin = view.record_at_or_after(low)
    if high is not None and begin <= high + 1 < end:
        end = view.record_at_or_after(high + 1)
    return Span(begin, end if high is None or high >= begin else begin)


def _message(view: StoreView, queue: QueueView, queue_offset: int) -> Span:
    """The span of the message at ``queue_offset``; for a filler, of the nearest message before it.

    The whole log if the unit does not point at its message: a damaged unit must not hide other messages.
    """
    phy_offset = queue.phy_offset(queue_offset)
    if view.tail_begin <= phy_offset < view.end and phy_offset == view.record_at_or_after(phy_offset):
        return Span(phy_offset, view.record_at_or_after(phy_offset + 1))
    message = view.message_at(phy_offset)
    if message is None or not _is_in(message, queue, queue_offset):
        return Span(view.begin, view.end)
    return Span(phy_offset, phy_offset + message.size_bytes)


def _is_in(message: StoredMessage, queue: QueueView, queue_offset: int) -> bool:
    """Whether ``message`` is the one that :func:`_message` looks for."""
    at = message.queue_offset
    if (message.topic, message.queue_id) != (queue.topic, queue.queue_id):
        names, offsets = (message.properties.get(name, "").split(",") for name in _FURTHER_QUEUES)
        return (queue.topic, str(queue_offset)) in zip(names, offsets, strict=False)
    return at == queue_offset or (queue.is_filler(queue_offset) and queue.is_filler(at + 1))


def _byte_cuts(view: StoreView, spans: Sequence[Span], min_partitions: int) -> list[int]:
    """Cuts between which there are about equally many bytes of ``spans``."""
    total = sum(span.end - span.begin for span in spans)
    cores = usable_cores()
    count = max(min_partitions, -(-total // LARGEST_RUN_BYTES), min(cores, -(-total // SMALLEST_RUN_BYTES)), 1)
    cuts: list[int] = []
    passed = 0
    for span in spans:
        size = span.end - span.begin
        for part in range(passed * count // total + 1, -(-(passed + size) * count // total)):
            cut = view.record_at_or_after(span.begin + total * part // count - passed)
            if (cuts[-1] if cuts else spans[0].begin) < cut < spans[-1].end:
                cuts.append(cut)
        passed += size
    return cuts


def _row_cuts(
    view: StoreView, ranges: Iterable[QueueRange], whole: Span, min_partitions: int, max_records: int
) -> list[int]:
    """Cuts between which there are at most ``max_records`` messages, or one more if a damaged unit misplaces it."""
    left = [range_ for range_ in ranges if len(range_)]
    at_most = min(max_records, -(-sum(map(len, left)) // max(min_partitions, 1)) or 1)
    cuts: list[int] = []
    for phy_offset in cut_places(left, whole.begin, whole.end, at_most, is_remote=view.location.uri is not None):
        is_known = phy_offset < view.tail_begin and view.message_at(phy_offset) is not None
        cut = phy_offset if is_known else view.record_at_or_after(phy_offset)
        if cut >= whole.end:
            break
        if cut > (cuts[-1] if cuts else whole.begin):
            cuts.append(cut)
    return cuts
