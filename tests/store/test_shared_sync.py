"""The system calls of a sync: a thousand waiting producers share one fdatasync."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PRODUCERS = 1000
SYNCS = "fdatasync,fsync,msync,sync_file_range"
SLOW_DISK_US = 30_000


def traced(tmp_path: Path, trace: str, script: str, *arguments: str) -> tuple[str, list[str]]:
    """What the script printed, and its traced calls. A machine without strace skips, but not where nothing may skip."""
    said = tmp_path / "strace.txt"
    told = "strace is not installed here"
    if shutil.which("strace") is not None:
        child = [sys.executable, str(Path(__file__).with_name(script)), str(tmp_path / "s"), *arguments]
        strace = ["strace", "-f", "-y", "-qq", "-o", str(said), "-e", f"trace={SYNCS}", "-e", trace]
        done = subprocess.run([*strace, *child], capture_output=True, text=True, timeout=200, check=False)
        if "Operation not permitted" not in done.stderr:
            assert (done.returncode, done.stderr) == (0, "")
            calls = [line.split(None, 1)[1] for line in said.read_text().splitlines()]
            return done.stdout, [call for call in calls if "resumed" not in call]
        told = "strace may not trace here"
    if os.environ.get("GANTRYMQ_REQUIRE_INTEROP") == "1":
        pytest.fail(told)
    pytest.skip(told)


def of_log(calls: list[str]) -> list[str]:
    return [call.split("(")[0] for call in calls if "/commitlog/0" in call]


def test_thousand_waiting_producers_share_one_fdatasync(tmp_path: Path) -> None:
    printed, calls = traced(tmp_path, f"trace={SYNCS}", "waiting_producers.py", str(PRODUCERS))
    assert printed == f"{PRODUCERS}\n"
    # One for the first, one for the others, who came while it ran.
    assert of_log(calls) == ["fdatasync"] * 2
    assert not [call for call in calls if call.startswith("msync")]
    # Which makes nothing durable: it only lets the disk begin with all queues before the first one is waited for.
    assert all("/consumequeue/" in call for call in calls if call.startswith("sync_file_range"))


def test_producers_on_slow_disk_share_syncs(tmp_path: Path) -> None:
    """Nobody is held up by the test: strace makes each fdatasync take as long as that of a disk."""
    slow = f"inject=fdatasync:delay_exit={SLOW_DISK_US}"
    printed, calls = traced(tmp_path, slow, "waiting_producers.py", "64", "10")
    assert printed == "640\n", "acknowledged"
    assert 0 < len(of_log(calls)) <= 640 // 10
