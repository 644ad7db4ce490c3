"""What the operating system is asked for: one fdatasync for a thousand producers who wait."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PRODUCERS = 1000


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed here")
def test_a_thousand_producers_who_wait_share_one_fdatasync(tmp_path: Path) -> None:
    said = tmp_path / "strace.txt"
    strace = ["strace", "-f", "-y", "-qq", "-e", "trace=fdatasync,fsync,msync,sync_file_range", "-o", str(said)]
    child = [sys.executable, str(Path(__file__).with_name("waiting_producers.py")), str(tmp_path / "s"), str(PRODUCERS)]
    done = subprocess.run([*strace, *child], capture_output=True, text=True, timeout=60, check=False)
    if "Operation not permitted" in done.stderr:
        pytest.skip("strace may not trace here")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{PRODUCERS}\n", "")
    calls = [line.split(None, 1)[1] for line in said.read_text().splitlines()]
    of_log = [call for call in calls if "/commitlog/0" in call and "resumed" not in call]
    # One for the first, one for the others, who came while it ran.
    assert [call.split("(")[0] for call in of_log] == ["fdatasync"] * 2
    assert not [call for call in calls if call.startswith(("msync", "sync_file_range"))]
