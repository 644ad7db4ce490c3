r"""JSON bodies as columns: fast for the bodies that fit, slow for the others.

1. ``flat_json``: a kernel and Arrow, for objects of texts, numbers and booleans. It makes no object at all.
2. msgspec, for nested objects, and for what the first way leaves: an object with one slot a field, of which Arrow
   makes columns. msgspec takes the last of two equal keys and skips unknown fields, so a body must be *proved*: it has
   as many colons as the columns have keys and colons, and then it has no second key and no unknown field. Other bodies
   are decoded again, into a dict, whose keys and colons are counted. ``\u003a`` is a colon that is not counted, so a
   body with it is not proved.
3. ``strict_json``, for what the others refuse. It decodes by the rules that are told there, or gives the reason.

Arrow validates the UTF-8 of all bodies at once, because msgspec does not read unknown fields.

Thread rule: a format is a value, its decoder is made in each process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gantrymq.tables.bodies import strict_json
from gantrymq.tables.bodies.body_format import DecodedBodies
from gantrymq.tables.bodies.columns import ColumnBuilder, body_bytes, colons
from gantrymq.tables.bodies.errors import MisfitError
from gantrymq.tables.bodies.flat_json import FlatReader
from gantrymq.tables.bodies.shapes import (
    Field,
    ListOf,
    MapOf,
    Scalar,
    ScalarKind,
    Shape,
    StructOf,
    arrow_schema,
    fields_below,
    has_kind,
)

RUN_ROWS = 8_000
TYPED_ROWS = 2_000
"""Rows whose objects are in memory together: more leave the processor's cache, which costs a third of the speed."""
RUN_BYTES = 16 << 20

Check = Callable[[Any], MisfitError | None]
"""Tells why a body does not fit, from its value as msgspec decodes it without a type."""

_Run: TypeAlias = tuple[pa.RecordBatch, list[str | None]]
_PLAIN_KEY = re.compile(r'[^"\\\x00-\x1f]*')
_PLAIN_TYPES: dict[ScalarKind, Any] = {
    ScalarKind.BOOLEAN: bool,
    ScalarKind.FLOAT: float,
    ScalarKind.DOUBLE: float,
    ScalarKind.DECIMAL: msgspec.Raw,
    ScalarKind.JSON: msgspec.Raw,
    ScalarKind.STRING: str,
    ScalarKind.BINARY: str,
    ScalarKind.DATE: str,
    ScalarKind.TIMESTAMP: str,
}


class JsonCodec:
    """Decodes bodies by a schema, whose constraints ``check`` holds."""

    message_name = descriptors = ""

    def __init__(self, struct: StructOf, check: Check | None = None) -> None:
        self.struct = struct
        self._check = check

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """The columns of bodies."""
        return decode_json(self.struct, bodies, self._check)


def decode_json(
    struct: StructOf, bodies: pa.BinaryArray, check: Check | None = None, *, checks_proved: bool = True
) -> DecodedBodies:
    """The columns of bodies.

    ``check`` sees each body that fits the types. Without ``checks_proved`` it sees only bodies with unknown fields or
    nulls.
    """
    decoder = _decoder(struct)
    if not len(bodies):
        return DecodedBodies(pa.RecordBatch.from_pylist([], schema=arrow_schema(struct)), [])
    runs = [decoder.decode(run, check, checks_proved=checks_proved) for run in _runs(bodies, RUN_ROWS)]
    return DecodedBodies(*_joined(runs))


def _joined(runs: list[_Run]) -> _Run:
    """Runs behind one another."""
    if len(runs) == 1:
        return runs[0]
    schema = runs[0][0].schema
    arrays = [pa.concat_arrays([batch.column(index) for batch, _ in runs]) for index in range(len(schema))]
    reasons = [reason for _, run_reasons in runs for reason in run_reasons]
    return batch_of(arrays, schema, len(reasons)), reasons


def batch_of(arrays: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """A batch, which has its rows even without any column."""
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))


def _runs(bodies: pa.BinaryArray, rows: int) -> Iterator[pa.BinaryArray]:
    """Bodies in runs that are bounded in rows and, but for a single body, in bytes."""
    begin = 0
    lengths = pc.binary_length(bodies).fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths, dtype=np.int64)
    while begin < len(bodies):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + RUN_BYTES, "right"))
        end = min(max(end, begin + 1), begin + rows, len(bodies))
        yield bodies.slice(begin, end - begin)
        begin = end


