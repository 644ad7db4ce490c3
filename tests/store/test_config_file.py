"""A file of config/: replaced as a whole, and one of two versions is readable whenever the process or power ends."""

import json
import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from faulty_file_system import FaultyFileSystem
from gantrymq.errors import DiskFullError, SyncFailedError
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.config_files import ConfigFile
from memory_file_system import MemoryFileSystem
from store_cases import files_of

NOBODY = 65534
PATH = Path("/store/config/delayOffset.json")
BACKUP = PATH.with_name("delayOffset.json.bak")
OLD, NEW = {"offsetTable": {"1": 3}}, {"offsetTable": {"1": 4, "2": 1}}


def write(fs: MemoryFileSystem, path: Path, text: str) -> None:
    fs.make_directory(path.parent)
    file = fs.open(path, writable=True, create=True)
    file.resize(0)
    file.write_at(0, text.encode())


def saved(*values: dict[str, Any]) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    for value in values:
        ConfigFile(fs, PATH).save(value)
    return fs


def test_load_without_file_returns_empty_object() -> None:
    assert ConfigFile(MemoryFileSystem(), PATH).load() == {}


def test_save_keeps_previous_content_as_backup() -> None:
    fs = saved(OLD, NEW)
    assert ConfigFile(fs, PATH).load() == NEW
    found = files_of(fs)
    assert {path: json.loads(data) for path, data in found.items()} == {PATH: NEW, BACKUP: OLD}


def test_save_of_shorter_object_leaves_no_old_bytes() -> None:
    fs = saved(NEW, OLD, NEW, OLD)
    assert ConfigFile(fs, PATH).load() == OLD


@pytest.mark.parametrize("text", ["", '{"offsetTable":{"1":', "\0\0\0\0", "[]", "null", '"text"'])
def test_torn_config_file_is_read_from_backup(text: str) -> None:
    fs = saved(OLD, NEW)
    write(fs, PATH, text)
    assert ConfigFile(fs, PATH).load() == OLD


def test_endlessly_nested_config_file_is_read_from_backup() -> None:
    fs = saved(OLD, NEW)
    write(fs, PATH, '{"a":' * 100_000)
    assert ConfigFile(fs, PATH).load() == OLD


def test_binary_config_file_is_read_from_backup() -> None:
    fs = saved(OLD, NEW)
    fs.open(PATH, writable=True).write_at(0, b"\xff\xfe")
    assert ConfigFile(fs, PATH).load() == OLD


def test_missing_config_file_is_read_from_backup() -> None:
    fs = saved(OLD, NEW)
    fs.remove(PATH)
    assert ConfigFile(fs, PATH).load() == OLD


def test_load_with_torn_file_and_backup_returns_empty_object() -> None:
    fs = saved(OLD, NEW)
    write(fs, PATH, "{")
    write(fs, BACKUP, "{")
    assert ConfigFile(fs, PATH).load() == {}


def test_file_with_unquoted_integer_keys_is_read() -> None:
    fs = MemoryFileSystem()
    write(fs, PATH, '{\n\t"dataVersion":{"counter":1},\n\t"offsetTable":{1:3,2:0\n\t}\n}')
    assert ConfigFile(fs, PATH).load()["offsetTable"] == {"1": 3, "2": 0}


def test_half_surrogate_pair_is_saved_as_java_saves_it() -> None:
    """No UTF-8 has it, and what any client sent must not keep a whole table from the disk."""
    fs = saved({"half \ud800": "CUSTOMIZED\ud800", "pair": "😀"})
    assert ConfigFile(fs, PATH).load() == {"half ?": "CUSTOMIZED?", "pair": "😀"}


@pytest.mark.parametrize("old", [None, OLD])
def test_failed_save_leaves_old_or_new_content(old: dict[str, Any] | None) -> None:
    """The disk fails at operation k of a save; then the process is killed, or the power goes."""
    for k in count(1):
        fs = saved(OLD, OLD) if old else MemoryFileSystem()
        faulty = FaultyFileSystem(fs, fail_at=k)
        with suppress(DiskFullError, SyncFailedError):
            ConfigFile(faulty, PATH).save(NEW)
        for seed in range(8):
            left = fs.crash_clone(seed / 7, seed)
            assert ConfigFile(left, PATH).load() in (old or {}, NEW), faulty.operations
            ConfigFile(left, PATH).save(NEW)
            assert ConfigFile(left, PATH).load() == NEW
        if len(faulty.operations) < k:
            break
    assert k > 5


@pytest.mark.parametrize("torn", ["", "{", "[]"])
def test_save_killed_after_fallback_leaves_backup_or_new_content(torn: str) -> None:
    """The torn file must not take the place of the good one before the new one is there."""
    for k in count(1):
        fs = saved(OLD, OLD)
        write(fs, PATH, torn)
        file = ConfigFile(faulty := FaultyFileSystem(fs), PATH)
        assert file.load() == OLD
        faulty.operations.clear()
        faulty.fail_at = k
        with suppress(DiskFullError, SyncFailedError):
            file.save(NEW)
        assert ConfigFile(fs, PATH).load() in (OLD, NEW), faulty.operations
        if len(faulty.operations) < k:
            break
    assert k > 5
    assert json.loads(files_of(fs)[BACKUP]) == OLD


@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_saved_file_keeps_owner_and_mode(tmp_path: Path, mode: int) -> None:
    path, backup = tmp_path / "delayOffset.json", tmp_path / "delayOffset.json.bak"
    file = ConfigFile(RealFileSystem(), path)
    file.save(OLD)
    path.chmod(mode)
    owner = NOBODY if os.geteuid() == 0 else os.geteuid()
    os.chown(path, owner, -1)
    path.with_suffix(".json.tmp").write_text("left by who was killed")
    file.save(NEW)
    path.rename(backup)  # killed between two renames
    file.save(NEW)
    assert (path.stat().st_mode & 0o777, path.stat().st_uid) == (mode, owner)
    assert file.load() == NEW


def test_read_only_leftover_does_not_prevent_write(tmp_path: Path) -> None:
    """root may write to such a file, so the test checks that the new file is another one."""
    path = tmp_path / "delayOffset.json"
    ConfigFile(RealFileSystem(), path).save(OLD)
    left = path.with_name(path.name + ".tmp")
    left.touch(0o444)
    inode = left.stat().st_ino
    (tmp_path / "held").hardlink_to(left)  # or its number might be given out again
    ConfigFile(RealFileSystem(), path).save(NEW)
    assert path.stat().st_ino != inode


def test_saved_file_survives_power_cut() -> None:
    for seed in range(10):
        assert ConfigFile(saved(OLD, NEW).crash_clone(0.5, seed), PATH).load() == NEW
