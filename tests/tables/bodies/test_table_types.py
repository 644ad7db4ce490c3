"""Every type of a column exists in Delta and in Iceberg."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
from pyiceberg.catalog.memory import InMemoryCatalog

from gantrymq.tables.bodies import ddl
from gantrymq.tables.bodies.json_bodies import decode_json

_TYPES = ddl.parse(
    "a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f DOUBLE, g DECIMAL(38,10), h STRING, i VARCHAR(3), j BINARY, "
    "k BOOLEAN, l DATE, m TIMESTAMP, n ARRAY<STRUCT<x: INT>>, o MAP<STRING, ARRAY<DOUBLE>>, "
    "p STRUCT<q: STRUCT<r: STRING>>",
    "types",
)
_BODY = (
    b'{"a":1,"b":2,"c":3,"d":4,"e":0.5,"f":0.25,"g":1.5,"h":"h","i":"i","j":"YQ==","k":true,"l":"2026-11-29",'
    b'"m":"2026-11-29T08:30:00.000001Z","n":[{"x":1},null],"o":{"k":[1,null]},"p":{"q":{"r":"s"}}}'
)


def test_row_of_every_type_is_equal_in_delta_and_iceberg(tmp_path: Path) -> None:
    # PyIceberg 0.12 makes an empty list of a null list of structs.
    result = decode_json(_TYPES, pa.array([_BODY, b'{"n":[]}']))
    assert result.reasons == [None, None]
    table = pa.Table.from_batches([result.columns])
    wanted = table.to_pylist()
    deltalake.write_deltalake(tmp_path / "delta", table)
    delta = pa.table(deltalake.DeltaTable(tmp_path / "delta").to_pyarrow_table())
    assert delta.to_pylist() == wanted
    catalog = InMemoryCatalog("test", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("space")
    made = catalog.create_table("space.t", schema=table.schema)
    made.append(table)
    assert made.scan().to_arrow().to_pylist() == wanted
    catalog.close()
