"""What an install without extras says when it is asked for more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from store_cases import numbered, open_store

WITHOUT = "import sys; sys.modules[{module!r}] = None; from gantrymq.cli import run; run()"


@pytest.mark.parametrize(
    ("module", "extra", "code", "arguments"),
    [
        ("pyarrow", "arrow", 3, ["export", "STORE", "OUT"]),
        ("pyarrow", "arrow", 3, ["export", "STORE", "-", "--format", "jsonl"]),
        ("pyspark", "spark", 2, ["verify", "STORE", "--engine", "spark"]),
        ("pyarrow", "spark", 2, ["salvage", "STORE", "OUT", "--engine", "spark"]),
    ],
)
def test_missing_module_prints_line_naming_extra(
    module: str, extra: str, code: int, arguments: list[str], tmp_path: Path
) -> None:
    store, lines = tmp_path / "store", tmp_path / "in.jsonl"
    lines.write_text('{"topic": "t", "body": "b"}\n')
    sizes = ["--set", "mappedFileSizeCommitLog=65536", "--set", "mappedFileSizeConsumeQueue=2000"]
    sizes += ["--set", "maxHashSlotNum=200", "--set", "maxIndexNum=800"]
    made = run_without("pyarrow", ["ingest", str(store), str(lines), *sizes])
    assert made.returncode == 0, made.stderr
    places = {"STORE": str(store), "OUT": str(tmp_path / "out")}
    done = run_without(module, [places.get(word, word) for word in arguments])
    assert done.returncode == code
    assert f"pip install 'gantrymq[{extra}]'\n" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_many_messages_are_stored_without_pyarrow(tmp_path: Path) -> None:
    """A small batch is put message by message; a large one becomes columns, for which Arrow is used if it is there."""
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"topic": "t", "body": "b"}\n' * 400)
    sizes = ["--set", "mappedFileSizeCommitLog=65536", "--set", "mappedFileSizeConsumeQueue=2000"]
    done = run_without("pyarrow", ["ingest", str(tmp_path / "store"), str(lines), *sizes])
    assert (done.returncode, done.stderr) == (0, "")
    assert "400 messages stored" in done.stdout


def run_without(module: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT.format(module=module), "store", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_verify_and_salvage_need_no_extra(is_damaged: bool, tmp_path: Path) -> None:
    """What `verify` says of a damaged store is found as an export would find it, but without pyarrow."""
    store = tmp_path / "store"
    with open_store(path=store) as opened:
        opened.put_batch(numbered(10))
    if is_damaged:
        log = next((store / "commitlog").iterdir())
        log.write_bytes(log.read_bytes().replace(numbered(10)[5].body, b"?" * len(numbered(10)[5].body), 1))
    verified = run_without("pyarrow", ["verify", str(store)])
    assert (verified.returncode, verified.stderr) == (int(is_damaged), "")
    assert ("keeps 9 messages" in verified.stdout) == is_damaged
    assert run_without("pyarrow", ["salvage", str(store), str(tmp_path / "out")]).stderr == ""


def test_proxy_without_extra_names_extra() -> None:
    command = [sys.executable, "-c", WITHOUT.format(module="hpack"), "proxy", "-n", "127.0.0.1:1", "--grpc-port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3
    assert done.stderr == "gantrymq: this needs the module hpack: pip install 'gantrymq[grpc]'\n"
