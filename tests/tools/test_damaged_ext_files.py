"""Extended units hold only tags codes: a reader goes on without their files and names one, a rebuild makes them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bad_disk import break_reads
from gantrymq.errors import DiskError, MissingFileError, StoreError, WrongFileSizeError
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.store.reader import StoreReader
from gantrymq.tools.findings import FindingKind
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.verify import verify_store
from store_cases import GEOMETRY_KEYS, SMALL, await_dispatch, bodies, open_reader, open_store

EXT = replace(SMALL, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1024)
MESSAGES = 200


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ext") / "store"
    with open_store(RealFileSystem(), path, EXT) as store:
        for number in range(MESSAGES):
            store.put(Message("orders", b"%d" % number, tags="paid"))
        await_dispatch(store)
    return path


@pytest.fixture
def store(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(healthy, tmp_path / "store"))


def ext_files(store: Path) -> list[Path]:
    return sorted((store / "consumequeue_ext/orders/0").iterdir())


DAMAGE: dict[str, Callable[[Path], None]] = {
    "first short": lambda store: os.truncate(ext_files(store)[0], 100),
    "middle short": lambda store: os.truncate(ext_files(store)[1], 100),
    "last short": lambda store: os.truncate(ext_files(store)[-1], 100),
    "middle empty": lambda store: os.truncate(ext_files(store)[1], 0),
    "middle missing": lambda store: ext_files(store)[1].unlink(),
}


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("damage", DAMAGE)
def test_reader_without_damaged_ext_file_continues_and_names_it(store: Path, damage: str, *, is_killed: bool) -> None:
    assert len(ext_files(store)) > 3
    DAMAGE[damage](store)
    if is_killed:
        (store / "abort").touch()
    with closing(open_reader(store, EXT)) as reader:
        assert len(bodies(reader)) == MESSAGES
        [problem] = reader.problems
    assert isinstance(problem, MissingFileError | WrongFileSizeError)
    assert problem.path.parent == store / "consumequeue_ext/orders/0"
    assert "`gantrymq store rebuild` " in str(problem)


@pytest.mark.parametrize(
    ("damage", "is_killed"),
    [*((damage, is_killed) for damage in DAMAGE for is_killed in (False, True)), ("all missing", False)],
)
def test_plan_and_start_both_refuse_damaged_ext_files(store: Path, damage: str, *, is_killed: bool) -> None:
    """New units would get the addresses that old entries have."""
    DAMAGE.get(damage, lambda store: shutil.rmtree(store / "consumequeue_ext"))(store)
    if is_killed:
        (store / "abort").touch()
    with closing(open_reader(store, EXT)) as reader, pytest.raises(StoreError, match="`gantrymq store rebuild`"):
        reader.plan()
    with pytest.raises(StoreError, match="`gantrymq store rebuild`"):
        open_store(RealFileSystem(), store, EXT)


def test_ext_files_lost_in_crash_do_not_stop_plan_or_start(store: Path) -> None:
    shutil.rmtree(store / "consumequeue_ext")
    (store / "abort").touch()
    with closing(open_reader(store, EXT)) as reader:
        reader.plan()
    with open_store(RealFileSystem(), store, EXT) as opened:
        assert len(bodies(opened)) == MESSAGES


@pytest.mark.parametrize("damage", [*DAMAGE, "all missing"])
def test_rebuild_makes_damaged_ext_files_again(healthy: Path, store: Path, damage: str) -> None:
    before = [path.read_bytes() for path in ext_files(healthy)]
    if damage == "all missing":
        shutil.rmtree(store / "consumequeue_ext")
    else:
        DAMAGE[damage](store)
    rebuild_store(store, EXT, given=GEOMETRY_KEYS)
    assert [path.read_bytes() for path in ext_files(store)] == before
    assert list(verify_store(store, EXT, given=GEOMETRY_KEYS)) == []
    with closing(open_reader(store, EXT)) as reader:
        assert reader.problems == []


def test_reader_without_ext_files_continues_and_names_directory(store: Path) -> None:
    shutil.rmtree(store / "consumequeue_ext")
    with closing(open_reader(store, EXT)) as reader:
        assert len(bodies(reader)) == MESSAGES
        [problem] = reader.problems
    assert problem.path == store / "consumequeue_ext/orders/0"
    assert "`gantrymq store rebuild` " in str(problem)


@pytest.mark.parametrize("damage", ["first short", "middle short", "last short", "middle empty"])
def test_verify_names_ext_file_of_wrong_length_and_repair_command(store: Path, damage: str) -> None:
    DAMAGE[damage](store)
    sizes = [one for one in verify_store(store, EXT, given=GEOMETRY_KEYS) if one.kind is FindingKind.FILE_SIZE]
    [(path, text)] = [(one.path, one.text) for one in sizes]
    assert path.parts[0] == "consumequeue_ext"
    assert "`gantrymq store rebuild` " in text


@pytest.mark.parametrize("number", [0, -1])
def test_unreadable_ext_page_loses_only_tags_codes_and_is_named(
    store: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil, path = break_reads(monkeypatch), ext_files(store)[number]
    spoil(path, 0, 1024)
    unreadable = [
        one for one in verify_store(store, EXT, given=GEOMETRY_KEYS) if one.kind is FindingKind.FILE_UNREADABLE
    ]
    assert [(one.path, one.length_bytes) for one in unreadable] == [(path.relative_to(store), 1024)]
    assert "`gantrymq store rebuild` with enableConsumeQueueExt=true" in unreadable[0].text
    with StoreReader.open(store, EXT, given=GEOMETRY_KEYS, skips_lost=True) as reader:
        assert len(bodies(reader)) == MESSAGES
        [problem] = reader.problems
    assert isinstance(problem, DiskError)
    assert (problem.path, problem.position) == (path, 0)
    with pytest.raises(DiskError, match="cannot be read at byte 0"):
        open_store(RealFileSystem(), store, EXT)
    rebuild_store(store, EXT, given=GEOMETRY_KEYS)
    assert len(ext_files(store)) > 3
