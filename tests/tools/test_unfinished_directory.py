"""Results have their name when all of them are whole; what a killed process left is removed by the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from gantrymq.errors import StoreError
from gantrymq.fs.real import RealFileSystem
from gantrymq.tools.export import export_store
from gantrymq.tools.repair.result_directory import MARKER, UnfinishedDirectory
from store_cases import SMALL, numbered, open_store

LAST = "_SUCCESS"


@pytest.fixture(params=["missing", "empty"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    out = tmp_path / "out"
    if request.param == "empty":
        out.mkdir()
    return out


def write(path: Path) -> None:
    (path / "topic=a").mkdir()
    (path / "topic=a/file").write_text("a")
    (path / LAST).touch()


def names(path: Path) -> list[str]:
    return sorted(str(one.relative_to(path)) for one in path.rglob("*"))


def left_over(path: Path, target: Path) -> None:
    """What is there when a process is killed in the middle."""
    pid = os.fork()
    if pid == 0:
        with UnfinishedDirectory(target, "an export") as unfinished:
            write(unfinished.path)
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def test_nothing_is_there_before_everything_is(target: Path, tmp_path: Path) -> None:
    with UnfinishedDirectory(target, "an export") as unfinished:
        write(unfinished.path)
        assert not target.exists() or [one.name for one in target.iterdir()] == [".unfinished"]
        unfinished.publish(last=LAST)
    assert names(tmp_path) == ["out", f"out/{LAST}", "out/topic=a", "out/topic=a/file"]


def test_failed_write_keeps_previous_files(target: Path, tmp_path: Path) -> None:
    before = names(tmp_path)
    with suppress(KeyboardInterrupt), UnfinishedDirectory(target, "an export") as unfinished:
        write(unfinished.path)
        raise KeyboardInterrupt
    assert names(tmp_path) == before


def test_files_of_killed_write_are_removed_by_next_write(target: Path, tmp_path: Path) -> None:
    left_over(tmp_path, target)
    assert not (target / "topic=a").exists()
    with UnfinishedDirectory(target, "an export") as unfinished:
        assert [one.name for one in unfinished.path.iterdir()] == [MARKER]
        write(unfinished.path)
        unfinished.publish(last=LAST)
    assert names(tmp_path) == ["out", f"out/{LAST}", "out/topic=a", "out/topic=a/file"]


def test_files_of_write_killed_during_move_are_removed_by_next_write(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    left_over(tmp_path, out)
    (out / ".unfinished/topic=b").mkdir()
    (out / ".unfinished" / MARKER).write_bytes(b"topic=a\0topic=b\0_SUCCESS")
    (out / ".unfinished/topic=a").rename(out / "topic=a")
    with UnfinishedDirectory(out, "an export") as unfinished:
        assert names(out) == [".unfinished", f".unfinished/{MARKER}"]
        unfinished.clear()


def test_foreign_files_stay_and_are_named(target: Path, tmp_path: Path) -> None:
    work = target / ".unfinished" if target.exists() else tmp_path / ".out.unfinished"
    work.mkdir()
    (work / "theirs").touch()
    before = names(tmp_path)
    with pytest.raises(StoreError, match="is in the way"), UnfinishedDirectory(target, "an export"):
        pass
    assert names(tmp_path) == before


def test_nonempty_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/theirs").touch()
    with pytest.raises(StoreError, match="not an empty directory"), UnfinishedDirectory(tmp_path / "out", "an export"):
        pass
    assert names(tmp_path) == ["out", "out/theirs"]


def test_second_writer_of_target_is_refused(target: Path) -> None:
    with UnfinishedDirectory(target, "an export") as unfinished:
        with pytest.raises(StoreError, match="another process is writing"), UnfinishedDirectory(target, "an export"):
            pass
        write(unfinished.path)
        unfinished.publish(last=LAST)
    assert (target / LAST).exists()


def test_target_with_longest_name_uses_directory_within(tmp_path: Path) -> None:
    target = tmp_path / ("o" * 255)
    with UnfinishedDirectory(target, "an export") as unfinished:
        write(unfinished.path)
        unfinished.publish(last=LAST)
    assert (target / LAST).exists()
    with pytest.raises(ZeroDivisionError), UnfinishedDirectory(tmp_path / ("p" * 255), "an export"):
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


PROGRAM = """
import os, signal, sys
from gantrymq.cli.main import run
from gantrymq.tools.export_files import ExportFile
commit = ExportFile.commit
def commit_and_end(file):
    commit(file)
    os.kill(os.getpid(), signal.{signal})
    signal.pause()
ExportFile.commit = commit_and_end
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where a shell runs the tests in the background
run(["store", "export", *sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "store"
    with open_store(RealFileSystem(), path) as opened:
        for message in numbered(50):
            opened.put(message)
    return path


@pytest.mark.parametrize(("name", "code"), [("SIGKILL", -9), ("SIGTERM", 143), ("SIGINT", 130)])
def test_interrupted_export_leaves_nothing_and_can_be_retried(
    name: str, code: int, store: Path, tmp_path: Path
) -> None:
    target, before = tmp_path / "out", names(tmp_path)
    command = [sys.executable, "-c", PROGRAM.format(signal=name), str(store), str(target)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert not target.exists()
    if name != "SIGKILL":
        assert names(tmp_path) == before
        assert "Traceback" not in done.stderr
    assert export_store(store, target, config=SMALL).rows == 50
    assert names(tmp_path)[:2] == ["out", f"out/{LAST}"]
