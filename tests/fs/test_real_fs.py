"""Local files: named errors, durable names, locks that other processes and this one respect."""

import ctypes
import errno
import mmap
import os
import random
import shutil
import subprocess
import sys
import types
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from gantrymq.errors import (
    DiskFullError,
    NotAStoreError,
    StoreError,
    StoreLockedError,
    StorePermissionError,
    SyncFailedError,
)
from gantrymq.fs import descriptors
from gantrymq.fs.overlay import OverlayFileSystem
from gantrymq.fs.real import RealFileSystem
from memory_file_system import MemoryFileSystem

FULL = Path("/dev/full")
NOBODY = 65534


@pytest.fixture
def fs() -> RealFileSystem:
    return RealFileSystem()


def synced_directories(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    synced: list[str] = []
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return synced


def test_new_directories_have_durable_names(
    fs: RealFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = synced_directories(monkeypatch)
    fs.make_directory(tmp_path / "a" / "b")
    assert synced == [str(tmp_path), str(tmp_path / "a")]
    fs.make_directory(tmp_path / "a" / "b")
    assert len(synced) == 2


def test_many_directories_are_synced_together_and_few_one_by_one(
    fs: RealFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, directories = synced_directories(monkeypatch), [tmp_path / str(number) for number in range(100)]
    for path in directories[1:]:
        fs.make_directory(path, synced=False)
    assert not synced
    fs.sync_directory(*directories[:3])
    assert synced == [str(path) for path in directories[1:3]], "one that is gone has no names"
    fs.sync_directory(*directories)
    assert len(synced) == 2
    monkeypatch.setattr(descriptors, "_of_libc", lambda *names: None)  # as where there is no syncfs
    fs.sync_directory(*directories)
    assert len(synced) == 2 + 99


def test_failed_sync_of_many_directories_raises(
    fs: RealFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(descriptors, "_of_libc", lambda *names: broken)
    with pytest.raises(SyncFailedError, match="Input/output error"):
        fs.sync_directory(*[tmp_path] * 100)


def test_file_in_place_of_directory_raises(fs: RealFileSystem, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    with pytest.raises(NotAStoreError, match="is a file where a directory is needed"):
        fs.make_directory(tmp_path / "a" / "b")


def test_files_read_back_what_was_written(fs: RealFileSystem, tmp_path: Path) -> None:
    file = fs.open(tmp_path / "file", writable=True, create=True)
    file.resize(20_000)
    file.reserve(0, 20_000)
    file.write_at(5, b"hello")
    array = file.map()
    array[10] = 0x21
    assert fs.open(tmp_path / "file").read_at(4, 7) == b"\0hello!"
    file.close()
    file.close()
    assert array[5] == ord("h")


def pages(rng: random.Random, count: int) -> mmap.mmap:
    """Memory that begins at a page."""
    memory = mmap.mmap(-1, count * mmap.PAGESIZE)
    memory.write(rng.randbytes(len(memory)))
    return memory


def test_direct_writes_are_visible_to_reads_and_mappings(
    fs: RealFileSystem, tmp_path: Path, rng: random.Random
) -> None:
    file = fs.open(tmp_path / "file", writable=True, create=True)
    file.resize(40_960)
    mapped, expected = file.map(), bytearray(40_960)
    for position, count in ((8192, 2), (0, 1), (36_864, 1), (4096, 3)):
        file.write_at(position + 5, b"not yet on the disk")
        assert mapped[position + 5] == ord("n")
        data = pages(rng, count)
        file.write_past_cache(position, memoryview(data))
        expected[position : position + len(data)] = data[:]
    assert mapped.tobytes() == expected == file.read_at(0, 50_000)
    file.close()
    del mapped
    assert not [name for name in os.listdir("/proc/self/fd") if is_open(name, tmp_path)]


def is_open(descriptor: str, folder: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(folder))
    except FileNotFoundError:
        return False


def test_begun_sync_is_completed_by_sync(fs: RealFileSystem, tmp_path: Path, rng: random.Random) -> None:
    written = rng.randbytes(100_000)
    for disk, path in ((fs, tmp_path / "file"), (MemoryFileSystem(), Path("/file"))):
        file = disk.open(path, writable=True, create=True)
        disk.sync_directory(path.parent)
        file.write_at(0, written)
        file.begin_sync()
        if isinstance(disk, MemoryFileSystem):
            assert disk.crash_clone(0.0, 1).open(path).size() == 0, "nothing is durable before the sync"
        file.sync()
        kept = disk.crash_clone(0.0, 1) if isinstance(disk, MemoryFileSystem) else disk
        assert kept.open(path).read_at(0, 100_001) == written
        file.close()


@pytest.mark.parametrize("why", ["no whole page", "another file has the name", "no such file system"])
def test_data_unfit_for_direct_io_is_written(
    fs: RealFileSystem, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    file = fs.open(tmp_path / "file", writable=True, create=True)
    data = memoryview(pages(rng, 2))
    if why == "no whole page":
        data = data[3:5000]
    elif why == "another file has the name":
        os.rename(tmp_path / "file", tmp_path / "renamed")
        (tmp_path / "file").write_bytes(b"")
    else:
        open_any = os.open

        def refuse(path: Path, flags: int, *rest: int) -> int:
            if flags & os.O_DIRECT:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            return open_any(path, flags, *rest)

        monkeypatch.setattr(os, "open", refuse)
    file.write_past_cache(4096, data)
    assert file.read_at(0, 20_000) == bytes(4096) + data
    if why == "another file has the name":
        assert (tmp_path / "file").read_bytes() == b""


def test_view_equals_read_even_of_truncated_file(fs: RealFileSystem, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 100)
    file = fs.open(path)
    for position, length in ((0, 25_600), (5, 1), (4095, 4098), (25_599, 1), (25_000, 9_000), (30_000, 5), (0, 0)):
        assert file.view(position, length).tobytes() == file.read_at(position, length)
    kept = file.view(4096, 100)
    assert not kept.flags.writeable
    os.truncate(path, 9_000)
    assert file.view(8_000, 9_000).tobytes() == file.read_at(8_000, 9_000)
    assert file.view(20_000, 10).tobytes() == b""
    file.close()
    assert kept.tobytes() == (bytes(range(256)) * 100)[4096:4196]


def test_view_of_evicted_pages_reads_file(fs: RealFileSystem, tmp_path: Path, rng: random.Random) -> None:
    path, data = tmp_path / "file", rng.randbytes(1 << 20)
    path.write_bytes(data)
    file = fs.open(path, writable=True)
    file.sync()
    for _ in range(20):
        begin, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        with path.open("rb") as other:
            os.posix_fadvise(other.fileno(), begin, end - begin, os.POSIX_FADV_DONTNEED)
        begin, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        assert file.view(begin, end - begin).tobytes() == data[begin:end]
    file.close()


def test_view_of_empty_file_is_empty(fs: RealFileSystem, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert fs.open(tmp_path / "file").view(0, 10).tobytes() == b""


def test_zeroing_keeps_size_and_adjacent_bytes(fs: RealFileSystem, tmp_path: Path) -> None:
    file = fs.open(tmp_path / "file", writable=True, create=True)
    file.write_at(0, b"\7" * 20_000)
    file.zero(5, 12_000)
    file.zero(19_000, 0)
    assert file.read_at(0, 20_000) == b"\7" * 5 + bytes(12_000) + b"\7" * 7_995


@pytest.mark.parametrize("system", ["real", "memory", "overlay"])
def test_data_after_hole_is_found_completely(system: str, tmp_path: Path) -> None:
    """What lies before the answer is zeros, on every file system; how near it comes is the disk's affair."""
    made = MemoryFileSystem() if system == "memory" else RealFileSystem()
    made.make_directory(tmp_path)
    file = made.open(tmp_path / "f", writable=True, create=True)
    file.resize(64 << 20)
    for position in (5, 40 << 20):
        file.reserve(position, 1)
        file.write_at(position, b"x")
    file.reserve(50 << 20, 4096)
    file.map()[50 << 20] = 7
    looked = OverlayFileSystem().open(tmp_path / "f") if system == "overlay" else file
    for position, bound in ((0, 5), (6, 40 << 20), ((40 << 20) + 1, 50 << 20), (50 << 20, 50 << 20)):
        assert position <= looked.data_from(position) <= bound
    assert looked.data_from(20 << 20) >= 39 << 20  # blocks of the disk are smaller than that
    assert (50 << 20) + 1 <= looked.data_from((50 << 20) + 1) <= 64 << 20
    assert looked.data_from(64 << 20) == 64 << 20
    assert looked.data_from(60 << 20) == 64 << 20


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_full_disk_raises_disk_full_error(fs: RealFileSystem) -> None:
    with pytest.raises(DiskFullError, match="no room on the disk for 4 more bytes"):
        fs.open(FULL, writable=True).write_at(0, b"text")


def test_missing_permission_raises_store_permission_error(fs: RealFileSystem, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    view, lock = OverlayFileSystem(), partial(fs.lock, text=b"")
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)  # root may do everything
    try:
        for attempt in (fs.open, fs.scan, fs.exists, fs.make_directory, fs.used_ratio, lock, view.exists):
            with pytest.raises(StorePermissionError, match="Permission denied"):
                attempt(closed / "file")
    finally:
        os.seteuid(user)


def test_missing_path_has_no_entries_and_cannot_be_opened(fs: RealFileSystem, tmp_path: Path) -> None:
    assert fs.scan(tmp_path / "nowhere") == []
    assert not fs.exists(tmp_path / "nowhere")
    fs.remove(tmp_path / "nowhere")
    fs.remove_directory(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        fs.open(tmp_path / "nowhere")


@pytest.mark.parametrize("writable", [False, True])
def test_pipe_or_directory_is_refused_without_waiting(fs: RealFileSystem, tmp_path: Path, *, writable: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, text in ((tmp_path / "pipe", "a pipe where a file"), (tmp_path, "a directory where a file")):
        with pytest.raises(NotAStoreError, match=text):
            fs.open(path, writable=writable)


def test_broken_link_raises_and_does_not_count_as_missing(fs: RealFileSystem, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "unmounted")
    for use in (fs.scan, fs.open, lambda path: fs.can_rename(tmp_path, path)):
        for path in (link, link / "below" / "it"):
            with pytest.raises(StoreError, match="link: is a broken link"):
                use(path)


def test_directory_is_listed_by_name(fs: RealFileSystem, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").write_bytes(b"123")
    assert [(entry.name, entry.size_bytes, entry.is_directory) for entry in fs.scan(tmp_path)] == [
        ("a", 3, False),
        ("b", 0, True),
    ]


def test_dangling_link_in_directory_is_skipped(fs: RealFileSystem, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "a").write_bytes(b"123")
    assert [entry.name for entry in fs.scan(tmp_path)] == ["a"]


# Locks

HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


def test_lock_of_other_process_is_respected(fs: RealFileSystem, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StoreLockedError, match=f"open in another process, id {other.pid}; stop it first"):
            fs.lock(path, b"lock")
        other.communicate("")
    fs.lock(path, b"lock").release()


def test_held_lock_refuses_other_process(fs: RealFileSystem, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = fs.lock(path, b"lock")
    with pytest.raises(StoreLockedError, match="already open in this process"):
        fs.lock(path, b"lock")
    with pytest.raises(StoreLockedError, match="already open in this process"):
        fs.lock(tmp_path / "." / "lock", b"lock")
    refused = subprocess.run([sys.executable, "-c", HOLD, str(path)], capture_output=True, text=True, check=False)
    assert "BlockingIOError" in refused.stderr
    held.release()
    fs.lock(path, b"lock").release()
    assert path.read_bytes() == b"lock"


def test_refused_lock_does_not_release_held_lock(fs: RealFileSystem, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = fs.lock(path, b"lock")
    with pytest.raises(StoreLockedError):
        fs.lock(path, b"lock")
    refused = subprocess.run([sys.executable, "-c", HOLD, str(path)], capture_output=True, text=True, check=False)
    assert "BlockingIOError" in refused.stderr, "the second attempt dropped the lock of the first"
    held.release()


# The overlay: all of it can be changed and nothing is written


def test_overlay_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old " * 50_000)
    (tmp_path / "b").write_bytes(b"other")
    view = OverlayFileSystem()
    file = view.open(tmp_path / "a", writable=True)
    file.write_at(0, b"new")
    file.zero(100, 100)
    file.map()[50] = 0
    file.resize(300_000)
    file.sync()
    fresh = view.open(tmp_path / "c", writable=True, create=True)
    fresh.write_at(10, b"x")
    view.make_directory(tmp_path / "d" / "e")
    view.remove(tmp_path / "b")
    view.rename(tmp_path / "c", tmp_path / "f")
    assert [entry.name for entry in view.scan(tmp_path)] == ["a", "d", "f"]
    assert view.open(tmp_path / "a").read_at(0, 6) == b"new ol"
    assert view.open(tmp_path / "f").read_at(9, 9) == b"\0x"
    with pytest.raises(FileNotFoundError):
        view.open(tmp_path / "b")
    assert not view.exists(tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert (tmp_path / "a").read_bytes() == b"old " * 50_000


def test_overlay_has_recreated_directory(tmp_path: Path) -> None:
    queue = tmp_path / "topic" / "0"
    queue.mkdir(parents=True)
    (queue / "old").touch()
    view = OverlayFileSystem()
    view.remove(queue / "old")
    for _ in range(2):
        for directory in (queue, queue.parent):
            view.remove_directory(directory)
            assert not view.exists(directory)
        view.make_directory(queue)
        assert view.exists(queue)
        assert [entry.name for entry in view.scan(tmp_path)] == ["topic"]
        assert [(entry.name, entry.is_directory) for entry in view.scan(queue.parent)] == [("0", True)]
        assert view.scan(queue) == []


def test_overlay_takes_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    held = RealFileSystem().lock(path, b"lock")
    OverlayFileSystem().lock(path, b"lock").release()
    refused = subprocess.run([sys.executable, "-c", HOLD, str(path)], capture_output=True, text=True, check=False)
    assert "BlockingIOError" in refused.stderr
    held.release()


def test_only_root_may_use_reserved_space(fs: RealFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = types.SimpleNamespace(f_bfree=1 << 20, f_bavail=1 << 8, f_frsize=4096)
    monkeypatch.setattr(os, "fstatvfs", lambda descriptor: disk)
    file = fs.open(tmp_path / "file", writable=True, create=True)
    file.resize(2 << 20)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(DiskFullError):
        file.reserve(0, 2 << 20)
    file.reserve(0, 1 << 20)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    file.reserve(0, 2 << 20)
    file.close()


def test_space_reserved_before_range_does_not_count_for_range(
    fs: RealFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = fs.open(tmp_path / "file", writable=True, create=True)
    file.resize(2 << 20)
    file.reserve(0, 1 << 20)
    disk = types.SimpleNamespace(f_bfree=0, f_bavail=0, f_frsize=4096)
    monkeypatch.setattr(os, "fstatvfs", lambda descriptor: disk)
    with pytest.raises(DiskFullError):
        file.reserve(1 << 20, 1 << 20)
    file.reserve(0, 1 << 20)
    file.close()


def test_overlay_listing_during_opens_succeeds(tmp_path: Path) -> None:
    """A scan looks at each changed file's length; another thread may open a further one at that moment."""
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"x")
    overlay = OverlayFileSystem()
    first = overlay.open(tmp_path / "a", writable=True)
    size = first.size
    first.size = lambda: overlay.open(tmp_path / "b", writable=True) and size()  # type: ignore[method-assign]
    assert [entry.name for entry in overlay.scan(tmp_path)] == ["a", "b", "c"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize(
    ("directory_mode", "file_mode"), [(0o755, 0o644), (0o750, 0o640), (0o700, 0o600), (0o777, 0o664)]
)
def test_files_made_by_root_belong_to_owner_of_directory(directory_mode: int, file_mode: int, tmp_path: Path) -> None:
    def of(path: Path) -> tuple[int, int, int]:
        status = path.stat()
        return status.st_uid, status.st_gid, status.st_mode & 0o7777

    broker = 4711
    tmp_path.chmod(directory_mode)
    (tmp_path / "old").touch()
    os.chown(tmp_path, broker, broker)
    fs = RealFileSystem()
    fs.make_directory(tmp_path / "a/b")
    for name in ("a/b/new", "old"):
        fs.open(tmp_path / name, writable=True, create=True).close()
    fs.lock(tmp_path / "lock", b"lock").release()
    assert of(tmp_path / "a") == of(tmp_path / "a/b") == (broker, broker, directory_mode & 0o775)
    assert of(tmp_path / "a/b/new") == of(tmp_path / "lock") == (broker, broker, file_mode)
    assert of(tmp_path / "old")[:2] == (0, 0)  # which was there


@pytest.fixture
def roots_own(tmp_path: Path) -> Path:
    """A file of root's, and beside it ``store``, a directory of the broker's user."""
    own = tmp_path / "shadow"
    own.touch(0o600)
    (tmp_path / "store").mkdir()
    os.chown(tmp_path / "store", 4711, 4711)
    return own


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("like", [False, True])
def test_link_created_in_race_does_not_change_owner_of_target(
    like: bool, fs: RealFileSystem, roots_own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = roots_own.with_name("store")
    (store / "old").touch()
    os.chown(store / "old", 4711, 4711)
    open_any = os.open

    def race(path: Path, flags: int, *rest: int, **named: int) -> int:
        if flags & os.O_CREAT and not (store / "new").is_symlink():
            (store / "new").symlink_to(roots_own)
        return open_any(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", race)
    with suppress(NotAStoreError):
        fs.open(store / "new", writable=True, create=True, like=store / "old" if like else None).close()
    assert (roots_own.stat().st_uid, roots_own.stat().st_mode & 0o777) == (0, 0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owner_of_new_file_follows_its_directory(
    fs: RealFileSystem, roots_own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the directory above may put one of his own in its place, a moment later."""
    parent, open_any = roots_own.parent / "parent", os.open
    parent.mkdir()

    def race(path: Path, flags: int, *rest: int, **named: int) -> int:
        made = open_any(path, flags, *rest, **named)
        if flags & os.O_CREAT:
            parent.rename(parent.with_name("moved"))
            roots_own.with_name("store").rename(parent)
        return made

    monkeypatch.setattr(os, "open", race)
    fs.open(parent / "new", writable=True, create=True).close()
    assert (parent.with_name("moved") / "new").stat().st_uid == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("when", ["before", "after"])
def test_owner_of_existing_directory_is_unchanged(
    when: str, fs: RealFileSystem, roots_own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, make = roots_own.with_name("store"), os.mkdir
    (store / "private").mkdir(0o700)
    (store / "private/file").touch()

    def race(path: Path, *rest: int, **named: int) -> None:
        if when == "after":
            make(path, *rest, **named)
        (store / "private").rename(store / "new")
        if when == "before":
            make(path, *rest, **named)

    monkeypatch.setattr(os, "mkdir", race)
    with suppress(OSError):
        fs.make_directory(store / "new")
    assert (store / "new").stat().st_uid == 0


def test_rename_to_another_mount_of_the_same_disk_fails_as_to_another_disk(tmp_path: Path) -> None:
    (tmp_path / "bound").mkdir()
    asks = (
        "from pathlib import Path; from gantrymq.fs.real import RealFileSystem as Fs;"
        " print([Fs().can_rename(Path('work/new'), Path(to)) for to in ('bound', 'bound/orders/0', 'beside')])"
    )
    words = ["unshare", "-rm", "sh", "-c", 'mount --bind bound bound && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], cwd=tmp_path, check=False).returncode:
        pytest.skip("this machine does not let us mount a directory")
    said = subprocess.check_output([*words, sys.executable, "-c", asks], cwd=tmp_path, text=True)
    assert said == "[False, False, True]\n"
    assert list(tmp_path.rglob("*")) == [tmp_path / "bound"]
