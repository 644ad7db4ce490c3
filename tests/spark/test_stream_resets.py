"""Streams whose logs, queues or stores are not those that were read: the next trigger, and a restart, say so."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow import fs
from spark_cases import expected_rows, in_log_order
from stream_cases import Stream, bodies, offsets

from gantrymq.errors import ConfigError, NotAStoreError, StoreError
from gantrymq.format.names import offset_name
from gantrymq.spark.data_loss import DataLossError
from gantrymq.spark.plan import log_order
from gantrymq.store.message_store import MessageStore
from gantrymq.tools import locations as places
from store_cases import GEOMETRY_KEYS, SMALL, await_dispatch, fill, numbered, open_store

BODY = ("topic", "queue_id", "queue_offset", "body")
RESET = "the messages before offset 20 are not those that were read"


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%08d" % number for number in range(first, first + count)]


def make_store(path: Path, count: int, first: int = 0, topic: str = "orders") -> None:
    with open_store(path=path) as store:
        store.put_batch(numbered(count, first=first, topic=topic))


@contextmanager
def restarted(path: Path, checkpoint: str, **options: object) -> Iterator[Stream]:
    with Stream(path, *BODY, checkpoint=checkpoint, **options) as stream:
        yield stream


def recreate_store(path: Path) -> None:
    shutil.rmtree(path)
    make_store(path, 30, first=500)


def recreate_topic(path: Path) -> None:
    with MessageStore.open(path, SMALL, given=GEOMETRY_KEYS, housekeeping=False) as store:
        assert store.delete_topic("orders").queues
        store.put_batch(numbered(30, first=500))
        await_dispatch(store)


@pytest.fixture
def read_store(tmp_path: Path) -> tuple[Path, str]:
    """A store of 20 messages, and the checkpoint of a stream that has read them all."""
    path = tmp_path / "s"
    make_store(path, 20)
    with Stream(path, *BODY, startingOffsets="earliest") as stream:
        assert len(stream.batch()) == 20
        return path, stream.checkpoint


RECREATED = {"store": recreate_store, "topic": recreate_topic}


@pytest.mark.parametrize("recreate", RECREATED.values(), ids=RECREATED)
def test_restart_detects_recreated_queue_with_more_messages(
    read_store: tuple[Path, str], recreate: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path, checkpoint = read_store
    recreate(path)
    with (
        restarted(path, checkpoint) as strict,
        pytest.raises(DataLossError, match=f"topic orders, broker s, queue 0: .*{RESET}.*onQueueReset=earliest"),
    ):
        strict.batch()
    with restarted(path, checkpoint, failOnDataLoss=False) as lenient:
        assert lenient.batch() == []
        assert bodies(lenient.batch()) == numbers(30, 500)
        assert lenient.batch() == []
    assert RESET in caplog.text


@pytest.mark.parametrize("recreate", RECREATED.values(), ids=RECREATED)
def test_onQueueReset_decides_about_recreated_queue(
    read_store: tuple[Path, str], recreate: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path, checkpoint = read_store
    recreate(path)
    with (
        restarted(path, checkpoint, failOnDataLoss=False, onQueueReset="fail") as failing,
        pytest.raises(DataLossError, match=RESET),
    ):
        failing.batch()
    with restarted(path, checkpoint, onQueueReset="earliest") as earliest:
        assert bodies([row for _ in range(2) for row in earliest.batch()]) == numbers(30, 500)
    with restarted(path, checkpoint, onQueueReset="latest") as latest:
        assert latest.batch() == []
        make_store(path, 5, first=900)
        assert bodies(latest.batch()) == numbers(5, 900)
    assert "onQueueReset=latest: topic orders, broker s, queue 0: " in caplog.text
    with pytest.raises(ConfigError, match=r"onQueueReset.*earliest, latest or fail"):
        Stream(path, onQueueReset="none")


def test_onQueueReset_reads_queue_shorter_than_checkpoint(read_store: tuple[Path, str]) -> None:
    """What was read is not lost: failOnDataLoss, which is on, has nothing to say of it."""
    path, checkpoint = read_store
    shutil.rmtree(path)
    make_store(path, 5, first=500)
    for available_now in (False, True):
        with restarted(path, checkpoint, onQueueReset="earliest") as stream:
            if available_now:
                stream.reader.prepareForTriggerAvailableNow()
            assert bodies([row for _ in range(2) for row in stream.batch()]) == numbers(5, 500)


@pytest.mark.parametrize("held", ["[]", "5", '{"orders":5}', '{"orders":{"s":{"x":1}}}', '{"orders":{"s":{"0":null}}}'])
def test_foreign_checkpoint_raises_one_clear_error(read_store: tuple[Path, str], held: str) -> None:
    with restarted(read_store[0], held) as stream, pytest.raises(ConfigError, match=r"checkpointLocation=.* damaged"):
        stream.batch()


def test_replanned_reset_batch_is_same(read_store: tuple[Path, str]) -> None:
    path, checkpoint = read_store
    recreate_store(path)
    for policy, expected in (("latest", 0), ("earliest", 0)):
        with restarted(path, checkpoint, onQueueReset=policy) as stream:
            end = stream.latest()
        with restarted(path, checkpoint, onQueueReset=policy) as again:
            assert sum(map(len, again.rows_between(checkpoint, end))) == expected


def test_shorter_recreated_topic_is_read_from_first_message(read_store: tuple[Path, str]) -> None:
    path, checkpoint = read_store
    with MessageStore.open(path, SMALL, given=GEOMETRY_KEYS, housekeeping=False) as store:
        store.delete_topic("orders")
        store.put_batch(numbered(3, first=500))
        await_dispatch(store)
    with restarted(path, checkpoint) as strict, pytest.raises(DataLossError, match="but the queue ends at 3"):
        strict.batch()
    with restarted(path, checkpoint, failOnDataLoss=False) as lenient:
        assert lenient.batch() == []
        assert bodies(lenient.batch()) == numbers(3, 500)


def test_stream_after_log_truncation_continues_without_repeats(tmp_path: Path) -> None:
    path = tmp_path / "s"
    make_store(path, 400)
    with Stream(path, *BODY, startingOffsets="earliest") as stream:
        stream.batch()
        checkpoint = stream.checkpoint
    files = sorted((path / "commitlog").iterdir())
    files[-1].unlink()
    (path / "abort").touch()
    with open_store(path=path, accepts_missing_end=True):  # as `recover` does, so that the queue ends sooner
        pass
    with restarted(path, checkpoint) as strict, pytest.raises(DataLossError, match="offset 400 was expected"):
        strict.batch()
    with restarted(path, checkpoint, failOnDataLoss=False) as lenient:
        assert lenient.batch() == []
        make_store(path, 4, first=900)
        assert bodies(lenient.batch()) == numbers(4, 900)


def test_unread_messages_lost_by_truncation_are_named(tmp_path: Path) -> None:
    path = tmp_path / "s"
    make_store(path, 20)
    with (
        Stream(path, *BODY, startingOffsets="earliest", maxOffsetsPerTrigger=5) as strict,
        Stream(path, *BODY, startingOffsets="earliest", maxOffsetsPerTrigger=5, failOnDataLoss=False) as lenient,
    ):
        for stream in (strict, lenient):
            assert bodies(stream.batch()) == numbers(5)
        shutil.copytree(path, path.parent / "copy")
        shutil.rmtree(path)
        make_store(path, 12)
        with pytest.raises(DataLossError):
            strict.batch()


def test_renamed_store_at_restart_raises(read_store: tuple[Path, str]) -> None:
    path, checkpoint = read_store
    renamed = path.rename(path.parent / "t")
    says = r"no store of broker s, which this query has read \(there: t\).* brokerName=s .* retiredBrokers=s "
    with restarted(renamed, checkpoint, failOnDataLoss=False) as stream, pytest.raises(NotAStoreError, match=says):
        stream.batch()
    with restarted(renamed, checkpoint, brokerName="s") as stream:
        assert stream.batch() == []
    with restarted(renamed, checkpoint, retiredBrokers="s") as stream:
        assert len(stream.batch()) == 20


def empty_mount(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def without_log(path: Path) -> None:
    shutil.rmtree(path / "commitlog")


def with_empty_log(path: Path) -> None:
    without_log(path)
    (path / "commitlog").mkdir()


VANISHED = {"no store": shutil.rmtree, "empty mount": empty_mount, "no log": without_log, "empty log": with_empty_log}


@pytest.mark.parametrize("is_glob", [False, True], ids=["path", "glob"])
@pytest.mark.parametrize("is_restart", [False, True], ids=["trigger", "restart"])
@pytest.mark.parametrize("vanish", VANISHED.values(), ids=VANISHED)
def test_vanished_store_raises_with_any_failOnDataLoss(
    tmp_path: Path, vanish: Callable[[Path], None], is_restart: bool, is_glob: bool
) -> None:
    for broker in ("broker-a", "broker-b"):
        make_store(tmp_path / broker, 20)
    path = tmp_path / ("*" if is_glob else "broker-b")
    with Stream(path, *BODY, startingOffsets="earliest", failOnDataLoss=False) as stream:
        assert len(stream.batch()) == (40 if is_glob else 20)
        vanish(tmp_path / "broker-b")
        if is_restart:
            stream.reader.stop()
        for _ in range(2):
            with pytest.raises(StoreError, match="broker-b"):
                stream.batch()


def test_missing_middle_log_file_raises_before_read(tmp_path: Path) -> None:
    make_store(tmp_path, 600)
    with Stream(tmp_path, *BODY, startingOffsets="earliest", failOnDataLoss=False) as stream:
        end = stream.latest()
        second = sorted((tmp_path / "commitlog").iterdir())[1]
        second.unlink()
        with pytest.raises(StoreError, match=f"{second.name}: is missing on host .* retention did not delete it"):
            stream.reader.partitions(json.loads(stream.checkpoint), json.loads(end))


def test_empty_directory_matching_glob_raises(tmp_path: Path) -> None:
    make_store(tmp_path / "broker-a", 3)
    (tmp_path / "broker-b").mkdir()
    with pytest.raises(NotAStoreError, match=r"broker-b: is an empty directory.* is its disk mounted"):
        Stream(f"{tmp_path}/*", *BODY)
    (tmp_path / "broker-b").rename(tmp_path / "lost+found")
    with Stream(f"{tmp_path}/*", *BODY, startingOffsets="earliest") as stream:
        assert len(stream.batch()) == 3


@pytest.mark.parametrize("restart", [False, True])
def test_continuous_retention_under_stream_causes_no_warning(tmp_path: Path, rng: random.Random, restart: bool) -> None:
    """The first mark goes with the first file, and in the end the last one, too."""
    rows = []
    with open_store(path=tmp_path):
        pass
    with Stream(tmp_path, startingOffsets="earliest") as stream:
        for _ in range(12):
            with open_store(path=tmp_path) as store:
                fill(store, 60, rng)
                end = store.max_phy_offset
            rows += stream.batch()
            files = sorted((tmp_path / "commitlog").iterdir())
            for file in files[: max(len(files) - 3, 0)]:
                file.unlink()
            if restart:
                stream.reader.stop()
        size = SMALL.mapped_file_size_commit_log
        assert (tmp_path / "commitlog" / offset_name(end // size * size)).exists()
    assert len({(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows}) == len(rows)
    left = expected_rows(tmp_path)
    assert in_log_order(rows)[-len(left) :] == left


def test_checkpoint_without_log_marks_continues(read_store: tuple[Path, str]) -> None:
    path, checkpoint = read_store
    assert set(json.loads(checkpoint)) == {"#log", "#start", "orders"}
    make_store(path, 4, first=20)
    with restarted(path, json.dumps(offsets(checkpoint))) as stream:
        assert bodies(stream.batch()) == numbers(4, 20)


def test_marks_stay_while_nothing_comes(read_store: tuple[Path, str]) -> None:
    path, checkpoint = read_store
    with restarted(path, checkpoint) as stream:
        assert stream.latest() == checkpoint


@pytest.mark.usefixtures("elsewhere")
def test_remote_store_with_empty_prefix_raises(read_store: tuple[Path, str]) -> None:
    """An object store has no empty directories: what is missing lists as nothing, or not at all."""
    path, checkpoint = read_store
    with Stream(f"elsewhere://{path}", *BODY, checkpoint=checkpoint, failOnDataLoss=False) as stream:
        assert stream.batch() == []
        shutil.rmtree(path / "commitlog")
        with pytest.raises(StoreError, match="commitlog: is missing or has no log file, but it was read before"):
            stream.batch()
        shutil.rmtree(path)
        path.mkdir()
        with pytest.raises(NotAStoreError):
            stream.batch()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    known = places._opened

    def opened(uri: str | None, path: str = "/") -> tuple[object, str]:
        if uri is None or not uri.startswith("elsewhere://"):
            found: tuple[object, str] = known(uri, path)
            return found
        return fs.LocalFileSystem(), uri.removeprefix("elsewhere://")

    monkeypatch.setattr(places, "_opened", opened)


@pytest.mark.parametrize("units", [1 << 16, 10], ids=["at once", "by halves"])
def test_maxBytesPerTrigger_limits_batch(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, units: int
) -> None:
    monkeypatch.setattr(log_order, "_READ_UNITS", units)
    limit = 3000
    with open_store(path=tmp_path) as store:
        fill(store, 100, rng)
        with Stream(tmp_path, startingOffsets="earliest", maxBytesPerTrigger=limit) as stream:
            batches = stream.batches()
            fill(store, 60, rng)
            batches += stream.batches()  # of what is known from the log itself
    assert [row for batch in batches for row in batch] == expected_rows(tmp_path)
    sizes = [sum(row["size"] for row in batch) for batch in batches]
    assert all(size <= limit for size, batch in zip(sizes, batches, strict=True) if len(batch) > 1)
    assert len(batches) < 2 * sum(sizes) / limit + 2


def test_smaller_of_byte_and_offset_limit_applies(tmp_path: Path) -> None:
    make_store(tmp_path, 40)
    size = expected_rows(tmp_path)[0]["size"]
    options = {"startingOffsets": "earliest", "maxBytesPerTrigger": 10 * size}
    with Stream(tmp_path, *BODY, **options, maxOffsetsPerTrigger=7) as stream:
        assert {len(batch) for batch in stream.batches()[:-1]} == {7}
    with Stream(tmp_path, *BODY, **options, maxOffsetsPerTrigger=1000) as stream:
        assert {len(batch) for batch in stream.batches()[:-1]} == {10}
    with Stream(tmp_path, *BODY, startingOffsets="earliest", maxBytesPerTrigger=1) as stream:
        assert {len(batch) for batch in stream.batches()} == {1}
    with Stream(tmp_path, *BODY, startingOffsets="earliest", maxBytesPerTrigger="1g") as stream:
        assert len(stream.batch()) == 40


def test_bad_sector_below_mark_does_not_stop_stream(
    read_store: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, checkpoint = read_store
    make_store(path, 4, first=20)
    preadv, last = os.preadv, max(map(int, json.loads(checkpoint)["#log"]["s"]))

    def fails(fd: int, buffers: list[memoryview], position: int) -> int:
        if position == last and os.readlink(f"/proc/self/fd/{fd}").endswith(offset_name(0)):
            raise OSError(5, "Input/output error")
        return preadv(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", fails)
    with restarted(path, checkpoint) as stream:
        assert bodies(stream.batch()) == numbers(4, 20)
