#!/usr/bin/env bash
# rocksdict writes a file into a database that it opens for reading only.
source "$(dirname "$0")/common/harness.bash"
python3 -m venv env
HOME=$HOME_OF_CALLER env/bin/pip install --quiet 'rocksdict==0.3.29' > pip.log

cat > read.py <<'PYTHON'
import os

from rocksdict import AccessType, Options, Rdict

written = Rdict("database", options=Options(raw_mode=True))
written[b"key"] = b"value"
written.close()
os.remove("database/rocksdict-config.json")  # a database of RocksDB's own, such as one of RocketMQ's broker, has none
before = set(os.listdir("database"))
read = Rdict("database", options=Options(raw_mode=True), access_type=AccessType.read_only())
print("read", dict(read.items()))
read.close()
print("new files", *sorted(name for name in set(os.listdir("database")) - before if not name.startswith("LOG")))
PYTHON
env/bin/python read.py > seen 2> read.log || { tail -n 5 read.log; exit 2; }
report "rocksdict 0.3.29" \
    "a database that is opened with AccessType.read_only() stays as it is, and may belong to another user" \
    "Rdict(…, access_type=AccessType.read_only()) writes rocksdict-config.json into the directory"
expect "read {b'key': b'value'}
new files rocksdict-config.json" "$(cat seen)"
