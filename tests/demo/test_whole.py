"""The whole demo on a few rows, Spark and report included, in a process of its own as the command line runs it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

RUN = """
import sys
from pathlib import Path
from demo.main import demo
out, flights, *lie = sys.argv[1:]
if lie:
    import demo.main as main
    main.make_messages = lambda flights, make=main.make_messages: make(flights.slice(0, flights.num_rows - 1))
sys.exit(demo(Path(out), 900, 7, flights=Path(flights), kills=1))
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)


def test_demo_runs_from_flights_to_report(tmp_path: Path, flights_file: Path) -> None:
    out = tmp_path / "a place with blanks"
    done = run(str(out), str(flights_file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "SIGKILL" in done.stdout
    assert "--seed 7" in done.stdout
    summary = json.loads((out / "summary.json").read_text())
    assert summary["rows"] == summary["spark"]["rows"] == summary["writers"][-1]["stored"] == 900
    assert [writer["killed"] for writer in summary["writers"]] == [True, False]
    assert sorted(path.name for path in out.iterdir()) == [
        "broker.conf", "demo.txt", "report.html", "store", "summary.json",
    ]  # fmt: skip
    page = (out / "report.html").read_text("utf-8")
    assert not re.search(r'(?:src|href)\s*=\s*["\']?(?:https?:)?//', page.split("<script>")[0])
    assert page.count("<figure") == 8
    assert f"All {summary['numbersChecked']:,} numbers are equal" in page


@pytest.mark.slow
def test_missing_row_ends_demo(tmp_path: Path, flights_file: Path) -> None:
    """All is as it was given to the store, but not all was given: only the comparison with the input can tell."""
    done = run(str(tmp_path / "out"), str(flights_file), "lie")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "totals all: messages is 899 in Spark, 900 in the input" in done.stderr
    assert not (tmp_path / "out" / "report.html").exists()
