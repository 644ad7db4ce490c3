"""Turns flights into messages, column by column: the table that the writer puts into the store.

There is one topic for each airport of origin. The key is the flight number, the tag the carrier, the body the row as
compact JSON. UNIQ_KEY is the row's number in the file, so that each row can be found again and a duplicate is detected.
The born timestamp is the scheduled departure: an event of 2013 that is stored today.
"""

from __future__ import annotations

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

QUEUES = 4
TOPIC_PREFIX = "flights-"
UNIQ_PREFIX = "flight-2013-"
_DIGITS = 8


def uniq_key(row: int) -> str:
    """The UNIQ_KEY of a row (counted from 0)."""
    return f"{UNIQ_PREFIX}{row:0{_DIGITS}d}"


def row_of(key: str) -> int:
    """The row of a UNIQ_KEY; -1 if the key is not one of the demo's."""
    digits = key.removeprefix(UNIQ_PREFIX)
    is_ours = len(key) == len(UNIQ_PREFIX) + _DIGITS and len(digits) == _DIGITS
    return int(digits) if is_ours and digits.isascii() and digits.isdigit() else -1


def make_messages(flights: pa.Table) -> pa.Table:
    """One message for each flight, with the columns that ``MessageStore.put_batch`` takes."""
    rows = np.arange(flights.num_rows)
    return pa.table(
        {
            "topic": pc.binary_join_element_wise(TOPIC_PREFIX, flights["origin"], ""),
            "queue_id": pa.array((rows % QUEUES).astype(np.int32)),
            "tags": flights["carrier"],
            "keys": pc.cast(flights["flight"], pa.string()),
            "properties": _uniq_keys(rows),
            "born_timestamp_ms": scheduled_ms(flights),
            "body": _bodies(flights),
        }
    ).combine_chunks()


def scheduled_ms(flights: pa.Table) -> pa.ChunkedArray:
    """The scheduled departures in milliseconds since 1970 (time_hour is the hour in UTC)."""
    hours = pc.strptime(flights["time_hour"], format="%Y-%m-%dT%H:%M:%SZ", unit="ms")
    return pc.add(pc.cast(hours, pa.int64()), pc.multiply(flights["minute"], 60_000))


def _uniq_keys(rows: NDArray[np.int64]) -> pa.Array:
    names = pa.array(["UNIQ_KEY"]).take(pa.array(np.zeros(len(rows), np.int32)))
    values = pa.array([uniq_key(int(row)) for row in rows], pa.string())
    return pa.MapArray.from_arrays(np.arange(len(rows) + 1, dtype=np.int32), names, values)


def _bodies(flights: pa.Table) -> pa.ChunkedArray:
    """Each row as compact JSON, built column by column, which takes a tenth of the time of a loop over the rows."""
    pieces: list[object] = []
    for place, name in enumerate(flights.column_names):
        pieces += [f'{"," if place else "{"}"{name}":', _json_texts(flights[name])]
    return pc.cast(pc.binary_join_element_wise(*pieces, "}", ""), pa.binary())


def _json_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_string(column.type):
        coded = column.combine_chunks().dictionary_encode()
        quoted = pa.array([orjson.dumps(text).decode() for text in coded.dictionary.to_pylist()], pa.string())
        return pc.fill_null(quoted.take(coded.indices), "null")
    return pc.fill_null(pc.cast(column, pa.string()), "null")
