"""A golden store that we recovered says to the real RocketMQ what it said before."""

import json
from pathlib import Path

import pytest

from gantrymq.config.properties import read_settings
from gantrymq.store.message_store import MessageStore
from golden_stores import NAMES, unpack

from .java import JavaStore

pytestmark = pytest.mark.interop

ALL_IS_READ = {"lost-queues-many-files": "expected-all.jsonl"}


@pytest.mark.parametrize("name", NAMES)
def test_java_reads_what_we_recovered(tmp_path: Path, name: str) -> None:
    golden = unpack(name, tmp_path)
    lines = (golden / ALL_IS_READ.get(name, "expected.jsonl")).read_text("utf-8").splitlines()
    settings = json.loads((golden / "about.json").read_text("utf-8"))["config"]
    reading = read_settings({key: str(value) for key, value in settings.items()})
    MessageStore.open(golden / "store", reading.config, given=reading.given, housekeeping=False).close()
    assert JavaStore(golden / "store", settings).dump(halt=True) == [json.loads(line) for line in lines]
