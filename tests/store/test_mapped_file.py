"""One file of a queue of files: memory for what comes, and pages that are let go of."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import DiskError, DiskFullError, StoreError, SyncFailedError
from gantrymq.fs.api import File, FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.store.log import mapped_file
from gantrymq.store.log.batch import of_messages
from gantrymq.store.log.mapped_file import PAGE_SIZE, MappedFile
from memory_file_system import MemoryFileSystem
from store_cases import await_dispatch, bodies, odd_message, open_store

SIZE = 1 << 20


def opened(fs: FileSystem, path: Path) -> File:
    file = fs.open(path, writable=True, create=True)
    file.resize(SIZE)
    file.reserve(0, SIZE)
    return file


@pytest.fixture(params=[RealFileSystem, MemoryFileSystem])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], MappedFile]:
    fs = request.param()
    fs.make_directory(tmp_path)
    path = tmp_path / "0"
    opened(fs, path).close()
    return lambda: MappedFile(path, 0, SIZE, partial(fs.open, path, writable=True))


def test_prefault_before_writes_of_any_size_changes_no_byte(make: Callable[[], MappedFile], rng: random.Random) -> None:
    file, expected = make(), bytearray()
    while len(expected) < SIZE:
        piece = rng.randbytes(min(rng.choice((1, 100, 5000, 70_000, 400_000)), SIZE - len(expected)))
        file.prefault(rng.choice((0, len(piece), 10_000_000)))
        if rng.random() < 0.5:
            file.write(piece)
        else:
            file.append(piece)
        expected += piece
        if rng.random() < 0.3:
            file.flush()
        if rng.random() < 0.1:
            assert bytes(file.array[: len(expected)]) == expected
            assert not file.array[len(expected) :].any()
    assert file.is_full
    assert file.file.read_at(0, SIZE) == bytes(file.array) == expected
    file.close()


def test_prefault_runs_ahead_once(make: Callable[[], MappedFile]) -> None:
    file = make()
    file.prefault(100)
    ahead = file.prefaulted_to
    assert 100 < ahead < SIZE
    file.write(b"x" * ahead)
    file.prefault(1)
    assert file.prefaulted_to == 2 * ahead
    file.set_positions(10)
    assert file.prefaulted_to == 0, "what was cut may be a hole again"
    file.close()


def test_prefaulting_changes_no_written_byte(
    make: Callable[[], MappedFile], rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_file, "_ZEROS_AHEAD", memoryview(bytes(10_000)))
    for _ in range(5):
        file, expected, is_over = make(), bytearray(), threading.Event()

        def ahead(file: MappedFile = file, is_over: threading.Event = is_over) -> None:
            while not is_over.is_set():
                file.prefault_ahead(SIZE)

        with ThreadPoolExecutor() as pool:
            running = pool.submit(ahead)
            while len(expected) < SIZE:
                piece = rng.randbytes(min(rng.choice((1, 100, 5000, 70_000)), SIZE - len(expected)))
                if rng.random() < 0.2:
                    file.append_ahead(np.frombuffer(piece + bytes(PAGE_SIZE), np.uint8), len(piece))
                else:
                    file.prefault(len(piece))
                    file.write(piece)
                expected += piece
            is_over.set()
            running.result()
        assert bytes(file.array) == expected
        file.cut_to(0)
        file.wipe_rest()
        file.close()


def test_prefault_ahead_needs_open_file_in_use(make: Callable[[], MappedFile], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_file, "_ZEROS_AHEAD", memoryview(bytes(10_000)))
    file = make()
    assert not file.array.any()
    file.prefault_ahead(100_000)
    assert file.prefaulted_to == 0, "a writer that goes on elsewhere may be about to end the file there"
    file.prefault(1)
    near = file.prefaulted_to
    file.prefault_ahead(near)
    assert file.prefaulted_to == near + 10_000
    file.prefault_ahead(near + 10_000 - PAGE_SIZE)
    assert file.prefaulted_to == near + 10_000
    file.close()
    file.prefault_ahead(SIZE)
    assert file.prefaulted_to == near + 10_000


def fail_half_way(file: MappedFile, monkeypatch: pytest.MonkeyPatch, error: type[StoreError] = DiskFullError) -> None:
    """Let a write fail when half of it is there."""
    write_at = type(file.file).write_at

    def half(opened: File, position: int, data: memoryview) -> None:
        write_at(opened, position, data[: len(data) // 2])
        raise DiskFullError("disk", len(data))

    with monkeypatch.context() as patch:
        patch.setattr(type(file.file), "write_at", half)
        with pytest.raises(error):
            file.append_ahead(np.full(100, 7, np.uint8), 80)
    assert file.wrote_position == 0


def test_write_failing_halfway_leaves_zeros(make: Callable[[], MappedFile], monkeypatch: pytest.MonkeyPatch) -> None:
    """The next to look for the end of the log would find records that were refused."""
    file = make()
    file.prefault(1)
    fail_half_way(file, monkeypatch)
    assert not file.array[:1000].any()
    file.prefault(10)
    file.append_ahead(np.array([7] * 80 + [0] * 20, np.uint8), 80)
    assert (file.wrote_position, file.array[:100].tolist()) == (80, [7] * 80 + [0] * 20)
    file.close()


def test_failed_zeroing_marks_content_as_unknown(
    make: Callable[[], MappedFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(opened: File, position: int, length: int) -> None:
        raise DiskError("disk", "Input/output error")

    file = make()
    file.prefault(1)
    with monkeypatch.context() as patch:
        patch.setattr(type(file.file), "zero", broken)
        fail_half_way(file, patch, SyncFailedError)
    # Behind a record that ends where one of those begins, they would come to life.
    file.prefault(10)
    assert not file.array[:1000].any()
    file.close()


def test_write_buffer_prefaults_no_page_of_file(make: Callable[[], MappedFile]) -> None:
    file = make()
    file.write_into(np.zeros(SIZE, np.uint8), lambda buffer: None)
    file.prefault(1000)
    assert file.prefaulted_to == 0
    file.close()


def test_released_pages_are_read_again(tmp_path: Path, rng: random.Random) -> None:
    file = opened(RealFileSystem(), tmp_path / "0")
    array, data = file.map(), np.frombuffer(rng.randbytes(SIZE), np.uint8)
    array[:] = data
    for _ in range(20):
        begin = rng.randrange(SIZE)
        file.release_pages(begin, rng.randrange(SIZE - begin + 1))
    assert (array == data).all()
    file.release_pages(0, SIZE)
    assert file.read_at(0, SIZE) == data.tobytes()
    file.sync()
    file.close()
    file.release_pages(0, SIZE)  # nobody is there any more
    assert (array == data).all()


def test_batch_append_uses_at_most_its_computed_bytes(tmp_path: Path, rng: random.Random) -> None:
    plain = (odd_message(rng) for _ in range(10_000))
    messages = []
    for one in plain:
        if not (one.delay_level or one.sys_flag or one.prepared_transaction_offset or one.store_host):
            messages.append(Message(one.topic, one.body, one.queue_id, one.tags, one.keys, one.properties))
    with open_store(path=tmp_path, config=MessageStoreConfig(enabled_append_prop_crc=True)) as store:
        done = 0
        while done < len(messages):
            batch = messages[done : done + rng.randrange(1, 300)]
            columns = of_messages(batch, store.config)
            assert columns is not None
            begin = store.max_phy_offset
            store.put_batch(batch)
            took = store.max_phy_offset - begin
            assert took <= columns.most_bytes_from(0) <= took + 128 * len(batch)
            done += len(batch)
        await_dispatch(store)
        assert bodies(store, "orders", 0) == [m.body for m in messages if (m.topic, m.queue_id) == ("orders", 0)]


def test_file_with_failed_mapping_is_closed() -> None:
    def fails() -> File:
        raise OSError(24, "Too many open files")

    file = MappedFile(Path("0"), 0, SIZE, fails)
    file.set_positions(100)
    with pytest.raises(OSError, match="Too many"):
        file.select(0, 10)
    assert file.shutdown(0, 1), "nobody holds it"


def test_file_truncated_by_another_program_raises_error_with_offset(tmp_path: Path) -> None:
    path, fs = tmp_path / "0", RealFileSystem()
    opened(fs, path).close()
    mapped, late = (MappedFile(path, 0, SIZE, partial(fs.open, path)) for _ in range(2))
    assert not mapped.read(SIZE - 100, 100).any()
    path.write_bytes(bytes(10_000))
    with pytest.raises(DiskError, match="cannot be read at byte 12288: the file was truncated"):  # the next page
        mapped.read(8192, 8192)
    assert not mapped.read(0, 8192).any()
    with pytest.raises(DiskError, match="cannot be read at byte 10000: the file was truncated"):
        late.read(0, 10)
