#!/usr/bin/env bash
# deltalake's Arrow dataset finds no row by a column for which a file has no statistics.
source "$(dirname "$0")/common/harness.bash"
python3 -m venv env
HOME=$HOME_OF_CALLER env/bin/pip install --quiet 'deltalake==1.6.6' 'pyarrow==26.0.1' > pip.log

cat > filter.py <<'PYTHON'
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder, write_deltalake

# Statistics are optional in Delta: the first file has those of one column.
write_deltalake("table", pa.table({"n": [1], "s": ["a"]}), configuration={"delta.dataSkippingStatsColumns": "n"})
DeltaTable("table").alter.set_table_properties({"delta.dataSkippingStatsColumns": "n,s"})
table = DeltaTable("table")
print("filter of Arrow", table.to_pyarrow_table(filters=[("s", "=", "a")]).num_rows)
print("query", QueryBuilder().register("t", table).execute("SELECT * FROM t WHERE s = 'a'").read_all().num_rows)
# A column that is added later.
write_deltalake("grown", pa.table({"n": [1]}))
write_deltalake("grown", pa.table({"n": [2], "s": ["a"]}), mode="append", schema_mode="merge")
print("is null", DeltaTable("grown").to_pyarrow_dataset().to_table(filter=ds.field("s").is_null()).num_rows)
PYTHON
env/bin/python filter.py > seen 2> filter.log || { tail -n 5 filter.log; exit 2; }
report "deltalake 1.6.6, pyarrow 26.0.1" \
    "a file without statistics of a column is read for each condition on the column" \
    "DeltaTable.to_pyarrow_dataset takes a missing bound for null and skips the file; QueryBuilder reads it"
expect "filter of Arrow 0
query 1
is null 0" "$(cat seen)"
