"""A golden store that we recovered says to the real RocketMQ what it said before."""

import json
from pathlib import Path

import pytest

from gantrymq.store.message_store import MessageStore
from golden_stores import NAMES, unpack

from .java import JavaStore

pytestmark = pytest.mark.interop

ALL_IS_READ = {"lost-queues-many-files": "expected-all.jsonl"}


@pytest.mark.parametrize("name", NAMES)
def test_java_reads_what_we_recovered(tmp_path: Path, name: str) -> None:
    golden = unpack(name, tmp_path)
    expected = [
        json.loads(line) for line in (golden / ALL_IS_READ.get(name, "expected.jsonl")).read_text().splitlines()
    ]
    MessageStore.open(golden / "store", housekeeping=False).close()
    settings = json.loads((golden / "about.json").read_text())["config"]
    assert JavaStore(golden / "store", settings).dump(halt=True) == expected
