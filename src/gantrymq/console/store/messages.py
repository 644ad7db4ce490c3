"""Search of messages in a store: by place in a queue, by time, by key, or by place in the log; and one message.

Each search reads the messages that its page shows, and for a time O(log messages) of each queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.page_request import PageRequest, get
from gantrymq.console.rendering import url
from gantrymq.console.store.looking import looking, state_of
from gantrymq.console.store.opened import IndexOpeningError, OpenStore, Snapshot
from gantrymq.errors import GantrymqError
from gantrymq.format.body_text import body_beginning
from gantrymq.kernels import codes
from gantrymq.model.flags import COMPRESSED
from gantrymq.model.message import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY, parse_message_id
from gantrymq.store.index.index_file import REBUILD_INDEX
from gantrymq.store.index.index_service import EVERYTHING_MS
from gantrymq.store.lookup import take_exact
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.tools.read.record_rows import Record, RecordRows

MAX_ROWS = 50
_MAX_QUEUES = 64  # of a search by time over all queues of a topic
_BODY_CHARACTERS = 80
_FIELDS = ("by", "topic", "queue", "offset", "time", "key", "begin", "end", "place")


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message of a list. ``record`` is None if there is no readable one at ``phy_offset``; ``remark`` says why.

    ``queue_offset`` is None if it is not known.
    """

    phy_offset: int
    topic: str
    queue_id: int | None
    queue_offset: int | None
    record: Record | None
    remark: str = ""

    @property
    def stored_ms(self) -> int | None:
        """The store time in ms."""
        return self.record.row[codes.STORE_TIMESTAMP] if self.record is not None else None

    @property
    def size_bytes(self) -> int | None:
        """The size of the record in bytes."""
        return self.record.size if self.record is not None else None

    @property
    def tags(self) -> str:
        """The tags of the message, as text."""
        return self.record.properties.get(PROPERTY_TAGS, "") if self.record is not None else ""

    @property
    def keys(self) -> str:
        """The keys, or the unique key if there are none."""
        if self.record is None:
            return ""
        properties = self.record.properties
        return properties.get(PROPERTY_KEYS, "") or properties.get(PROPERTY_UNIQ_KEY, "")

    @property
    def body(self) -> str:
        """The beginning of the body as text, or what it is instead."""
        if self.record is None:
            return ""
        length = self.record.row[codes.BODY_LENGTH]
        if self.record.row[codes.SYS_FLAG] & COMPRESSED:
            return f"({length:,} bytes, compressed)"
        text = body_beginning(self.record.body, length, _BODY_CHARACTERS)
        return f"({length:,} bytes, no text)" if text is None else text or "(empty)"


@dataclass(slots=True)
class SearchResult:
    """The result of a search: a title, rows, notes about what it lacks, and the address of the next part."""

    title: str
    rows: list[MessageRow]
    notes: list[str]
    following: str | None = None
    preceding: str | None = None
    is_waiting: bool = False
    has_topics: bool = False


