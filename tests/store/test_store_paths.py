"""The commit log of a store lies where the settings say, in one directory or in several."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gantrymq.clock import ManualClock, SystemClock
from gantrymq.config.properties import read_settings
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError, MissingFileError, MissingLogError, StoreError
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.paths import StorePaths
from gantrymq.store.reader import StoreReader
from gantrymq.tools.findings import FindingKind, Severity
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store
from memory_file_system import MemoryFileSystem
from store_cases import GEOMETRY_KEYS, ROOT, SMALL, await_dispatch, bodies, numbered, open_reader, open_store

MESSAGES = 600


def in_directories(tmp_path: Path, *names: str, read_only: str = "") -> MessageStoreConfig:
    """Settings with a commit log in these directories."""
    return replace(
        SMALL,
        store_path_commit_log=",".join(str(tmp_path / name) for name in names),
        read_only_commit_log_store_paths=str(tmp_path / read_only) if read_only else "",
    )


def names(directory: Path) -> list[int]:
    """Which files of the log lie in a directory, by their number."""
    return [int(path.name) // SMALL.mapped_file_size_commit_log for path in sorted(directory.iterdir())]


def filled(tmp_path: Path, config: MessageStoreConfig) -> Path:
    """A closed store with some messages."""
    with open_store(RealFileSystem(), tmp_path / "store", config) as store:
        store.put_batch(numbered(MESSAGES))
    return tmp_path / "store"


def test_store_path_commit_log_decides_directory_of_log(tmp_path: Path) -> None:
    config = in_directories(tmp_path, "disk/log")
    store = filled(tmp_path, config)
    assert not (store / "commitlog").exists()
    assert names(tmp_path / "disk" / "log")[:3] == [0, 1, 2]
    with open_reader(store, config) as reader:
        assert (len(list(reader.messages())), reader.problems) == (MESSAGES, [])
    with open_store(RealFileSystem(), store, config) as again:
        assert (len(bodies(again)), again.recovery.queue_units_cut) == (MESSAGES, 0)
    assert list(verify_store(store, config, given=GEOMETRY_KEYS)) == []


def test_rebuild_and_salvage_read_log_in_own_directory(tmp_path: Path) -> None:
    config = in_directories(tmp_path, "a", "b")
    store = filled(tmp_path, config)
    shutil.rmtree(store / "consumequeue")
    assert rebuild_store(store, config, given=GEOMETRY_KEYS).records == MESSAGES
    assert list(verify_store(store, config, given=GEOMETRY_KEYS)) == []
    before = sorted((tmp_path / "a").iterdir()), sorted((tmp_path / "b").iterdir())
    assert salvage_store(store, tmp_path / "out", config, given=GEOMETRY_KEYS).records == MESSAGES
    assert (sorted((tmp_path / "a").iterdir()), sorted((tmp_path / "b").iterdir())) == before
    with open_reader(tmp_path / "out") as reader:
        assert len(list(reader.messages())) == MESSAGES


def test_salvage_does_not_write_into_log_directory(tmp_path: Path) -> None:
    config = in_directories(tmp_path, "a")
    store = filled(tmp_path, config)
    with pytest.raises(StoreError, match="lies in the store"):
        salvage_store(store, tmp_path / "a" / "out", config)


def test_log_files_alternate_between_directories(tmp_path: Path) -> None:
    config = in_directories(tmp_path, "b", "a")
    filled(tmp_path, config)
    count = len(names(tmp_path / "a")) + len(names(tmp_path / "b"))
    assert count > 4
    assert names(tmp_path / "a") == list(range(0, count, 2)), "sorted by name, as RocketMQ does, not as given"
    assert names(tmp_path / "b") == list(range(1, count, 2))


def test_read_only_log_directory_is_read_but_not_written(tmp_path: Path) -> None:
    store = filled(tmp_path, in_directories(tmp_path, "old"))
    old = names(tmp_path / "old")
    config = in_directories(tmp_path, "old", "new", read_only="old")
    with open_store(RealFileSystem(), store, config) as again:
        again.put_batch(numbered(MESSAGES))
        await_dispatch(again)
        assert len(bodies(again)) == 2 * MESSAGES
    assert names(tmp_path / "old") == old
    assert names(tmp_path / "new")[0] == len(old)


def test_full_log_directory_is_skipped_while_other_has_room() -> None:
    config = replace(SMALL, store_path_commit_log="/disks/a,/disks/b,/disks/c")
    paths = StorePaths.of(ROOT, config)
    assert [paths.directory_for(number).name for number in range(5)] == ["a", "b", "c", "a", "b"]
    assert [paths.directory_for(number, {Path("/disks/b")}).name for number in range(4)] == ["a", "c", "a", "c"]
    assert paths.directory_for(1, set(paths.commit_logs)).name == "b"


def test_writer_skips_full_disk(tmp_path: Path) -> None:
    class OneFull(MemoryFileSystem):
        def used_ratio(self, path: Path) -> float:
            return 0.87 if path.name == "a" else 0.1

    fs, config = OneFull(), in_directories(tmp_path, "a", "b")
    with open_store(fs, ROOT, config) as store:
        store._space.update()
        store.put_batch(numbered(MESSAGES))
        assert store.is_writable, "b has room"
    assert [int(entry.name) // SMALL.mapped_file_size_commit_log for entry in fs.scan(tmp_path / "b")][:3] == [0, 1, 2]
    assert fs.scan(tmp_path / "a") == []


def test_file_in_two_directories_is_refused_and_named(tmp_path: Path) -> None:
    config = in_directories(tmp_path, "a", "b")
    store = filled(tmp_path, config)
    first = min((tmp_path / "a").iterdir())
    shutil.copy(first, tmp_path / "b" / first.name)
    with pytest.raises(StoreError, match="is there twice"):
        open_store(RealFileSystem(), store, config)


@pytest.mark.parametrize("missing", ["removed", "empty"])
def test_unmounted_log_directory_of_several_is_named(tmp_path: Path, missing: str) -> None:
    config = in_directories(tmp_path, "a", "b")
    store = filled(tmp_path, config)
    (tmp_path / "b").rename(tmp_path / "unmounted")
    if missing == "empty":
        (tmp_path / "b").mkdir()
    with pytest.raises((MissingFileError, MissingLogError), match=f"^{tmp_path / 'b'}"):
        open_store(RealFileSystem(), store, config)
    with open_reader(store, config) as reader:
        assert 0 < len(list(reader.messages())) < MESSAGES
        assert str(tmp_path / "b") in str(reader.problems[0])


def test_new_empty_log_directory_is_not_reported_missing(tmp_path: Path) -> None:
    store = filled(tmp_path, in_directories(tmp_path, "a"))
    with open_store(RealFileSystem(), store, in_directories(tmp_path, "a", "b")) as again:
        again.put_batch(numbered(MESSAGES))
        await_dispatch(again)
        assert len(bodies(again)) == 2 * MESSAGES
    assert names(tmp_path / "b")


@pytest.mark.parametrize("text", ["/a, /b", "/a,,/b", ",/a"])
def test_directory_list_read_differently_by_rocketmq_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="storePathCommitLog"):
        read_settings({"storePathCommitLog": text})


def test_settings_naming_log_of_other_store_are_refused(tmp_path: Path) -> None:
    config = replace(in_directories(tmp_path, "log"), store_path_root_dir=str(tmp_path / "store"))
    store = filled(tmp_path, config)
    shutil.copytree(store, tmp_path / "copy")
    with pytest.raises(ConfigError, match="storePathRootDir"):
        open_store(RealFileSystem(), tmp_path / "copy", config)


@pytest.mark.parametrize("key", ["storePathConsumeQueue", "storePathIndex", "abortFile", "storeCheckpoint"])
def test_path_key_unknown_to_5_5_0_causes_warning(key: str) -> None:
    (warning,) = read_settings({key: "/elsewhere"}).warnings
    assert "has no effect" in warning
    assert "5.5.0 does not know it" in warning


# The oldest files are missing: what was in front is younger than fileReservedTime


@pytest.fixture
def front_elsewhere(tmp_path: Path) -> tuple[Path, MessageStoreConfig]:
    """A store whose oldest files lie in the read-only directory ``a``, the others in ``b``."""
    store = filled(tmp_path, in_directories(tmp_path, "a"))
    config = in_directories(tmp_path, "a", "b", read_only="a")
    with open_store(RealFileSystem(), store, config) as again:
        again.put_batch(numbered(MESSAGES))
        await_dispatch(again)
    return store, config


@pytest.mark.parametrize("mount", ["removed", "empty", "lost+found"])
@pytest.mark.parametrize("listed", ["storePathCommitLog", "readOnlyCommitLogStorePaths"])
def test_unmounted_directory_of_oldest_files_is_refused(
    front_elsewhere: tuple[Path, MessageStoreConfig], tmp_path: Path, mount: str, listed: str
) -> None:
    store, config = front_elsewhere
    if listed == "storePathCommitLog":
        config = in_directories(tmp_path, "a", "b")
    (tmp_path / "a").rename(tmp_path / "unmounted")
    if mount != "removed":
        (tmp_path / "a").mkdir()
    if mount == "lost+found":
        (tmp_path / "a" / "lost+found").mkdir()
    before = sorted(store.rglob("*")), sorted((tmp_path / "b").iterdir())
    with pytest.raises(MissingLogError, match=f"^{tmp_path / 'a'}: .*mounted.*acceptMissingCommitLog=true") as refused:
        open_store(RealFileSystem(), store, config)
    assert "\n" not in str(refused.value)
    assert (sorted(store.rglob("*")), sorted((tmp_path / "b").iterdir())) == before
    with pytest.raises(MissingLogError, match=str(tmp_path / "a")):
        rebuild_store(store, config, given=GEOMETRY_KEYS)
    with open_reader(store, config) as reader:
        assert [one.path for one in reader.problems] == [tmp_path / "a"]
        assert 0 < len(list(reader.messages())) < 2 * MESSAGES
    found = [one for one in verify_store(store, config, given=GEOMETRY_KEYS) if one.level is Severity.DAMAGE]
    assert FindingKind.LOG_MISSING in {one.kind for one in found}
    with open_store(RealFileSystem(), store, replace(config, accept_missing_commit_log=True)) as opened:
        assert [one.path for one in opened.accepted] == [tmp_path / "a"]
    (tmp_path / "a").exists() and shutil.rmtree(tmp_path / "a")
    (tmp_path / "unmounted").rename(tmp_path / "a")
    with open_store(RealFileSystem(), store, config) as opened:
        assert (len(bodies(opened)), opened.notes, opened.accepted) == (2 * MESSAGES, [], [])


def test_missing_option_for_directory_of_oldest_files_is_reported(
    front_elsewhere: tuple[Path, MessageStoreConfig], tmp_path: Path
) -> None:
    """As retention by a full disk leaves it, so the store is opened."""
    store, config = front_elsewhere
    config = in_directories(tmp_path, "b")
    with open_reader(store, config) as reader:
        (note,) = reader.notes
        assert reader.problems == []
    assert "younger than fileReservedTime" in note.reason
    assert FindingKind.LOG_MISSING in {one.kind for one in verify_store(store, config, given=GEOMETRY_KEYS)}
    with open_store(RealFileSystem(), store, config) as opened:
        assert [str(one) for one in opened.notes] == [str(note)]


def test_expired_files_are_not_reported_missing(
    front_elsewhere: tuple[Path, MessageStoreConfig], tmp_path: Path
) -> None:
    store, _ = front_elsewhere
    later = ManualClock(SystemClock().now_ms() + 73 * 3_600_000)
    config = in_directories(tmp_path, "b", "new")
    with open_store(RealFileSystem(), store, config, clock=later) as opened:
        assert (opened.notes, opened.accepted) == ([], [])
    with StoreReader.open(store, config, given=GEOMETRY_KEYS, clock=later) as reader:
        assert (reader.notes, reader.problems) == ([], [])
