#!/usr/bin/env bash
# PyIceberg's batch reader has read whole files, and all files, when the first batch of one is asked for.
source "$(dirname "$0")/common/harness.bash"
python3 -m venv env
HOME=$HOME_OF_CALLER env/bin/pip install --quiet 'pyiceberg[pyarrow,sql-sqlite]==0.12.0' 'pyarrow==26.0.1' > pip.log

cat > read.py <<'PYTHON'
import os
import time

import pyarrow as pa
from pyiceberg.catalog.memory import InMemoryCatalog

FILES, ROWS = 6, 1_000_000
catalog = InMemoryCatalog("finding", warehouse=f"file://{os.getcwd()}/warehouse")
catalog.create_namespace("n")
schema = pa.schema([("v", pa.int64())])
table = catalog.create_table("n.t", schema=schema, properties={"write.parquet.row-group-limit": "100000"})
for number in range(FILES):
    table.append(pa.table({"v": pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())}, schema=schema))

before = pa.total_allocated_bytes()
reader = table.scan().to_arrow_batch_reader()
batch = reader.read_next_batch()
time.sleep(3)
held_bytes = pa.total_allocated_bytes() - before
print("batches of the first file are small:", batch.num_rows <= ROWS // 5)
print("files in memory after the first batch:", held_bytes // (ROWS * 8), "of", FILES)
PYTHON
env/bin/python read.py > seen 2> read.log || { tail -n 5 read.log; exit 2; }
report "pyiceberg 0.12.0, pyarrow 26.0.1" \
    "to_arrow_batch_reader reads one batch at a time, as its docstring says, so memory is that of a batch" \
    "the scan hands every file to a thread that makes a list of all its batches, so the whole table is in memory"
expect "batches of the first file are small: True
files in memory after the first batch: 6 of 6" "$(cat seen)"
