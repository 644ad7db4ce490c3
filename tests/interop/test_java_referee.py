"""The referee is right: what interop/ reads out of the golden stores is what they say RocketMQ reads out of them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from golden_stores import NAMES, unpack

from .java import JavaStore, Look

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not NAMES, reason="no golden stores in tests/golden"),
]


@dataclass(frozen=True)
class Golden:
    """An unpacked golden store, and what Java says of it."""

    directory: Path
    look: Look

    def lines(self, file: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / file).read_text().splitlines()]


def java(directory: Path, **more: Any) -> JavaStore:
    return JavaStore(directory / "store", json.loads((directory / "about.json").read_text())["config"] | more)


def queries(directory: Path) -> dict[tuple[str, str], list[int]]:
    """The answers that were written down for each (topic, key)."""
    written = json.loads((directory / "queries.json").read_text())
    return {tuple(question.split("|", 1)): offsets for question, offsets in written.items()}


@pytest.fixture(scope="module", params=NAMES)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    directory = unpack(request.param, tmp_path_factory.mktemp("referee"))
    return Golden(directory, java(directory).look(queries(directory), log=True, halt=True))


def test_dump_is_what_rocketmq_read(golden: Golden) -> None:
    assert golden.look.dump == golden.lines("expected.jsonl")


def test_query_is_what_rocketmq_answered(golden: Golden) -> None:
    assert golden.look.answers == queries(golden.directory)


def test_java_log_dump_equals_files(golden: Golden) -> None:
    assert golden.look.log == golden.lines("commitlog.jsonl")


def test_all_files_are_read_back_on_request(tmp_path: Path) -> None:
    directory = unpack("lost-queues-many-files", tmp_path)
    expected = [json.loads(line) for line in (directory / "expected-all.jsonl").read_text().splitlines()]
    assert java(directory, commitLogRecoverMaxNum=1000).dump(halt=True) == expected
