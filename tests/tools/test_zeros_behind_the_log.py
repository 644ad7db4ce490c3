"""The space that is kept behind a log's last record is not read: on a real disk that is up to a gigabyte of zeros."""

import os
from pathlib import Path

import pytest

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.model.message import Message
from gantrymq.store.log import log_reader
from gantrymq.store.message_store import MessageStore
from gantrymq.tools.verify import verify_store

FILE_BYTES = 256 << 20
FEW_BYTES = 128 << 20  # disks read some megabytes ahead


def forget(path: Path) -> None:
    """Take a file out of the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def held_bytes(path: Path) -> int:
    """How much of a file is on the disk or in memory, by what the system calls data."""
    held = position = 0
    with path.open("rb") as file:
        while position < FILE_BYTES:
            try:
                begin = os.lseek(file.fileno(), position, os.SEEK_DATA)
            except OSError:
                break
            position = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            held += position - begin
    return held


def test_verify_reads_only_first_zeros_after_end_of_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "CHUNK_BYTES", 1 << 20)
    config = MessageStoreConfig(mapped_file_size_commit_log=FILE_BYTES)
    with MessageStore.open(tmp_path, config, housekeeping=False) as store:
        for number in range(100):
            store.put(Message("orders", b"%d" % number * 100))
    log = tmp_path / "commitlog" / f"{0:020}"
    forget(log)
    if held_bytes(log) > FEW_BYTES:
        pytest.skip("this file system does not tell what was only reserved")
    assert list(verify_store(tmp_path, config)) == []
    assert held_bytes(log) <= FEW_BYTES
