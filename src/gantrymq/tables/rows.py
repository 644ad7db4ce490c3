"""The rows of a part: records become rows of the table, dead rows, or findings.

Both engines read a part with :func:`landed_batches`, so a message is the same row in either.

Thread rule: plain functions. A conversion is pickled to Spark's executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from gantrymq.client.namespace import RETRY_PREFIX
from gantrymq.errors import CorruptRecordError
from gantrymq.kernels import codes
from gantrymq.model import flags
from gantrymq.model.message import PROPERTY_DLQ_ORIGIN_TOPIC, PROPERTY_RETRY_TOPIC
from gantrymq.model.size import MAX_DECOMPRESSED_BODY_SIZE
from gantrymq.tables.bodies.body_format import BodyFormat, GrowingFormat
from gantrymq.tables.columns import (
    AUDIT_SCHEMA,
    ORIGIN_TOPIC,
    dead_from_message,
    message_schema,
    table_schema,
)
from gantrymq.tables.selection import TopicChoice
from gantrymq.tables.sources.steps import AuditFinding, Records, StepPart
from gantrymq.tables.upserts import UpsertRule
from gantrymq.tools.arrow import ArrowBatches, LogBatch, numbers_array, property_column

_BODY = pa.field("body", pa.binary(), nullable=False)


class RowKind(StrEnum):
    """The table that rows belong to."""

    ROWS = "rows"
    DEAD = "dead"
    AUDIT = "audit"


class LandedBatch(NamedTuple):
    """Rows of one table. Those of the account have the schema AUDIT_SCHEMA."""

    kind: RowKind
    batch: pa.RecordBatch
    findings: Sequence[AuditFinding] = ()


@dataclass(frozen=True, slots=True)
class Conversion:
    """How records become rows: the choice of topics, and the format of the bodies.

    Messages with a store timestamp before ``from_ms`` become no rows. With ``upserts`` those without a key are dead.
    """

    choice: TopicChoice
    bodies: BodyFormat
    max_body_bytes: int = MAX_DECOMPRESSED_BODY_SIZE
    from_ms: int | None = None
    upserts: UpsertRule | None = None

    @property
    def message_schema(self) -> pa.Schema:
        """The columns in front of the body's."""
        return message_schema(has_origin=self.choice.has_origin)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return table_schema(self.bodies.schema, has_origin=self.choice.has_origin)


class BodyGrowth:
    """The format of the bodies while a step is read. A format that grows has more columns after some bodies."""

    def __init__(self, bodies: BodyFormat) -> None:
        self.bodies = bodies

    def see(self, bodies: pa.BinaryArray) -> bool:
        """Let the format follow ``bodies``, which are decoded next; whether it has become another one."""
        known = self.bodies
        if isinstance(known, GrowingFormat) and known.grows:
            self.bodies = known.widened(bodies)
        return self.bodies is not known


def landed_batches(part: StepPart, conversion: Conversion, growth: BodyGrowth | None = None) -> Iterator[LandedBatch]:
    """The rows of a part, those of a batch of records queue by queue, with upserts in their order; no batch is empty.

    With ``growth`` the columns follow the bodies: later batches may have more columns. Without, a body that needs a new
    column does not fit.
    """
    converter: _Converter | None = None
    for records in part.records():
        if converter is None or converter.broker != records.broker:
            following = growth or BodyGrowth(conversion.bodies)
            converter = _Converter(records.broker, conversion, following, is_fixed=growth is None)
        if records.findings:
            yield LandedBatch(RowKind.AUDIT, audit_rows(records.findings), records.findings)
        if records.batch.count:
            yield from converter.convert(records)


def audit_rows(findings: Sequence[AuditFinding]) -> pa.RecordBatch:
    """The findings as rows of the account. A number that is unknown is null."""
    columns = []
    for field in AUDIT_SCHEMA:
        values = [getattr(finding, field.name) for finding in findings]
        if pa.types.is_integer(field.type):
            values = [None if value < 0 else value for value in values]
        columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=AUDIT_SCHEMA)


class BodyRows:
    """The rows of messages: the columns in front of the body's, and the body's, which may grow."""

    def __init__(self, conversion: Conversion, growth: BodyGrowth, *, is_fixed: bool = False) -> None:
        self._conversion, self._growth, self._is_fixed = conversion, growth, is_fixed
        self._schema = self._grown_schema()

    @property
    def version(self) -> str:
        """The name of the schema by which the last bodies were decoded."""
        return self._growth.bodies.version

    def _grown_schema(self) -> pa.Schema:
        return table_schema(self._growth.bodies.schema, has_origin=self._conversion.choice.has_origin)

    def decode(self, message: pa.RecordBatch, bodies: pa.BinaryArray) -> tuple[pa.RecordBatch, Sequence[str | None]]:
        """The rows of the messages whose bodies fit, and for each message None or the reason why it does not."""
        if not self._is_fixed and self._growth.see(bodies):
            self._schema = self._grown_schema()
        decoded = self._growth.bodies.decode(bodies)
        columns = decoded.columns
        fits = [reason is None for reason in decoded.reasons]
        if not all(fits):
            mask = pa.array(fits, pa.bool_())
            message, columns = message.filter(mask), columns.filter(mask)
        arrays = [*message.columns, *columns.columns]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if self._conversion.upserts is None:
            return rows, decoded.reasons
        keyless = self._conversion.upserts.reasons(rows)
        of_rows = iter(keyless)
        reasons = [next(of_rows) if reason is None else reason for reason in decoded.reasons]
        return rows.filter(pa.array([reason is None for reason in keyless], pa.bool_())), reasons


