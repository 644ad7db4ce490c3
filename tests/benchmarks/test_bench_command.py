"""``python -m benchmarks.race`` as a user calls it: what it refuses, what it leaves when it is ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.race import process, report
from benchmarks.race.__main__ import one_sided
from benchmarks.race.process import JavaSide
from benchmarks.race.race import OURS, Outcome, Row
from benchmarks.race.result import Result

COMMAND = [sys.executable, "-m", "benchmarks.race"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuchrace"], "no race's name holds 'nosuchrace'; --list names them all"),
        (["put", "--growth", "0"], "'0' is no list of numbers like 1,2,10"),
        (["put", "--growth", "1,x"], "'1,x' is no list of numbers like 1,2,10"),
        (["put", "--scale", "nan"], "nan is no amount of work"),
        (["put", "--scale", "inf"], "inf is no amount of work"),
        (["put", "--java-jar", "/nowhere.jar"], "/nowhere.jar is not there; `make interop`"),
    ],
)
def test_unknown_argument_is_reported_before_races(words: list[str], said: str) -> None:
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"), [(None, "No such file or directory"), ("[]", "Expected `object`, got `array`")]
)
def test_unreadable_ratios_file_is_reported_before_first_race(tmp_path: Path, text: str | None, said: str) -> None:
    against, out = tmp_path / "ratios.json", tmp_path / "out"
    if text is not None:
        against.write_text(text)
    words = [*COMMAND, "put", "--ours-only", "--against", str(against), "--out", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"race: argument --against: {against}: {said}")
    assert not out.exists()


@pytest.mark.parametrize(
    ("option", "named", "said"),
    [("--out", "file/out", "Not a directory"), ("--accept", "nowhere/a.json", "No such file or directory")],
)
def test_unwritable_output_is_named_before_first_race(tmp_path: Path, option: str, named: str, said: str) -> None:
    (tmp_path / "file").touch()
    words = f"put --ours-only --scale 0.001 --rounds 1 --out {tmp_path}/out {option} {tmp_path}/{named}".split()
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"race: {tmp_path / named}: {said}\n"


def test_missing_rocketmq_is_named_before_and_below_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(process, "_CHECKOUT_JAR", tmp_path / "interop.jar")
    said = f"no RocketMQ to race against: {tmp_path}/interop.jar is not there; `make interop` builds it"
    assert one_sided(None, ours_only=False).startswith(said)
    assert capsys.readouterr().err.startswith(f"race: warning: {said}")
    outcomes = [Outcome(Row("put", "perSecond", "messages/s"), {OURS: [1.0]})]
    Result({"oneSided": said, "limits": {}}, outcomes).print()
    assert capsys.readouterr().out.count(said) == 1
    described = {"when": "now", "commit": "0", "scale": 1, "rounds": 1, "oneSided": said}
    assert report.markdown(described, outcomes, []).count(said) == 1


def test_incomplete_java_build_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jar alone starts nothing: its libraries stand beside it."""
    jar = tmp_path / "interop.jar"
    jar.touch()
    assert JavaSide.find(jar) is None
    assert f"{tmp_path}/lib has no RocketMQ beside interop.jar; `make interop`" in JavaSide.missing(jar)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "rocketmq-store-5.5.0.jar").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert JavaSide.missing(jar) == "no java is on the PATH; install Java 17 or newer"


def test_race_filter_ignores_case() -> None:
    done = subprocess.run([*COMMAND, "sync_flush", "--list"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "put SYNC_FLUSH 1024 B, 1 producer"


def test_interrupted_run_leaves_only_its_results(tmp_path: Path) -> None:
    out, scratch = tmp_path / "out", tmp_path / "scratch"
    scratch.mkdir()
    words = [
        *COMMAND,
        "put",
        "--ours-only",
        "--rounds",
        "1",
        "--scale",
        "0.001",
        "--out",
        str(out),
        "--scratch",
        str(scratch),
    ]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "80"}) as process:
        assert process.stderr is not None
        said = process.stderr.readline()  # it comes when the first race is kept; the file is made for a look before
        process.send_signal(signal.SIGTERM)  # a shell's background job does not hear SIGINT
        said += process.communicate()[1]
    assert process.returncode == 143
    assert ": put 100 B, 1 producer: " in said.splitlines()[0], "no line says how far it is"
    assert (out / "bench.json").exists()
    assert f"what was raced until now is kept in {out}" in said
    assert list(scratch.iterdir()) == []
