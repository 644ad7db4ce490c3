"""A system without Linux's own calls: everything promises the same there, by the plain way."""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from gantrymq import MessageStore, MessageStoreConfig
from gantrymq.fs import descriptors

HIDDEN = """
import fcntl, mmap, os, pathlib
for module in (os, mmap, fcntl):
    for name in dir(module):
        if name.startswith(("posix_f", "POSIX_FADV", "O_PATH", "O_DIRECT", "fdatasync", "sched_getaff")):
            if name != "O_DIRECTORY":
                delattr(module, name)
from gantrymq.fs import descriptors, lock_holder
descriptors._of_libc = lambda takes, *names: None
lock_holder._LOCKS = lock_holder._MOUNTS = lock_holder._DESCRIPTORS = pathlib.Path("/no-such-directory")
"""
BROKER = f"""{HIDDEN}
from gantrymq import EmbeddedBroker, Message, Producer, StoreReader
with EmbeddedBroker("store") as broker, Producer(broker.namesrv) as producer:
    sent = [producer.send(Message("orders", b"%d" % number, keys=["k"])) for number in range(300)]
reader = StoreReader.open("store")
assert len(list(reader.query("orders", "k"))) > 0
"""
COMMANDS = f"""{HIDDEN}
from gantrymq.cli import run
run()
"""


def run(program: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_broker_and_commands_work(tmp_path: Path) -> None:
    done = run(BROKER, tmp_path)
    assert done.returncode == 0, done.stderr
    for arguments in (
        ["verify", "store"],
        ["recover", "store"],
        ["rebuild", "store"],
        ["salvage", "store", "out"],
        ["verify", "out"],
    ):
        done = run(COMMANDS, tmp_path, "store", *arguments)
        assert (done.returncode, done.stderr) == (0, ""), (arguments, done.stdout)


def test_held_lock_refuses_second_writer(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, MessageStoreConfig(mapped_file_size_commit_log=1 << 20)):
        done = run(COMMANDS, tmp_path, "store", "recover", str(tmp_path))
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "lock" in done.stderr


@pytest.mark.parametrize("seed", range(5))
def test_space_is_taken_and_data_stays(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    rng = random.Random(seed)
    path = tmp_path / "file"
    with path.open("wb+") as file:
        fd = file.fileno()
        for _ in range(rng.randrange(4)):
            os.pwrite(fd, rng.randbytes(5000), rng.randrange(200_000))
        size = os.fstat(fd).st_size
        before = os.pread(fd, size, 0)
        position, length = rng.randrange(200_000), rng.randrange(1, 300_000)
        descriptors.allocate_space(fd, position, length)
        end = max(size, position + length)
        assert os.pread(fd, end + 1, 0) == before + bytes(end - size)
        assert os.lseek(fd, position, os.SEEK_HOLE) >= position + length


def test_data_is_synced_by_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(os, "fsync", lambda fd: told.append("fsync"))
    monkeypatch.setattr(fcntl, "fcntl", lambda fd, command: told.append(f"fcntl {command}"))
    descriptors.sync_data(0)
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    descriptors.sync_data(0)
    assert told == ["fsync", "fcntl 51"]
