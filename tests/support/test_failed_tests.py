"""A test that fails makes no other test fail: what it left open is freed before the next one begins."""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
FAILS_AND_LEAKS = """
import gc
import socket


def test_that_fails_with_a_socket_open() -> None:
    left_open = [socket.socket()]
    left_open.append(left_open)
    try:
        raise KeyError(left_open[0].fileno())
    except KeyError:
        assert not left_open


def test_beside_it() -> None:
    gc.collect()
"""


def test_resources_left_open_by_failed_test_fail_no_other_test(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text(FAILS_AND_LEAKS)
    settings = ["-q", "-p", "no:cacheprovider", "-p", "conftest", "-c", str(TESTS.parent / "pyproject.toml")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *settings, str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False, cwd=TESTS,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout
