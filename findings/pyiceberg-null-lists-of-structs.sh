#!/usr/bin/env bash
# PyIceberg writes a null list or map of structs as an empty one.
source "$(dirname "$0")/common/harness.bash"
python3 -m venv env
HOME=$HOME_OF_CALLER env/bin/pip install --quiet 'pyiceberg[pyarrow,sql-sqlite]==0.12.0' 'pyarrow==26.0.1' > pip.log

cat > write.py <<'PYTHON'
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.memory import InMemoryCatalog

catalog = InMemoryCatalog("finding", warehouse=f"file://{os.getcwd()}/warehouse")
catalog.create_namespace("n")
item = pa.struct([("x", pa.int32())])
for name, kind, value in (
    ("list_of_int", pa.list_(pa.int32()), [1]),
    ("list_of_struct", pa.list_(item), [{"x": 1}]),
    ("map_of_int", pa.map_(pa.string(), pa.int32()), [("k", 1)]),
    ("map_of_struct", pa.map_(pa.string(), item), [("k", {"x": 1})]),
):
    rows = pa.table({"v": pa.array([value, None], kind)})
    table = catalog.create_table(f"n.{name}", schema=rows.schema)
    table.append(rows)
    [file] = Path("warehouse/n", name, "data").glob("*.parquet")
    print(name, "written None, in the file", pq.read_table(file, partitioning=None)["v"].to_pylist()[1])
PYTHON
env/bin/python write.py > seen 2> write.log || { tail -n 5 write.log; exit 2; }
report "pyiceberg 0.12.0, pyarrow 26.0.1" \
    "a null is a null, whatever the type of the column" \
    "Table.append writes a null of a list or map of structs as an empty list or map, without a warning"
expect "list_of_int written None, in the file None
list_of_struct written None, in the file []
map_of_int written None, in the file None
map_of_struct written None, in the file []" "$(cat seen)"