class StoreMessagePages:
    """The search, and one message."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        """The routes of the pages."""
        return [get("/messages", looking(self._store, self.search))]

    def search(self, request: PageRequest, snapshot: Snapshot) -> Response:
        """The forms, and what the one that was sent has found."""
        by = request.text("by")
        searches = {"queue": _by_queue, "time": _by_time, "key": _by_key, "place": _by_position}
        if by and by not in searches:
            raise HTTPException(400, f"by: {by!r} is none of {', '.join(searches)}")
        result = searches[by](request, snapshot) if by else None
        return request.page(
            "store/messages.html.j2",
            **state_of(self._store, snapshot),
            found=result,
            fields={name: request.text(name) for name in _FIELDS},
            topics=[topic.topic for topic in snapshot.summary.topics][:500],
            store_path=str(self._store.path),
        )


def _queue_of(request: PageRequest, snapshot: Snapshot) -> ConsumeQueue:
    topic, queue_id = request.text("topic"), request.number("queue", 0)
    queue = snapshot.reader.consume_queues.get(topic, queue_id)
    if queue is None:
        known = snapshot.queues.get(topic)
        text = f"Topic {topic} has no queue {queue_id}." if known else f"The store has no topic {topic}."
        raise HTTPException(404, text)
    return queue


# By place in a queue, and by time


def _by_queue(request: PageRequest, snapshot: Snapshot) -> SearchResult:
    queue = _queue_of(request, snapshot)
    low, high = queue.min_offset, queue.max_offset
    offset = request.number("offset", max(high - MAX_ROWS, low))
    title = f"{queue.topic}, queue {queue.queue_id}, from offset {offset:,}"
    begin = min(max(offset, low), high)
    rows, notes = _rows_from(snapshot, queue, begin)
    if offset < low:
        notes.insert(0, f"The queue begins at offset {low:,}.")
    elif offset >= high:
        notes.insert(0, f"The queue ends at offset {high:,}: there is no message at {offset:,} yet.")
    end = begin + MAX_ROWS
    link = {"by": "queue", "topic": queue.topic, "queue": queue.queue_id}
    following = url("/messages", **link, offset=end) if end < high else None
    preceding = url("/messages", **link, offset=max(begin - MAX_ROWS, low)) if begin > low else None
    return SearchResult(title, rows, notes, following, preceding)


def _rows_from(snapshot: Snapshot, queue: ConsumeQueue, begin: int) -> tuple[list[MessageRow], list[str]]:
    """The messages of a queue from offset ``begin`` on, and notes about what cannot be read."""
    notes: list[str] = []
    records = RecordRows(snapshot.reader.log, notes.append)
    rows: list[MessageRow] = []
    blanks = 0
    end = min(begin + MAX_ROWS, queue.max_offset)
    for offset, unit in snapshot.reader.lookup.iterate(queue, begin, end, MAX_ROWS):
        if unit.is_filler:
            blanks += 1
            continue
        record = records.at(unit.phy_offset)
        remark = ""
        if record is None:
            is_gone = unit.phy_offset < snapshot.reader.min_phy_offset
            remark = "deleted by retention" if is_gone else "no readable record is there"
        elif record.size != unit.size_bytes:
            record, remark = None, "another record is there"
        rows.append(MessageRow(unit.phy_offset, queue.topic, queue.queue_id, offset, record, remark))
    if blanks:
        notes.append(f"{blanks:,} of the offsets are fillers: no message has them.")
    return rows, notes


def _by_time(request: PageRequest, snapshot: Snapshot) -> SearchResult:
    topic, moment_ms = request.text("topic"), request.moment_ms("time")
    if moment_ms is None:
        raise HTTPException(400, "time: give a time")
    if request.text("queue"):
        queues = [_queue_of(request, snapshot)]
    else:
        queues = snapshot.queues.get(topic, [])
        if not queues:
            raise HTTPException(404, f"The store has no topic {topic}.")
    notes = []
    if len(queues) > _MAX_QUEUES:
        notes.append(f"Only the first {_MAX_QUEUES} of {len(queues):,} queues are searched: name a queue.")
    rows: list[MessageRow] = []
    for queue in queues[:_MAX_QUEUES]:
        offset = snapshot.reader.offset_at(queue.topic, queue.queue_id, moment_ms)
        if offset >= queue.max_offset:
            notes.append(f"Queue {queue.queue_id}: nothing was stored then or later.")
            continue
        first_rows, more = _rows_from(snapshot, queue, offset)
        rows += first_rows if len(queues) == 1 else first_rows[:1]
        notes += more
    text = "the first message of each queue" if len(queues) > 1 else f"queue {queues[0].queue_id}"
    return SearchResult(f"{topic}, {text} from that time on", rows, notes)


# By key


def _by_key(request: PageRequest, snapshot: Snapshot) -> SearchResult:
    topic, key = request.text("topic"), request.text("key")
    if not key:
        raise HTTPException(400, "key: give a key, a unique key, or T#TAG for a tag")
    begin_ms, end_ms = request.times_ms()
    key_result = SearchResult(f"{topic}, key {key}", [], [], has_topics=True)
    records, last_ms = (
        RecordRows(snapshot.reader.log, key_result.notes.append),
        EVERYTHING_MS if end_ms is None else end_ms,
    )

    def find(limit: int) -> list[int]:
        return snapshot.find_key(topic, key, begin_ms or 0, last_ms, limit)

    def read(offset: int) -> MessageRow | None:
        return _row_at(snapshot, records, offset, topic, key)

    try:
        rows = take_exact(find, partial(map, read), MAX_ROWS + 1)
    except IndexOpeningError:
        key_result.is_waiting = True
        return key_result
    except (GantrymqError, OSError) as error:
        key_result.notes.append(f"The index cannot be used: {error}. {_remedy(snapshot)}")
        return key_result
    _note_index(key_result, snapshot)
    key_result.rows += rows[:MAX_ROWS]
    if len(rows) > MAX_ROWS:
        key_result.notes.append(f"Only the newest {MAX_ROWS} answers are shown: give a time to see older ones.")
    if not rows and topic not in snapshot.queues:
        key_result.notes.append(f"The store has no topic {topic}.")
    return key_result


def _note_index(key_result: SearchResult, snapshot: Snapshot) -> None:
    """Say what the index lacks."""
    if not snapshot.reader.config.message_index_enable:
        key_result.notes.append("The settings have messageIndexEnable=false: there is no index.")
    elif not snapshot.summary.index_sizes and snapshot.summary.messages:
        key_result.notes.append(f"The store has no index file, so no key is found. {_remedy(snapshot)}")


def _remedy(snapshot: Snapshot) -> str:
    command, _, rest = REBUILD_INDEX.partition("--index`")
    return f"{command}--index {snapshot.summary.path}`{rest}."


def _row_at(snapshot: Snapshot, records: RecordRows, offset: int, topic: str, key: str) -> MessageRow | None:
    """The row of an answer of the index; None for another topic or key with the same hash."""
    record = records.at(offset)
    if record is None:
        is_gone = offset < snapshot.reader.min_phy_offset
        return MessageRow(offset, topic, None, None, None, "no longer in the log" if is_gone else "not readable")
    if not record.has_index_key(topic, key):
        return None
    row = record.row
    return MessageRow(offset, record.topic, row[codes.QUEUE_ID], row[codes.QUEUE_OFFSET], record)


# By place in the log


def _by_position(request: PageRequest, snapshot: Snapshot) -> SearchResult:
    position = request.text("place")
    try:
        is_id = not (position.isascii() and position.isdecimal() and len(position) < 20)
        offset = parse_message_id(position)[1] if is_id else int(position)
    except ValueError:
        text = "is neither an offset of the commit log nor a message id of a broker"
        raise HTTPException(400, f"place: {position!r} {text}; the id of a producer is a key") from None
    notes: list[str] = []
    record = RecordRows(snapshot.reader.log, notes.append).at(offset)
    rows: list[MessageRow] = []
    if record is None:
        limits = f"{snapshot.reader.min_phy_offset:,} to {snapshot.reader.max_phy_offset:,}"
        notes.append(f"No message begins at offset {offset:,} of the log, which spans {limits}.")
    else:
        row = record.row
        rows.append(MessageRow(offset, record.topic, row[codes.QUEUE_ID], row[codes.QUEUE_OFFSET], record))
    return SearchResult(f"commit log, offset {offset:,}", rows, notes, has_topics=True)
