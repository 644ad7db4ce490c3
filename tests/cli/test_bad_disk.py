"""Every command at a bad sector: findings, or one line that names the file and the byte; never a signal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_cases import Run

from bad_disk import BLOCK_BYTES, Break, bad_blocks, break_reads, image_of

MESSAGES = 1200
SIZES = ("mappedFileSizeCommitLog=65536", "mappedFileSizeConsumeQueue=4000", "maxHashSlotNum=500", "maxIndexNum=1000")
READERS = (
    ("info",),
    ("dump",),
    ("log",),
    ("query", "orders", "key-7"),
    ("at", "orders", "0", "1"),
    ("verify",),
    ("recover", "--dry-run"),
    ("salvage", "OUT"),
    ("export", "OUT"),
)
# In one process for all commands: each line of its output is [exit code, what it wrote].
_RUN_ALL = """
import contextlib, io, json, sys
from gantrymq.cli.main import exit_code
for command in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = exit_code(command)
    print(json.dumps([code, said.getvalue()]), flush=True)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with several files of every kind."""
    store = tmp_path_factory.mktemp("whole") / "store"
    lines = [
        json.dumps({"topic": "orders", "queueId": n % 2, "body": f"{n:0150}", "keys": [f"key-{n % 300}"]})
        for n in range(MESSAGES)
    ]
    source = store.parent / "in.jsonl"
    source.write_text("\n".join(lines))
    sizes = [word for pair in SIZES for word in ("--set", pair)]
    done = subprocess.run(
        [sys.executable, "-m", "gantrymq", "store", "ingest", store, source, *sizes], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return store


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Break:
    return break_reads(monkeypatch)


def commands(store: Path, out: Path) -> list[list[str]]:
    return [
        ["store", command, str(store), *(str(out / command) if word == "OUT" else word for word in more)]
        for command, *more in READERS
    ]


def names_of(store: Path, kind: str) -> list[str]:
    return sorted(str(path.relative_to(store)) for path in (store / kind).rglob("*") if path.is_file())


def assert_told(outcome: tuple[int, str], expected: tuple[int, str], path: str, command: str) -> None:
    """What was not touched is as ever; else the exit code says so, and the text where."""
    code, text = outcome
    assert code in (0, 1, 3), (command, code, text)
    assert "fault of gantrymq" not in text, (command, text)
    if code == 3:
        [line] = text.splitlines()
        assert path in line, (command, line)
        assert "byte" in line, (command, line)
    elif code == 1:
        assert path in text or "unreadable" in text, (command, text)
    else:
        assert expected[0] == 0, (command, text)


def run_all(store: Path, out: Path) -> list[tuple[int, str]]:
    listed = json.dumps(commands(store, out))
    done = subprocess.run([sys.executable, "-c", _RUN_ALL, listed], capture_output=True, text=True, check=False)
    outcomes = [(code, text) for code, text in map(json.loads, done.stdout.splitlines())]
    assert done.returncode == 0, (done.returncode, READERS[len(outcomes)], done.stderr[-2000:])
    return outcomes


@pytest.mark.parametrize("number", [0, -1], ids=["first log file", "last log file"])
def test_no_command_ends_by_a_signal_at_a_real_bad_sector_of_the_log(whole: Path, tmp_path: Path, number: int) -> None:
    path = names_of(whole, "commitlog")[number]
    with bad_blocks(image_of(whole, tmp_path), tmp_path, (path, 1)) as store:
        for (command, *_), outcome in zip(READERS, run_all(store, tmp_path), strict=True):
            assert_told(outcome, (0, ""), path, command)


def test_verify_says_which_bytes_of_the_log_cannot_be_read(gantrymq: Run, whole: Path, tmp_path: Path) -> None:
    path = names_of(whole, "commitlog")[1]
    with bad_blocks(image_of(whole, tmp_path), tmp_path, (path, 3)) as store:
        outcome = gantrymq("store", "verify", store, "--json")
    [found] = [line for line in outcome.lines if line.get("kind") == "file-unreadable"]
    base = int(Path(path).name)
    assert (found["path"], found["phyOffset"], found["bytes"]) == (path, base + 3 * BLOCK_BYTES, BLOCK_BYTES)
    assert outcome.code == 1


def test_salvage_says_unreadable_once_for_each_place(gantrymq: Run, whole: Path, tmp_path: Path) -> None:
    path = names_of(whole, "commitlog")[1]
    with bad_blocks(image_of(whole, tmp_path), tmp_path, (path, 3)) as store:
        outcome = gantrymq("store", "salvage", store, tmp_path / "out", "--json")
    base = int(Path(path).name)
    lost = [one for line in outcome.lines for one in line.get("lost", [])]
    assert {one["reason"] for one in lost} == {"unreadable"}
    begin, end = base + 3 * BLOCK_BYTES, base + 4 * BLOCK_BYTES
    assert min(one["phyOffset"] for one in lost) <= begin
    assert max(one["phyOffset"] + one["bytes"] for one in lost) >= end
    assert outcome.code == 1


Positions = Callable[[int], int]


@pytest.mark.parametrize("at", [lambda size: 0, lambda size: size // 2 // 4096 * 4096], ids=["begin", "middle"])
@pytest.mark.parametrize("kind", ["commitlog"])
@pytest.mark.parametrize("number", [0, -1], ids=["first", "last"])
def test_every_command_tells_of_unreadable_bytes(
    gantrymq: Run, spoil: Break, whole: Path, tmp_path: Path, kind: str, number: int, at: Positions
) -> None:
    path = names_of(whole, kind)[number]
    store = tmp_path / "store"
    subprocess.run(["cp", "-r", whole, store], check=True)
    begin = at((store / path).stat().st_size)
    spoil(store / path, begin, begin + BLOCK_BYTES)
    for command in commands(store, tmp_path):
        outcome = gantrymq(*command)
        assert_told((outcome.code, outcome.out.decode() + outcome.err), (0, ""), path, command[1])
