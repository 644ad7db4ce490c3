"""Bad input: one clear line on stderr, the right exit code, no traceback, and nothing stored is changed."""

from __future__ import annotations

import errno
import os
import random
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from cli_cases import COMMAND, Outcome, Run, start, tree

from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from store_cases import open_store

EMPTY = sha256(b"").hexdigest()
READING = (["info"], ["dump"], ["log"], ["query", "t", "k"], ["at", "t", "0", "1"], ["recover", "--dry-run"])
SMALL = ("--set", "mappedFileSizeCommitLog=65536", "--set", "maxHashSlotNum=100", "--set", "maxIndexNum=400")


def command(words: list[str], store: Path, *more: str) -> list[object]:
    return ["store", words[0], store, *words[1:], *more]


@pytest.mark.parametrize(
    ("words", "limit"),
    [(["info"], "-n"), (["recover"], "-n"), (["dump"], "-Sn"), (["export", "OUT"], "-Sn"), (["rebuild"], "-Sn")],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_store_with_more_queues_than_file_limit_is_read(tmp_path: Path, words: list[str], limit: str) -> None:
    """``-n`` holds for good; ``-Sn`` is what most systems begin with, and a process may ask for more."""
    with open_store(RealFileSystem(), path=tmp_path / "store") as store:
        store.put_batch([Message(f"topic-{number}", b"x") for number in range(200)])
    words = [word.replace("OUT", str(tmp_path / "out")) for word in words]
    limited = ["sh", "-c", f'ulimit {limit} 128; exec "$@"', "sh", *COMMAND, *command(words, tmp_path / "store")]
    ended = subprocess.run([str(one) for one in limited], check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


def content(store: Path) -> dict[str, tuple[int, str]]:
    """All that holds anything, but the lock file, which a command that was refused has tried to lock."""
    return {name: entry for name, entry in tree(store).items() if name != "lock" and entry[1] not in ("", EMPTY)}


def assert_refused(outcome: Outcome, code: int, *parts: str) -> None:
    assert (outcome.code, outcome.out) == (code, b""), outcome.err
    assert outcome.err.startswith("gantrymq: ")
    assert outcome.err.count("\n") == 1
    for part in parts:
        assert part in outcome.err
    assert "fault of gantrymq" not in outcome.err


@pytest.fixture
def store(gantrymq: Run, tmp_path: Path) -> Path:
    path = tmp_path / "store"
    given = tmp_path / "in.jsonl"
    given.write_text("".join(f'{{"topic":"t","body":"{"x" * i}","keys":["k{i % 7}"]}}\n' for i in range(300)))
    assert gantrymq("store", "ingest", path, given, *SMALL).code == 0
    return path


@pytest.mark.parametrize("words", [*READING, ["recover"], ["ingest"]], ids=" ".join)
def test_directory_without_store_is_refused(gantrymq: Run, tmp_path: Path, words: list[str]) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_bytes(b"x" * 1000)
    folder.mkdir()
    (folder / "photo.jpg").write_bytes(b"y" * 1000)
    given = tmp_path / "in.jsonl"
    given.write_text('{"topic":"t","body":"b"}\n')
    before = tree(tmp_path)
    more = [str(given)] if words == ["ingest"] else []
    assert_refused(gantrymq(*command(words, folder, *more)), 3, str(folder), "not a RocketMQ store")
    assert_refused(gantrymq(*command(words, file, *more)), 3, str(file))
    if words != ["ingest"]:
        assert_refused(gantrymq(*command(words, tmp_path / "missing")), 3, "does not exist")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("words", [*READING, ["recover"]], ids=" ".join)
@pytest.mark.parametrize("part", ["commitlog/00000000000000000000", "consumequeue/t/0/00000000000000000000"])
def test_log_file_of_wrong_size_is_named(gantrymq: Run, store: Path, words: list[str], part: str) -> None:
    if words == ["log"] and part.startswith("consumequeue"):
        pytest.skip("log looks at the commit log alone")
    os.truncate(store / part, 100_000)
    before = content(store)
    given = ("--set", "mappedFileSizeConsumeQueue=6000000", "--set", "mappedFileSizeCommitLog=65536")
    outcome = gantrymq(*command(words, store, *given))
    assert content(store) == before
    if words[0] == "recover":
        assert_refused(outcome, 3, str(store / part), "100000")
        return
    assert outcome.code == 1
    assert outcome.out
    assert f"{store / part}: is 100000 bytes long" in outcome.err


def test_index_file_of_wrong_size_is_named(gantrymq: Run, store: Path) -> None:
    (index,) = (store / "index").iterdir()
    os.truncate(index, 8_441)
    found = gantrymq("store", "query", store, "t", "k1", *SMALL, "--json").lines
    assert len(found) > 1
    planned = gantrymq("store", "recover", store, "--dry-run", *SMALL, "--json").lines[0]
    assert planned["indexFilesDropped"] == [f"index/{index.name}"]
    assert gantrymq("store", "recover", store, *SMALL, "--json").lines[0]["indexFilesDropped"] == [
        f"index/{index.name}"
    ]
    assert gantrymq("store", "query", store, "t", "k1", "--json").lines == found
    assert gantrymq("store", "verify", store).code == 0


def test_ambiguous_index_geometry_is_named(gantrymq: Run, store: Path) -> None:
    """Nothing is in it, so nothing proves where its slots end."""
    (index,) = (store / "index").iterdir()
    index.write_bytes(bytes(index.stat().st_size))
    before = content(store)
    for words in (["query", "t", "k1"], ["recover"], ["recover", "--dry-run"]):
        refused = gantrymq(*command(words, store))
        assert_refused(refused, 3, "--set maxHashSlotNum", "--set maxIndexNum")
    assert content(store) == before
    assert gantrymq("store", "query", store, "t", "k1", *SMALL).code == 0
    assert gantrymq("store", "info", store).code == 0


def test_store_in_use_is_refused(gantrymq: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with start("store", "ingest", store, "--json", *SMALL, bufsize=0) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b'{"topic":"t","body":"b","keys":["k"]}\n')
        child.stdout.readline()
        before = content(store)
        for words in (["recover"], ["ingest", os.devnull]):
            assert_refused(gantrymq(*command(words, store)), 3, str(store), "open in another process")
        for words in READING:
            assert gantrymq(*command(words, store)).code == 0
        assert content(store).keys() >= before.keys()
        child.communicate(timeout=60)
    assert child.returncode == 0


INT, LONG = str(1 << 31), str(1 << 63)  # the first that is no int or long of Java's

USAGE_ERRORS = [
    (["nothing"], "nothing"),
    (["store", "nothing"], "nothing"),
    (["store", "info"], "STORE"),
    (["store", "info", "x", "--nothing"], "--nothing"),
    (["store", "dump", "x", "--queue", "one"], "--queue"),
    (["store", "dump", "x", "--max", "-1"], "--max"),
    (["store", "query", "x", "t"], "KEY"),
    (["store", "at", "x", "t", "0", "yesterday"], "TIMESTAMP_MS"),
    (["store", "at", "x", "t", "0", LONG], "TIMESTAMP_MS"),
    (["store", "at", "x", "t", INT, "0"], "QUEUE"),
    (["store", "query", "x", "t", "k", "--max", LONG], "--max"),
    (["store", "query", "x", "t", "k", "--begin", LONG], "--begin"),
    (["store", "query", "x", "t", "k", "--end", LONG], "--end"),
    (["store", "dump", "x", "--queue", INT], "--queue"),
    (["store", "dump", "x", "--from", LONG], "--from"),
    (["store", "dump", "x", "--max", LONG], "--max"),
    (["store", "log", "x", "--from", LONG], "--from"),
    (["store", "export", "x", "y", "--queue", INT], "--queue"),
    (["store", "export", "x", "y", "--topic", "t", "--queue", "0", "--from", LONG], "--from"),
    (["store", "export", "x", "y", "--topic", "t", "--queue", "0", "--to", LONG], "--to"),
    (["store", "export", "x", "y", "--begin", LONG], "--begin"),
    (["store", "export", "x", "y", "--end", "9" * 5000], "--end"),
    (["store", "info", "x", "-c", "missing.conf"], "missing.conf"),
    (["store", "info", "x", "--set"], "--set"),
    (["store", "info", "x", "--set", "flushDiskType"], "flushDiskType"),
    (["store", "info", "x", "--set", "flushDiskTyp=SYNC_FLUSH"], "flushDiskType"),
    (["store", "info", "x", "--set", "flushDiskType=SOMETIMES"], "ASYNC_FLUSH"),
    (["store", "info", "x", "--set", "mappedFileSizeCommitLog=many"], "whole number"),
    (["store", "ingest", "x", os.devnull, "--set", "brokerIP1=no.invalid"], "host name"),
    (["store", "ingest", "x", "missing.jsonl"], "missing.jsonl"),
]


@pytest.mark.parametrize(("arguments", "part"), USAGE_ERRORS, ids=lambda value: value if isinstance(value, str) else "")
def test_wrong_usage_exits_2_and_creates_nothing(
    gantrymq: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(gantrymq(*arguments), 2, part)
    assert list(tmp_path.iterdir()) == []


def test_largest_numbers_are_accepted(gantrymq: Run, store: Path, tmp_path: Path) -> None:
    last_int, last_long = (1 << 31) - 1, (1 << 63) - 1
    assert len(gantrymq("store", "query", store, "t", "k1", "--max", last_long, "--json", *SMALL).lines) == 43
    assert gantrymq("store", "query", store, "t", "k1", "--begin", last_long, "--end", last_long, *SMALL).code == 0
    assert gantrymq("store", "at", store, "t", 0, last_long, "--json").lines[0]["queueOffset"] == 300
    assert gantrymq("store", "at", store, "t", last_int, last_long, "--json").lines[0]["queueOffset"] == 0
    for words in (["dump", "--queue", last_int], ["dump", "--from", last_long], ["dump", "--max", last_long]):
        assert gantrymq("store", words[0], store, *words[1:], "--json").code == 0
    assert_refused(gantrymq("store", "log", store, "--from", last_long, "--json"), 3, "outside of the log")
    of_queue = ("--topic", "t", "--queue", 0, "--from", last_long - 1, "--to", last_long)
    times = ("--begin", last_long - 1, "--end", last_long)
    assert gantrymq("store", "export", store, tmp_path / "out", *of_queue, *times).code == 0


def test_non_utf_8_names_are_shown_with_escapes(
    gantrymq: Run, process: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    odd = tmp_path / "stor\udce9"  # the byte e9 alone
    store.rename(odd)
    (odd / "gar\udce7on").touch()
    shutil.copytree(odd / "consumequeue/t", odd / "consumequeue/t\udcea")
    found = process("store", "verify", odd, "--json")
    assert {line["path"] for line in found.lines if line["kind"] == "foreign-file"} == {r"gar\xe7on"}
    assert found.lines[-1]["store"] == rf"{tmp_path}/stor\xe9"
    (tmp_path / "in.jsonl").write_text('{"topic":"t","body":"b"}\n')
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8:strict")  # as where the locale is not C
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(errors=errors)  # as they are in a process of ours, which only one command gets here
    writing = (["export", "out\udce9"], ["salvage", "new\udce9"], ["rebuild"], ["recover"], ["ingest", "in.jsonl"])
    for words in (*READING, ["verify"], ["at", "t\udcea", "0", "0"], *writing):
        for more in (["--json"], []):
            for out in tmp_path.glob("[on]*\udce9"):
                shutil.rmtree(out)
            run = process if words == ["verify"] else gantrymq
            outcome = run(*command(words, odd, *SMALL, *more))
            is_refused = outcome.code == 3 and "holds the entries of queue 0 of t" in outcome.err  # until the rebuild
            assert outcome.code in (0, 1) or is_refused, (words, outcome.err)
            assert str(tmp_path).encode() not in outcome.out or (rb"stor\\xe9" if more else b"stor\xe9") in outcome.out


@pytest.mark.parametrize(("encoding", "shown"), [("latin-1", b"t\xe4\\u20ac\xe9"), ("ascii", b"t\\xe4\\u20ac\xe9")])
def test_paths_are_printed_in_any_encoding_of_stdout(
    process: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, shown: bytes
) -> None:
    with open_store(RealFileSystem(), tmp_path / "tä€\udce9") as made:
        made.put(Message("t", "€".encode()))
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    for words in (["dump"], ["recover", "--dry-run"]):
        outcome = process(*command(words, tmp_path / "tä€\udce9"))
        assert (outcome.code, outcome.err) == (0, "")
        assert tmp_path.as_posix().encode() + b"/" + shown in outcome.out


def test_text_encoding_of_environment_is_used(process: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(path=tmp_path / "odd") as made:
        made.put(Message("t", "ü".encode()))
    for errors, shown in (("replace", b"?"), ("backslashreplace", rb"\xfc")):
        monkeypatch.setenv("PYTHONIOENCODING", f"ascii:{errors}")
        outcome = process("store", "dump", tmp_path / "odd", "--topic", "t")
        assert (outcome.code, shown in outcome.out) == (0, True), outcome.err


def test_missing_permission_is_one_line(gantrymq: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For root no file is forbidden, so the operating system's answer is played."""
    forbidden = str(max((store / "commitlog").iterdir()))
    real_open = os.open

    def refuse(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path) == forbidden:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real_open(path, *arguments, **options)

    before = content(store)
    monkeypatch.setattr(os, "open", refuse)
    for words in (*READING, ["recover"]):
        if words != ["log"]:  # which has printed the first file's records when it comes to the last
            assert_refused(gantrymq(*command(words, store)), 3, forbidden, "Permission denied")
    log = gantrymq("store", "log", store)
    assert (log.code, log.err) == (3, f"gantrymq: {forbidden}: Permission denied\n")
    monkeypatch.undo()
    after = content(store)
    assert {name for name in after if after[name] != before.get(name)} <= {"abort", "checkpoint"}
    assert gantrymq("store", "recover", store).code == 0


@pytest.mark.parametrize(
    "line",
    [
        *(f"store {words[0]} LOCKED {' '.join(words[1:])}" for words in (*READING, ["recover"], ["verify"])),
        "store rebuild LOCKED --engine local",
        f"store ingest LOCKED {os.devnull}",
        "store salvage STORE LOCKED",
        "store export STORE LOCKED",
        "serve --store LOCKED --namesrv-port 0 --listen-port 0",
    ],
)
def test_unreadable_directory_is_one_line(
    gantrymq: Run, golden_copy: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """No error of usage, whoever is asked about it; played like the above."""
    places = {"STORE": golden_copy("direct-mixed"), "LOCKED": tmp_path / "locked"}
    shutil.copytree(places["STORE"], places["LOCKED"])

    def refusing(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def refused(path: Any = ".") -> Any:
            if str(path) == str(places["LOCKED"]):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return function(path)

        return refused

    monkeypatch.setattr(os, "access", lambda path, *_, **__: str(path) != str(places["LOCKED"]))
    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    outcome = gantrymq(*(places.get(word, word) for word in line.split()))
    assert_refused(outcome, 3, f"{places['LOCKED']}: Permission denied")


@pytest.mark.parametrize(
    ("line", "room_bytes", "why"),
    [
        (f"store ingest OUT {' '.join(SMALL)}", 50_000, "no room on the disk"),
        ("store export STORE OUT", 1_000, "no room on the disk"),
        ("table land STORE OUT --topics .* --once --format parquet", 1_000, "no room on the disk"),
        ("table land STORE OUT --topics .* --once", 1_000, "cannot be created: Generic LocalFileSystem error"),
    ],
)
def test_full_disk_is_one_line(
    golden_copy: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    room_bytes: int,
    why: str,
) -> None:
    """A limit on the size of files stands for the disk. deltalake 1.6.6 colours the causes of its OSError."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # no module is cut
    places = {"STORE": golden_copy("direct-mixed"), "OUT": tmp_path / "out"}

    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, room_bytes))

    words = [places.get(word, word) for word in line.split()]
    with start(*words, "--json", preexec_fn=little_room) as child:
        out, err = child.communicate(b'{"topic":"t","body":"b","keys":["k"]}\n', timeout=60)
    assert_refused(Outcome(child.returncode, out, err.decode()), 3, why)
    assert "31m" not in err.decode()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no disk that is always full")
@pytest.mark.parametrize("words", [["info"], ["recover"], ["recover", "--json"]], ids=" ".join)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_without_space_is_one_line(
    golden_copy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, words: list[str], unbuffered: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with (
        open("/dev/full", "wb") as full,
        start(*command(words, golden_copy("direct-mixed")), stdout=full) as child,
    ):
        _, err = child.communicate(timeout=60)
    assert_refused(Outcome(child.returncode, b"", err.decode()), 3, "No space left on device")


def _flip(data: bytearray, rng: random.Random) -> bytearray:
    for _ in range(rng.choice([1, 1, 5, 200])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


DAMAGES: dict[str, Callable[[bytearray, random.Random], bytes | bytearray]] = {
    "flipped": _flip,
    "zeroed": lambda data, rng: data[: rng.randrange(len(data))].ljust(len(data), b"\0"),
    "foreign": lambda data, rng: rng.randbytes(len(data)),
    "ones": lambda data, rng: b"\xff" * len(data),
    "shifted": lambda data, rng: data[rng.randrange(1, 40) :].ljust(len(data), b"\0"),
    "truncated": lambda data, rng: data[: rng.randrange(len(data))],
    "empty": lambda data, rng: b"",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index", "checkpoint", "abort"])
def test_damaged_store_causes_no_internal_error(
    gantrymq: Run, golden_copy: Callable[[str], Path], rng: random.Random, part: str, damage: str
) -> None:
    store = golden_copy(rng.choice(["direct-killed", "direct-mixed", "broker-4.9.8"]))
    parts = [store / part, *(store / part).rglob("*")]
    files = sorted(path for path in parts if path.is_file() and path.stat().st_size)
    for path in rng.sample(files, min(len(files), 2)):
        path.write_bytes(DAMAGES[damage](bytearray(path.read_bytes()), rng))
    before = content(store)
    for words in READING:
        outcome = gantrymq(*command(words, store, "--json"))
        assert outcome.code in (0, 1, 3), outcome.err
        assert "fault of gantrymq" not in outcome.err
        assert outcome.err.count("\n") == (1 if outcome.code == 3 else outcome.err.count("gantrymq: warning: "))
    assert content(store) == before
    recovered = gantrymq("store", "recover", store, "--json")
    assert "fault of gantrymq" not in recovered.err
    if recovered.code == 3:
        assert content(store) == before
    else:
        planned = recovered.lines[0]["maxPhyOffset"]
        assert gantrymq("store", "dump", store, "--json").lines[0]["maxPhyOffset"] == planned


@pytest.mark.parametrize("closed", ["2>&-", ">&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", [["info"], ["dump", "--json"], ["verify"]], ids=" ".join)
def test_command_with_closed_standard_streams_ends_cleanly(store: Path, words: list[str], closed: str) -> None:
    """As under a service manager that gives none: what would be said is said to nobody, and the work is done."""
    line = f"exec {shlex.join([*COMMAND, *map(str, command(words, store))])} {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) is (closed == "2>&-")


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-"])
def test_error_with_closed_stderr_keeps_exit_code(tmp_path: Path, closed: str) -> None:
    line = f"exec {shlex.join([*COMMAND, 'store', 'info', str(tmp_path)])} {closed}"
    assert subprocess.run(["sh", "-c", line], capture_output=True, check=False).returncode == 3


def test_log_in_other_directory_is_found_by_broker_conf(gantrymq: Run, store: Path, tmp_path: Path) -> None:
    (store / "commitlog").rename(tmp_path / "log")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store}\nstorePathCommitLog={tmp_path / 'log'}\nstorePathIndex=/elsewhere\n")
    before = content(store)
    for words in (["recover"], ["recover", "--dry-run"], ["rebuild"]):
        assert_refused(gantrymq(*command(words, store)), 3, str(store / "commitlog"), "storePathCommitLog")
    assert content(store) == before
    found = gantrymq("store", "info", store, "--json")
    assert (found.code, found.lines[0]["messages"]) == (1, 300)
    assert [problem["path"] for problem in found.lines[0]["problems"]] == [str(store / "commitlog")]
    recovered = gantrymq("store", "recover", store, "-c", conf, "--json")
    assert (recovered.code, recovered.lines[0]["queueUnitsCut"]) == (0, 0)
    assert "storePathIndex has no effect" in recovered.err
    for words in (["info"], ["dump"], ["verify"], ["log"], ["rebuild"]):
        assert gantrymq(*command(words, store, "-c", conf)).code == 0
    assert (tmp_path / "log").exists()
    assert not (store / "commitlog").exists()
