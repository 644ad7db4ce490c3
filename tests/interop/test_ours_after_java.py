"""Stores that the real RocketMQ wrote open here, whatever ended it; and both go on where the other stopped."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from store_cases import (
    SMALL,
    SMALL_KEYS,
    Line,
    dump,
    fill,
    index_questions,
    kill_while_putting,
    missing_acknowledged,
    open_reader,
    open_store,
)

from .java import JavaStore

pytestmark = pytest.mark.interop

LARGER = replace(SMALL, mapped_file_size_commit_log=65_536)
LARGER_KEYS = SMALL_KEYS | {"mappedFileSizeCommitLog": 65_536, "commitLogRecoverMaxNum": 1000}


def acknowledged(path: Path) -> list[Line]:
    """What Java noted in its file of acknowledgements; the last line may be cut off by the kill."""
    return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def our_dump(path: Path) -> list[Line]:
    with open_reader(path) as reader:
        return dump(reader)


@pytest.mark.parametrize("end", ["clean", pytest.param("halt", marks=pytest.mark.slow), "kill-while-writing"])
def test_messages_acknowledged_by_java_are_in_store(tmp_path: Path, seed: int, end: str) -> None:
    path, acks = tmp_path / "store", tmp_path / "acks"
    java = JavaStore(path, LARGER_KEYS)
    java.write(3000, seed=seed, threads=2, long_topics=True, ack_file=acks, end=end)
    said = acknowledged(acks)
    assert said
    copy = JavaStore(shutil.copytree(path, tmp_path / "copy"), LARGER_KEYS)
    expected = copy.dump(halt=True)
    with open_reader(path, LARGER) as reader:
        assert dump(reader) == expected
        assert missing_acknowledged(said, expected) == []
    with open_store(path=path, config=LARGER):
        pass
    with open_reader(path, LARGER) as reader:
        assert dump(reader) == expected
        answers = java.query(index_questions(expected), halt=True)
        for (topic, key), theirs in answers.items():
            assert reader.query_offsets(topic, key) == theirs, (topic, key)


def test_each_implementation_continues_store_of_other(tmp_path: Path, rng: random.Random) -> None:
    """Java and we write in turns into one store, each ending clean, halted or killed; nothing is ever lost."""
    path, said = tmp_path / "store", list[Line]()
    java = JavaStore(path, SMALL_KEYS | {"commitLogRecoverMaxNum": 1000})
    for turn in range(3):
        acks = tmp_path / f"acks {turn}"
        end = rng.choice(("clean", "halt", "kill-while-writing"))
        java.write(400, seed=rng.randrange(1 << 30), ack_file=acks, end=end, threads=2)
        said += acknowledged(acks)
        lines = our_dump(path)
        assert missing_acknowledged(said, lines) == [], f"after Java's turn {turn}, which ended {end}"
        if rng.random() < 0.5:
            said += kill_while_putting(path, rng.randrange(1, 300), seed=rng.randrange(1 << 30))
        else:
            with open_store(path=path) as store:
                fill(store, 200, rng)
        lines = our_dump(path)
        assert missing_acknowledged(said, lines) == [], f"after our turn {turn}"
    copy = JavaStore(shutil.copytree(path, tmp_path / "copy"), java.settings)
    assert copy.dump(halt=True) == lines


@pytest.mark.parametrize("rule", ["ours", "java's"])
def test_store_recovered_by_either_is_intact_for_other(tmp_path: Path, seed: int, rule: str) -> None:
    """Kill, recover, kill the other, recover: each side's recovery is the other's starting point."""
    path = tmp_path / "store"
    java = JavaStore(path, SMALL_KEYS | {"commitLogRecoverMaxNum": 1000})
    said = kill_while_putting(path, 400, seed=seed)
    if rule == "ours":
        open_store(path=path).close()
    else:
        java.dump()
    assert java.dump(halt=True) == our_dump(path)
    assert missing_acknowledged(said, our_dump(path)) == []
