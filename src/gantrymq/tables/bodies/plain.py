"""Bodies as they are: bytes, or text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from gantrymq.tables.bodies.body_format import DecodedBodies


@dataclass(frozen=True, slots=True)
class RawBodies:
    """The column ``body`` has the bytes."""

    @property
    def schema(self) -> pa.Schema:
        """One column of bytes."""
        return pa.schema([pa.field("body", pa.binary(), nullable=False)])

    @property
    def version(self) -> str:
        """Bytes have no schema."""
        return ""

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """The bodies; every one fits."""
        return DecodedBodies(pa.RecordBatch.from_arrays([bodies], schema=self.schema), [None] * len(bodies))

    def remembered(self) -> dict[str, str]:
        """What the table keeps."""
        return {"body": "raw"}


@dataclass(frozen=True, slots=True)
class TextBodies:
    """The column ``body`` has the text. A body that is not UTF-8 does not fit."""

    @property
    def schema(self) -> pa.Schema:
        """One column of text."""
        return pa.schema([pa.field("body", pa.string(), nullable=False)])

    @property
    def version(self) -> str:
        """The name of the only schema."""
        return "text"

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """Validate and convert. All bodies of a run are tried at once, then each, if one of them does not fit."""
        reasons: list[str | None] = [None] * len(bodies)
        try:
            texts = bodies.cast(pa.string())
        except pa.ArrowInvalid:
            texts, reasons = _each(bodies)
        schema = pa.schema([pa.field("body", pa.string())])
        return DecodedBodies(pa.RecordBatch.from_arrays([texts], schema=schema), reasons)

    def remembered(self) -> dict[str, str]:
        """What the table keeps."""
        return {"body": "text"}


def _each(bodies: pa.BinaryArray) -> tuple[pa.Array, list[str | None]]:
    texts: list[str | None] = []
    reasons: list[str | None] = []
    for body in bodies.to_pylist():
        try:
            texts.append(body.decode("utf-8"))
            reasons.append(None)
        except UnicodeDecodeError as error:
            texts.append(None)
            reasons.append(f"body: not UTF-8 at byte {error.start}")
    return pa.array(texts, pa.string()), reasons


PLAIN: Mapping[str, RawBodies | TextBodies] = {"raw": RawBodies(), "text": TextBodies()}
"""The formats without a schema, by the values of ``--body``."""
