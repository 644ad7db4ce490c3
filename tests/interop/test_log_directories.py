"""A commit log in several directories: each of RocketMQ 5.5.0 and gantrymq continues where the other has ended."""

from dataclasses import replace
from pathlib import Path

import pytest

from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from store_cases import SMALL, SMALL_KEYS, dump, open_reader, open_store

from .java import JavaStore

pytestmark = pytest.mark.interop


def file_numbers(directory: Path) -> list[int]:
    return [int(path.name) // SMALL.mapped_file_size_commit_log for path in sorted(directory.iterdir())]


def test_next_log_file_is_created_in_same_directory_by_both(tmp_path: Path) -> None:
    directories = f"{tmp_path / 'b'},{tmp_path / 'a'}"
    config = replace(SMALL, store_path_commit_log=directories)
    java = JavaStore(tmp_path / "store", {**SMALL_KEYS, "storePathCommitLog": directories})
    java.write(300, body_size=200)
    with open_store(RealFileSystem(), tmp_path / "store", config) as store:
        store.put_batch([Message("ours", b"x" * 500, keys=[f"k{number}"]) for number in range(200)])
    java.write(300, body_size=200, seed=2)
    count = len(file_numbers(tmp_path / "a")) + len(file_numbers(tmp_path / "b"))
    assert count > 10
    assert file_numbers(tmp_path / "a") == list(range(0, count, 2))
    assert file_numbers(tmp_path / "b") == list(range(1, count, 2))
    with open_reader(tmp_path / "store", config) as reader:
        ours = dump(reader)
    assert java.dump() == ours