@lru_cache(64)
def _decoder(struct: StructOf) -> _Decoder:
    return _Decoder(struct)


class _Decoder:
    """Decodes the runs of one shape."""

    def __init__(self, struct: StructOf) -> None:
        self._struct = struct
        self._classes: dict[int, type[msgspec.Struct]] = {}
        # msgspec takes no other keys. Bodies with them go the slow way.
        self._has_plain_keys = all(_PLAIN_KEY.fullmatch(field.key) for field in fields_below(struct))
        self._empty = self._make(struct, [None] * len(struct.fields))
        self._keeps_text = has_kind(struct, ScalarKind.JSON)
        self._decode = msgspec.json.Decoder(self._class(struct)).decode
        self._flat = FlatReader(struct) if FlatReader.is_for(struct) else None

    def decode(
        self, bodies: pa.BinaryArray, check: Check | None, *, checks_proved: bool
    ) -> tuple[pa.RecordBatch, list[str | None]]:
        """The columns of one run, and the reasons."""
        bodies = bodies.fill_null(b"") if bodies.null_count else bodies
        takes_all = self._keeps_text or (check is not None and checks_proved)
        if self._flat is None or not _is_utf8(bodies):
            return _joined([self._typed(run, check, takes_all) for run in _runs(bodies, TYPED_ROWS)])
        arrays, is_read = self._flat.read(bodies, accepts_unknown=check is None or takes_all)
        if takes_all:
            is_read &= [
                is_right and not _breaks(check, text)
                for is_right, text in zip(is_read, bodies.to_pylist(), strict=True)
            ]
        read: _Run = (batch_of(arrays, arrow_schema(self._struct), len(bodies)), [None] * len(bodies))
        rest = np.flatnonzero(~is_read)
        if not len(rest):
            return read
        others = _runs(bodies.take(pa.array(rest)), TYPED_ROWS)
        batch, reasons = _joined([read, *(self._typed(run, check, takes_all) for run in others)])
        indices = np.arange(len(bodies))
        indices[rest] = len(bodies) + np.arange(len(rest))
        return batch.take(pa.array(indices)), [reasons[index] for index in indices]

    def _typed(self, bodies: pa.BinaryArray, check: Check | None, takes_all: bool) -> _Run:
        """The columns of bodies by way of objects."""
        texts = bodies.to_pylist()
        objects, slow = self._objects(texts, bodies)
        builder = ColumnBuilder(len(texts), _attributes, weighs=True)
        batch = batch_of(builder.arrays(self._struct, objects), arrow_schema(self._struct), len(texts))
        slow |= builder.misfits.keys()
        unproved = range(len(texts)) if takes_all else self._unproved(bodies, builder)
        reasons: list[str | None] = [None] * len(texts)
        if unproved:
            has_escapes = self._escaped(bodies)
            weights = colons(bodies)
            slow |= {
                row
                for row in unproved
                if row not in slow
                and (has_escapes[row] or not _is_whole(texts[row], int(weights[row])) or _breaks(check, texts[row]))
            }
        return (self._replaced(batch, texts, slow, check, reasons) if slow else batch), reasons

    def _objects(self, texts: Sequence[bytes], bodies: pa.BinaryArray) -> tuple[list[Any], set[int]]:
        """The typed objects, and the rows that have none; these rows have the empty object."""
        if not self._has_plain_keys:
            return [self._empty] * len(texts), set(range(len(texts)))
        if not _is_utf8(bodies):
            texts = [text if _is_utf8(bodies.slice(row, 1)) else b"" for row, text in enumerate(texts)]
        slow: set[int] = set()
        objects: list[Any] = []
        decoded = map(self._decode, texts)
        while len(objects) < len(texts):
            try:
                objects.extend(decoded)  # a body that fails ends this, and the objects before it stay
            except (ValueError, TypeError, RecursionError):
                slow.add(len(objects))
                objects.append(self._empty)
        return objects, slow

    def _unproved(self, bodies: pa.BinaryArray, builder: ColumnBuilder) -> Sequence[int]:
        proved = colons(bodies) == builder.weights
        if proved.all() and not _has_backslash(bodies):
            return ()
        return [int(row) for row in np.flatnonzero(~proved | self._escaped(bodies))]

    @staticmethod
    def _escaped(bodies: pa.BinaryArray) -> Any:
        """Which bodies may have an escaped colon."""
        if not _has_backslash(bodies):
            return np.zeros(len(bodies), bool)
        lower = pc.match_substring(bodies, pattern="\\u003a", ignore_case=False)
        upper = pc.match_substring(bodies, pattern="\\u003A", ignore_case=False)
        return pc.or_(lower, upper).fill_null(True).to_numpy(zero_copy_only=False)

    def _replaced(
        self,
        batch: pa.RecordBatch,
        texts: Sequence[bytes],
        slow: set[int],
        check: Check | None,
        reasons: list[str | None],
    ) -> pa.RecordBatch:
        """The columns with the rows that need the slow way, and nulls for the rows that do not fit."""
        objects: list[Any] = []
        indices: list[int | None] = list(range(len(texts)))
        for row in sorted(slow):
            try:
                objects.append(self._slow(texts[row], check))
                indices[row] = len(texts) + len(objects) - 1
            except MisfitError as error:
                reasons[row], indices[row] = str(error), None
        if objects:
            more = ColumnBuilder(len(objects), _attributes, weighs=True).arrays(self._struct, objects)
            arrays = [pa.concat_arrays(pair) for pair in zip(batch.columns, more, strict=True)]
            batch = batch_of(arrays, batch.schema, len(texts) + len(objects))
        if not batch.num_columns:
            return batch.slice(0, len(texts))
        return batch.take(pa.array(indices, pa.int64()))

    def _slow(self, text: bytes, check: Check | None) -> Any:
        value = strict_json.parse(text)
        made = strict_json.fit(self._struct, value, "", self._make)
        misfit = check(strict_json.plain(value)) if check else None
        if misfit is not None:
            raise misfit
        return made

    def _make(self, struct: StructOf, values: list[Any]) -> Any:
        return self._class(struct)(**{f"f{index}": value for index, value in enumerate(values)})

    def _class(self, struct: StructOf) -> type[msgspec.Struct]:
        """The class of an object, with the slots f0, f1 and so on."""
        if id(struct) not in self._classes:
            slots = [self._slot(index, field) for index, field in enumerate(struct.fields)]
            keys = (
                {f"f{index}": field.key for index, field in enumerate(struct.fields)} if self._has_plain_keys else None
            )
            self._classes[id(struct)] = msgspec.defstruct("Body", slots, rename=keys, kw_only=True, gc=False)
        return self._classes[id(struct)]

    def _slot(self, index: int, field: Field) -> tuple[Any, ...]:
        kind = self._type(field.shape, accepts_null=field.accepts_null)
        return (f"f{index}", kind) if field.is_required else (f"f{index}", kind, None)

    def _type(self, shape: Shape, *, accepts_null: bool) -> Any:
        kind: Any
        match shape:
            case StructOf():
                kind = self._class(shape)
            case ListOf():
                kind = list[self._type(shape.element, accepts_null=shape.accepts_null)]  # type: ignore[misc]
            case MapOf():
                kind = dict[str, self._type(shape.value, accepts_null=shape.accepts_null)]  # type: ignore[misc]
            case Scalar(kind=ScalarKind.INTEGER):
                low, high = shape.bounds
                kind = Annotated[int, msgspec.Meta(ge=low, le=high)]
            case Scalar(kind=ScalarKind.STRING, max_length=int(length)):
                kind = Annotated[str, msgspec.Meta(max_length=length)]
            case _:
                kind = _PLAIN_TYPES[shape.kind]
        return kind if kind is msgspec.Raw or not accepts_null else kind | None


def _attributes(objects: Sequence[Any], index: int, field: Field) -> list[Any]:
    """The values of a slot; an object may be None."""
    try:
        return list(map(attrgetter(f"f{index}"), objects))
    except AttributeError:
        return [getattr(item, f"f{index}", None) for item in objects]


def _is_utf8(bodies: pa.BinaryArray) -> bool:
    try:
        bodies.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _has_backslash(bodies: pa.BinaryArray) -> bool:
    return bool((body_bytes(bodies) == ord("\\")).any())


def _is_whole(text: bytes, colon_count: int) -> bool:
    """Whether a body without escaped colons has no key twice and few levels, from its value and its colons."""
    try:
        level = [msgspec.json.decode(text)]
    except (ValueError, RecursionError):
        return False
    weight = 0
    for _ in range(strict_json.MAX_LEVELS):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is dict:
                weight += len(item)
                for key in item:
                    weight += key.count(":")
                below += item.values()
            elif kind is list:
                below += item
            elif kind is str:
                weight += item.count(":")
        if not below:
            return weight == colon_count
        level = below
    return False


def _breaks(check: Check | None, text: bytes) -> bool:
    return check is not None and check(msgspec.json.decode(text)) is not None
