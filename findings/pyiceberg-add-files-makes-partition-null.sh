#!/usr/bin/env bash
# PyIceberg adds the files of a Hive table with null as the value of their partition.
source "$(dirname "$0")/common/harness.bash"
python3 -m venv env
HOME=$HOME_OF_CALLER env/bin/pip install --quiet 'pyiceberg[pyarrow,sql-sqlite]==0.12.0' 'pyarrow==26.0.1' > pip.log

cat > add.py <<'PYTHON'
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.memory import InMemoryCatalog

files = [Path(f"hive/country={country}/part.parquet").absolute() for country in ("de", "fr")]
for number, file in enumerate(files):
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"number": [number]}), file)  # Hive keeps the partition in the path alone
print("pyarrow reads", pq.read_table("hive").sort_by("number").to_pylist())

catalog = InMemoryCatalog("finding", warehouse=f"file://{os.getcwd()}/warehouse")
catalog.create_namespace("n")
table = catalog.create_table("n.t", pa.schema([("number", pa.int64()), ("country", pa.string())]))
with table.update_spec() as update:
    update.add_identity("country")
table.add_files([str(file) for file in files])
print("pyiceberg reads", table.scan().to_arrow().sort_by("number").to_pylist())
print("in the manifest", sorted(str(task.file.partition[0]) for task in table.scan().plan_files()))
print("rows of country de:", len(table.scan(row_filter="country == 'de'").to_arrow()))
PYTHON
env/bin/python add.py > seen 2> add.log || { tail -n 5 add.log; exit 2; }
report "pyiceberg 0.12.0, pyarrow 26.0.1" \
    "add_files takes the partition of a file from its path, as Hive and Spark do, or refuses the file" \
    "a file that lacks the column of an identity partition is added with null as its value, without a warning"
expect "pyarrow reads [{'number': 0, 'country': 'de'}, {'number': 1, 'country': 'fr'}]
pyiceberg reads [{'number': 0, 'country': None}, {'number': 1, 'country': None}]
in the manifest ['None', 'None']
rows of country de: 0" "$(cat seen)"
