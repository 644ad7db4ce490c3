#!/usr/bin/env bash
# delta-rs commits the removal of a file that is not in the table any more.
source "$(dirname "$0")/common/harness.bash"
python3 -m venv env
HOME=$HOME_OF_CALLER env/bin/pip install --quiet 'deltalake==1.6.6' 'pyarrow==26.0.1' > pip.log

cat > exchange.py <<'PYTHON'
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.transaction import AddAction, RemoveAction

pinned = CommitProperties(max_commit_retries=0)
write_deltalake("table", pa.table({"v": [1, 2]}))
ours = DeltaTable("table")
[old] = pa.table(ours.get_add_actions(flatten=True)).to_pylist()
# Another program rewrites the file; then this one exchanges it for a file with the same rows.
write_deltalake("table", pa.table({"v": [1, 2]}), mode="overwrite")
pq.write_table(pa.table({"v": [1, 2]}), "table/new.parquet")
now = DeltaTable("table")
size = len(open("table/new.parquet", "rb").read())
now.create_write_transaction(
    [
        AddAction("new.parquet", size, {}, 0, False, '{"numRecords": 2}'),
        RemoveAction(old["path"], False, 0, old["size_bytes"], {}),
    ],
    "append",
    now.schema(),
    [],
    commit_properties=pinned,
)
print("live before", old["path"] in {path.rpartition("/")[2] for path in now.file_uris()})
print("rows", DeltaTable("table").to_pyarrow_table()["v"].to_pylist())
PYTHON
env/bin/python exchange.py > seen 2> exchange.log || { tail -n 5 exchange.log; exit 2; }
report "deltalake 1.6.6, pyarrow 26.0.1" \
    "a commit that removes a file which the version in front of it does not have is refused as a conflict" \
    "DeltaTable.create_write_transaction commits it, so the rows of an exchange are there twice"
expect "live before False
rows [1, 2, 1, 2]" "$(cat seen)"