class _Converter:
    """Converts the records of one broker."""

    def __init__(self, broker: str, conversion: Conversion, growth: BodyGrowth, *, is_fixed: bool) -> None:
        self.broker = broker
        self._conversion = conversion
        self._rows = BodyRows(conversion, growth, is_fixed=is_fixed)
        self._message = conversion.message_schema
        self._refused: dict[int, str] = {}
        self._generations = np.zeros(0, np.int64)
        self._unpacked = self._batches(decompress=True)
        self._stored: ArrowBatches | None = None

    def _batches(self, *, decompress: bool) -> ArrowBatches:
        return ArrowBatches(
            pa.schema([*self._message, _BODY]),
            decompress=decompress,
            broker_name=self.broker,
            refuse=self._refuse,
            max_decompressed_body_size=self._conversion.max_body_bytes,
            builders={"generation": self._generation_column, ORIGIN_TOPIC: _origin_topics},
        )

    def _refuse(self, error: CorruptRecordError) -> None:
        self._refused[error.offset] = str(error.__cause__ or error.reason)

    def _generation_column(self, batch: LogBatch, kind: pa.DataType) -> pa.Array:
        return numbers_array(self._generations[batch.queues].astype(np.int32))

    def convert(self, records: Records) -> Iterator[LandedBatch]:
        """The rows of a batch, and its dead rows."""
        self._generations = records.generations
        batch = self._new_enough(self._with_chosen_origin(records.batch))
        if not batch.count:
            return
        if self._conversion.upserts is None:
            batch = batch.by_queue()
        self._refused.clear()
        for rows in self._unpacked.convert(batch):
            yield from self._decoded(rows)
        if self._refused:
            yield from self._undecodable(batch)

    def _new_enough(self, batch: LogBatch) -> LogBatch:
        """The batch without messages that are too old."""
        if self._conversion.from_ms is None:
            return batch
        is_new = batch.row(codes.STORE_TIMESTAMP) >= self._conversion.from_ms
        return batch if is_new.all() else batch.take(is_new)

    def _with_chosen_origin(self, batch: LogBatch) -> LogBatch:
        """The batch without messages of retry topics that came from topics which are not chosen."""
        choice = self._conversion.choice
        topics = batch.topics.to_pylist()
        is_other = np.array([choice.is_read_for_others(topic) for topic in topics], np.bool_)
        if not is_other.any() or not is_other[batch.queues].any():
            return batch
        origins = _origin_topics(batch, pa.string())
        chosen = {topic: choice.chooses(topic) for topic in set(origins.to_pylist())}
        is_chosen = np.array([chosen[topic] for topic in origins.to_pylist()], np.bool_)
        return batch.take(~is_other[batch.queues] | is_chosen)

    def _decoded(self, rows: pa.RecordBatch) -> Iterator[LandedBatch]:
        bodies = rows.column(rows.num_columns - 1)
        message = rows.select(self._message.names)
        landed, reasons = self._rows.decode(message, bodies)
        if landed.num_rows < message.num_rows:
            bad = pa.array([reason is not None for reason in reasons])
            texts = pa.array([reason for reason in reasons if reason is not None], pa.string())
            dead = dead_from_message(message.filter(bad), bodies.filter(bad), texts, self._rows.version)
            yield LandedBatch(RowKind.DEAD, dead)
        if landed.num_rows:
            yield LandedBatch(RowKind.ROWS, landed)

    def _undecodable(self, batch: LogBatch) -> Iterator[LandedBatch]:
        """The records whose bodies cannot be decompressed, as dead rows with the bodies as they are stored."""
        refused = batch.take(np.isin(batch.row(codes.PHY_OFFSET), list(self._refused)))
        reasons = [self._refused[offset] for offset in refused.row(codes.PHY_OFFSET).tolist()]
        self._stored = self._stored or self._batches(decompress=False)
        for rows in self._stored.convert(refused):
            message, bodies = rows.select(self._message.names), rows.column(rows.num_columns - 1)
            texts = pa.array([undecodable(reason) for reason in reasons], pa.string())
            kinds = numbers_array((refused.row(codes.SYS_FLAG) & flags.COMPRESSION_MASK).astype(np.int32))
            dead = dead_from_message(message, bodies, texts, self._rows.version, kinds)
            yield LandedBatch(RowKind.DEAD, dead)


def undecodable(reason: str) -> str:
    """The reason of a dead row whose body cannot be decompressed."""
    return f"body: {reason}"


def _origin_topics(batch: LogBatch, kind: pa.DataType) -> pa.Array:
    """The topic that each message was sent to first: by its properties, or the topic itself."""
    origins = property_column(batch, PROPERTY_RETRY_TOPIC).to_pylist()
    if None in origins:
        by_dlq = property_column(batch, PROPERTY_DLQ_ORIGIN_TOPIC).to_pylist()
        origins = [origin if origin is not None else other for origin, other in zip(origins, by_dlq, strict=True)]
    topics = batch.topics.to_pylist()
    own = [topics[number] for number in batch.queues.tolist()]
    # A message that was retried by POP names the retry topic of its group and topic, or nothing.
    names = [_popped(topic) if origin is None else origin for origin, topic in zip(origins, own, strict=True)]
    return pa.array(names, kind)


def _popped(topic: str) -> str:
    """The topic of a retry topic of POP, ``%RETRY%GROUP+TOPIC``; another topic is its own."""
    if topic.startswith(RETRY_PREFIX) and "+" in topic:
        return topic.partition("+")[2]
    return topic
