"""What other programs do to the files of an open store: it stops acknowledging, and says which file it was."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gantrymq.broker.store_log import log_failure
from gantrymq.config.settings import FlushDiskType
from gantrymq.errors import NotInPlaceError, StoreLockedError, SyncFailedError
from gantrymq.fs.lock_holder import lock_holder
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.message_store import MessageStore
from gantrymq.store.store_watch import StoreWatch, _Round
from store_cases import SMALL, await_dispatch

MESSAGE = Message("orders", b"x" * 500, queue_id=0, keys=["a key"])
SYNC = replace(SMALL, flush_disk_type=FlushDiskType.SYNC_FLUSH)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreWatch, "interval_ms", 10)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def move_away(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}.moved"))


def replace_by_a_copy(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copytree(path, copy) if path.is_dir() else shutil.copyfile(path, copy)
    remove(path)
    copy.rename(path)


def cut(path: Path) -> None:
    os.truncate(path, 100)


def written(store: Path) -> Path:
    """The log file that the next message goes into: behind it lies one that was made ahead."""
    return max(path for path in (store / "commitlog").iterdir() if path.read_bytes()[:4] != bytes(4))


def oldest(store: Path) -> Path:
    return min((store / "commitlog").iterdir())


@pytest.fixture(params=[SYNC, SMALL], ids=["SYNC_FLUSH", "ASYNC_FLUSH"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessageStore]:
    """An open store with a few files of everything."""
    opened = MessageStore.open(tmp_path / "store", request.param)
    for _ in range(100):
        opened.put(MESSAGE)
    await_dispatch(opened)
    yield opened
    with suppress(SyncFailedError, FileNotFoundError):
        opened.close()


def acknowledged_until_refused(store: MessageStore) -> int:
    """How many puts are acknowledged before none is any more; the test's time limit ends a store that never stops."""
    for count in range(10**9):
        try:
            if store.put(MESSAGE).status is not PutMessageStatus.PUT_OK:
                return count
        except NotInPlaceError:
            return count
        time.sleep(0.001)
    return -1


@pytest.mark.parametrize(
    ("which", "harm"),
    [
        (written, remove),
        (written, replace_by_a_copy),
        (oldest, remove),
        (oldest, cut),
        (lambda store: store / "commitlog", remove),
        (lambda store: store / "commitlog", move_away),
        (lambda store: store / "consumequeue", remove),
        (lambda store: store / "consumequeue", replace_by_a_copy),
        (lambda store: store / "index", remove),
        (lambda store: max((store / "index").iterdir()), remove),
        (lambda store: max((store / "consumequeue/orders/0").iterdir()), remove),
        (lambda store: store / "lock", remove),
        (lambda store: store / "lock", replace_by_a_copy),
        (lambda store: store, move_away),
    ],
)
def test_store_with_files_changed_by_another_program_stops_acknowledging(
    store: MessageStore, tmp_path: Path, which: Callable[[Path], Path], harm: Callable[[Path], None]
) -> None:
    harm(which(tmp_path / "store"))
    acknowledged_until_refused(store)
    assert not store.is_writable
    assert any("by another program while the store had it open" in str(error) for _, error in store.failures)
    assert store.put(MESSAGE).status is PutMessageStatus.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize("growth", [0, 1, 2, 10, 30])
def test_store_watch_of_growing_list_checks_each_file_again(growth: int) -> None:
    # With the place computed from the number of the step, file 25 was not due in 800 steps in a row at one file a step.
    watched, files, gap, longest = _Round(), list(range(30)), 0, 0
    for _ in range(2_000):
        files.extend(range(len(files), len(files) + growth))
        gap = 0 if 25 in watched.due(files) else gap + 1
        longest = max(longest, gap)
    assert longest <= len(files) // 64
    assert files[-1] in watched.due(files)


@pytest.mark.parametrize("harm", [remove, replace_by_a_copy])
def test_sync_flush_into_unlinked_file_is_not_acknowledged(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    store = MessageStore.open(tmp_path / "store", SYNC)
    assert store.put(MESSAGE).status is PutMessageStatus.PUT_OK
    harm(written(tmp_path / "store"))
    assert acknowledged_until_refused(store) == 0
    with suppress(SyncFailedError):
        store.close()
    assert (tmp_path / "store" / "abort").exists()


def test_watch_failure_is_one_log_line_with_path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = MessageStore.open(tmp_path / "store", SMALL, on_failure=log_failure)
    store.put(MESSAGE)
    await_dispatch(store)
    remove(tmp_path / "store" / "index")
    acknowledged_until_refused(store)
    with suppress(SyncFailedError, FileNotFoundError):
        store.close()
    [line] = [one for one in caplog.messages if "acknowledges no more messages" in one]
    assert f"{tmp_path}/store/index" in line
    assert "was removed by another program" in line


def test_removed_preallocated_log_file_is_created_again(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        for _ in range(40):
            store.put(MESSAGE)
        await_dispatch(store)
        for path in (tmp_path / "store" / "commitlog").iterdir():
            if path > written(tmp_path / "store"):
                path.unlink()
        for _ in range(100):
            assert store.put(MESSAGE).status is PutMessageStatus.PUT_OK
        assert not store.failures


def test_deletion_by_retention_does_not_stop_acknowledging(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        for _ in range(200):
            store.put(MESSAGE)
        await_dispatch(store)
        store._log.queue.flush_all()
        while store._log.queue.remove_first(0, 0):
            pass
        assert len(store._log.queue.files) < 3
        for file in store._log.queue.files:
            store._log.queue.require_in_place(file)
        assert not store.failures


# The lock


def test_second_writer_after_removed_lock_file_is_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL):
        (tmp_path / "store" / "lock").unlink()
        with pytest.raises(StoreLockedError, match="is open in another process"):
            MessageStore.open(tmp_path / "store", SMALL)
        code = "import sys; from gantrymq.store.message_store import MessageStore; MessageStore.open(sys.argv[1])"
        second = subprocess.run([sys.executable, "-c", code, tmp_path / "store"], capture_output=True, check=False)
        assert b"is open in another process" in second.stderr
    MessageStore.open(tmp_path / "store", SMALL).close()


def test_forked_child_does_not_keep_lock(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "store", SMALL, housekeeping=False)
    ends = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ends[0], 1)
        os._exit(0)
    try:
        store.close()
        assert lock_holder(tmp_path / "store" / "lock") is None
        MessageStore.open(tmp_path / "store", SMALL).close()
    finally:
        os.write(ends[1], b"x")
        os.waitpid(child, 0)
        os.close(ends[0])
        os.close(ends[1])
