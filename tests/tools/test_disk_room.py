"""What certainly does not fit onto the disk is refused before anything is written, and nothing else is."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loss_cases import LOG_FILE, KnownStore

from gantrymq.cli.main import exit_code
from gantrymq.errors import NoRoomError
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.fs.real import RealFileSystem, may_compress
from gantrymq.tools.export import export_store
from gantrymq.tools.export_files import ExportFormat
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from memory_file_system import MemoryFileSystem
from store_cases import GEOMETRY_KEYS, SMALL, SMALL_KEYS


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> KnownStore:
    return KnownStore.make(tmp_path_factory.mktemp("room") / "store")


@pytest.fixture
def store(healthy: KnownStore, tmp_path: Path) -> KnownStore:
    shutil.copytree(healthy.path, tmp_path / "store")
    return KnownStore(tmp_path / "store", dict(healthy.puts))


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Lets every disk have so much room."""

    def have(free_bytes: int | None) -> None:
        monkeypatch.setattr(RealFileSystem, "free_bytes", lambda fs, path: free_bytes)

    return have


def tree(path: Path) -> list[tuple[str, bytes]]:
    return [
        (str(one), one.read_bytes() if one.is_file() else b"") for one in sorted(path.rglob("*")) if one.name != "lock"
    ]


def salvage(store: KnownStore, **options: Any) -> int:
    return salvage_store(store.path, store.path.with_name("out"), SMALL, given=GEOMETRY_KEYS, **options).records


def rebuild(store: KnownStore) -> int:
    return rebuild_store(store.path, SMALL, given=GEOMETRY_KEYS).records


def export(kind: ExportFormat) -> Callable[[KnownStore], int]:
    return lambda store: export_store(store.path, store.path.with_name("out"), kind, None, SMALL).rows


def least(store: KnownStore, tool: Callable[[KnownStore], int]) -> int:
    """What the tool certainly writes."""
    if tool is salvage:
        return sum(put.size_bytes for put in store.puts.values())
    if tool is rebuild:
        return UNIT_SIZE * len(store.puts)
    return sum(len(put.body) for put in store.puts.values())


TOOLS = {
    "salvage": salvage,
    "rebuild": rebuild,
    "jsonl": export(ExportFormat.JSONL),
    "csv": export(ExportFormat.CSV),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_result_larger_than_free_space_is_refused_before_writing(
    tool: str, store: KnownStore, free: Callable[[int | None], None]
) -> None:
    before = tree(store.path.parent)
    needed = least(store, TOOLS[tool])
    free(needed - 1)
    with pytest.raises(NoRoomError, match=f"^{store.path.parent}/.*no room.*at least .*{needed} bytes.*nothing") as no:
        TOOLS[tool](store)
    assert "\n" not in str(no.value)
    assert tree(store.path.parent) == before


@pytest.mark.parametrize("room", ["just", "not known"])
@pytest.mark.parametrize("tool", TOOLS)
def test_result_possibly_fitting_is_tried(
    tool: str, room: str, store: KnownStore, free: Callable[[int | None], None]
) -> None:
    free(least(store, TOOLS[tool]) if room == "just" else None)
    assert TOOLS[tool](store) == len(store.puts)


def test_parquet_compresses_and_is_tried(store: KnownStore, free: Callable[[int | None], None]) -> None:
    free(100)
    assert export(ExportFormat.PARQUET)(store) == len(store.puts)


def test_lost_messages_and_holes_need_no_room(store: KnownStore, free: Callable[[int | None], None]) -> None:
    """All files of the log but one are unreadable or zeros: its length says nothing of what salvage writes."""
    kept = store.victims(0, LOG_FILE)
    for path in store.log_files[1:]:
        path.write_bytes(bytes(LOG_FILE))
    free(sum(store.puts[slot].size_bytes for slot in kept))
    assert salvage(store) == len(kept)


def test_salvage_without_room_does_not_begin_copy(store: KnownStore, free: Callable[[int | None], None]) -> None:
    def never(*arguments: Any) -> Any:
        raise AssertionError("the copy began")

    free(10)
    with pytest.raises(NoRoomError):
        salvage(store, copy=never)


@pytest.mark.parametrize("command", ["salvage", "export", "rebuild"])
def test_command_without_room_prints_one_line(
    command: str, store: KnownStore, free: Callable[[int | None], None], capsys: pytest.CaptureFixture[str]
) -> None:
    free(10)
    sizes = [f"--set={key}={value}" for key, value in SMALL_KEYS.items()]
    out = [] if command == "rebuild" else [str(store.path.with_name("out"))]
    kind = ["--format", "jsonl"] if command == "export" else []
    assert exit_code(["store", command, str(store.path), *out, *kind, *sizes]) == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("gantrymq: ")
    assert "no room on the disk: at least" in said


def test_free_bytes_is_capacity_minus_reserved_bytes() -> None:
    fs = MemoryFileSystem(10 * 4096)
    file = fs.open(Path("/x"), writable=True, create=True)
    file.resize(4096)
    file.reserve(0, 4096)
    assert fs.free_bytes(Path("/missing/too")) == 9 * 4096
    assert MemoryFileSystem().free_bytes(Path("/x")) is None


def test_free_bytes_of_real_disk_are_reported(tmp_path: Path) -> None:
    free = RealFileSystem().free_bytes(tmp_path / "missing" / "too")
    assert free is None or free > 0


@pytest.mark.parametrize(("mounted", "expected"), [("ext4", False), ("btrfs", True), ("zfs", True)])
def test_compressing_file_system_is_recognised(tmp_path: Path, mounted: str, expected: bool) -> None:
    mounts = tmp_path / "mountinfo"
    lines = ["1 0 8:1 / / rw - ext4 /dev/root rw", f"2 1 8:2 / {tmp_path} rw shared:1 - {mounted} /dev/x rw"]
    mounts.write_text("\n".join([*lines, f"3 1 8:3 / {tmp_path}x rw - btrfs /dev/y rw\n"]))
    assert may_compress(tmp_path / "store", mounts) is expected
    assert may_compress(Path("/"), mounts) is False
    assert may_compress(Path("/"), tmp_path / "none") is False
