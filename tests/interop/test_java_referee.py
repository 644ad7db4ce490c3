"""The referee is right: what interop/ reads out of the golden stores is what they say RocketMQ reads out of them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from golden_stores import NAMES, unpack

from .java import JavaStore

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not NAMES, reason="no golden stores in tests/golden"),
]


@dataclass(frozen=True)
class Golden:
    """An unpacked golden store."""

    directory: Path

    @property
    def config(self) -> dict[str, Any]:
        return json.loads((self.directory / "about.json").read_text())["config"]

    def store(self, **more: Any) -> JavaStore:
        return JavaStore(self.directory / "store", self.config | more)

    def lines(self, file: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / file).read_text().splitlines()]


@pytest.fixture
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return Golden(unpack(request.param, tmp_path))


@pytest.mark.parametrize("golden", NAMES, indirect=True)
def test_dump_is_what_rocketmq_read(golden: Golden) -> None:
    assert golden.store().dump(halt=True) == golden.lines("expected.jsonl")


@pytest.mark.parametrize("golden", NAMES, indirect=True)
def test_query_is_what_rocketmq_answered(golden: Golden) -> None:
    expected = {
        tuple(question.split("|", 1)): offsets
        for question, offsets in json.loads((golden.directory / "queries.json").read_text()).items()
    }
    assert golden.store().query(expected, halt=True) == expected


@pytest.mark.parametrize("golden", NAMES, indirect=True)
def test_log_is_what_the_files_hold(golden: Golden) -> None:
    assert golden.store().log() == golden.lines("commitlog.jsonl")


@pytest.mark.parametrize("golden", ["lost-queues-many-files"], indirect=True)
def test_all_files_are_read_back_when_asked(golden: Golden) -> None:
    store = golden.store(commitLogRecoverMaxNum=1000)
    assert store.dump(halt=True) == golden.lines("expected-all.jsonl")
