"""What an install without extras says when it is asked for more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = "import sys; sys.modules[{module!r}] = None; from gantrymq.cli import run; run()"


@pytest.mark.parametrize(
    ("module", "extra", "code", "arguments"),
    [
        ("pyarrow", "arrow", 3, ["export", "STORE", "OUT"]),
        ("pyarrow", "arrow", 3, ["export", "STORE", "-", "--format", "jsonl"]),
        ("pyspark", "spark", 2, ["verify", "STORE", "--engine", "spark"]),
    ],
)
def test_a_missing_module_is_one_line_that_names_the_extra(
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


def run_without(module: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT.format(module=module), "store", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
