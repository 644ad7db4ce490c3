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
PRINTERS = ("info", "dump", "log", "query", "at")  # whose output is that of a whole store, but for its path
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


def without_compiling(text: str) -> str:
    """What a command says the first time on a machine does not count."""
    return "".join(line for line in text.splitlines(keepends=True) if "compiles its kernels" not in line)


def assert_told(outcome: tuple[int, str], expected: str, path: str, command: str) -> None:
    """Exit code 0 goes with the output of a whole store; else the text says where the disk failed."""
    code, text = outcome[0], without_compiling(outcome[1])
    assert code in (0, 1, 3), (command, code, text)
    assert "fault of gantrymq" not in text, (command, text)
    assert code != 3 or command == "recover", (command, text)  # whose plan refuses what a recovery refuses
    if code == 3:
        [line] = text.splitlines()
        assert path in line, (command, line)
        assert "byte" in line, (command, line)
        assert "`gantrymq store salvage` makes a new store of the rest" in line
    elif code == 1:
        assert path in text or "unreadable" in text, (command, text)
    else:
        assert command not in PRINTERS or text == expected, (command, text)


@pytest.fixture(scope="module")
def expected(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], list[str]]:
    """What the commands print of the whole store, were it elsewhere."""
    outcomes = run_all(whole, tmp_path_factory.mktemp("out"))
    assert {code for code, _ in outcomes} == {0}
    return lambda store: [without_compiling(text).replace(str(whole), str(store)) for _, text in outcomes]


def run_all(store: Path, out: Path) -> list[tuple[int, str]]:
    listed = json.dumps(commands(store, out))
    done = subprocess.run([sys.executable, "-c", _RUN_ALL, listed], capture_output=True, text=True, check=False)
    outcomes = [(code, text) for code, text in map(json.loads, done.stdout.splitlines())]
    assert done.returncode == 0, (done.returncode, READERS[len(outcomes)], done.stderr[-2000:])
    return outcomes


@pytest.mark.parametrize(
    ("kind", "number", "block"),
    [
        ("commitlog", 0, 1),
        pytest.param("commitlog", -1, 1, marks=pytest.mark.slow),
        pytest.param("index", 0, 0, marks=pytest.mark.slow),
        ("index", -1, 1),
        ("consumequeue", 0, 0),
    ],
)
def test_command_at_real_bad_sector_is_not_ended_by_signal(
    whole: Path, expected: Callable[[Path], list[str]], tmp_path: Path, kind: str, number: int, block: int
) -> None:
    path = names_of(whole, kind)[number]
    with bad_blocks(image_of(whole, tmp_path), tmp_path, (path, block)) as store:
        for (command, *_), outcome, text in zip(READERS, run_all(store, tmp_path), expected(store), strict=True):
            assert_told(outcome, text, path, command)


def test_verify_names_unreadable_bytes_of_log(gantrymq: Run, whole: Path, tmp_path: Path) -> None:
    path = names_of(whole, "commitlog")[1]
    with bad_blocks(image_of(whole, tmp_path), tmp_path, (path, 3)) as store:
        outcome = gantrymq("store", "verify", store, "--json")
    [found] = [line for line in outcome.lines if line.get("kind") == "file-unreadable"]
    base = int(Path(path).name)
    assert (found["path"], found["phyOffset"], found["bytes"]) == (path, base + 3 * BLOCK_BYTES, BLOCK_BYTES)
    assert outcome.code == 1


def test_salvage_reports_each_unreadable_range_once(gantrymq: Run, whole: Path, tmp_path: Path) -> None:
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


def test_every_command_reports_unreadable_checkpoint(
    gantrymq: Run, spoil: Break, whole: Path, expected: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    subprocess.run(["cp", "-r", whole, store], check=True)
    spoil(store / "checkpoint", 0, 4096)
    for command, text in zip(commands(store, tmp_path), expected(store), strict=True):
        outcome = gantrymq(*command)
        assert_told((outcome.code, outcome.out.decode() + outcome.err), text, "checkpoint", command[1])


@pytest.mark.parametrize(("number", "block"), [(0, 0), (0, 1), (1, 0)])
def test_verify_names_unreadable_bytes_of_index(
    gantrymq: Run, whole: Path, tmp_path: Path, number: int, block: int
) -> None:
    path = names_of(whole, "index")[number]
    with bad_blocks(image_of(whole, tmp_path), tmp_path, (path, block)) as store:
        outcome = gantrymq("store", "verify", store, "--json")
    [found] = [line for line in outcome.lines if line.get("kind") == "file-unreadable"]
    begin = block * BLOCK_BYTES
    assert (found["path"], found["bytes"]) == (path, BLOCK_BYTES)
    assert f"bytes {begin} to {begin + BLOCK_BYTES}" in found["text"]
    assert outcome.code == 1


Positions = Callable[[int], int]


@pytest.mark.parametrize("at", [lambda size: 0, lambda size: size // 2 // 4096 * 4096], ids=["begin", "middle"])
@pytest.mark.parametrize("kind", ["commitlog", "consumequeue", "index"])
@pytest.mark.parametrize("number", [0, -1], ids=["first", "last"])
def test_every_command_reports_unreadable_bytes(
    gantrymq: Run,
    spoil: Break,
    whole: Path,
    expected: Callable[[Path], list[str]],
    tmp_path: Path,
    kind: str,
    number: int,
    at: Positions,
) -> None:
    path = names_of(whole, kind)[number]
    store = tmp_path / "store"
    subprocess.run(["cp", "-r", whole, store], check=True)
    begin = at((store / path).stat().st_size)
    spoil(store / path, begin, begin + BLOCK_BYTES)
    for command, text in zip(commands(store, tmp_path), expected(store), strict=True):
        outcome = gantrymq(*command)
        assert_told((outcome.code, outcome.out.decode() + outcome.err), text, path, command[1])
