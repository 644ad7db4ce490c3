"""The dispatcher follows the log: nothing is passed over, wherever its end is when it looks."""

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import DiskFullError
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.model.host import Host
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.log.append import MessageAppender
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue import queue_dispatch
from gantrymq.store.queue.consume_queues import ConsumeQueues
from gantrymq.store.queue.queue_dispatch import Arrival, QueueDispatcher
from gantrymq.store.reput import ReputMessageService
from memory_file_system import MemoryFileSystem
from store_cases import BARE, NOON_MS, ROOT, files_of, numbered

HOST = Host(bytes([127, 0, 0, 1]), 10911)


@dataclass
class Log:
    """A log with a dispatcher behind it, stepped by hand."""

    log: CommitLog
    queues: ConsumeQueues
    appender: MessageAppender
    reput: ReputMessageService
    dispatcher: QueueDispatcher
    fs: MemoryFileSystem
    put: int = 0

    def append(self, count: int = 1) -> None:
        for message in numbered(count, first=self.put):
            one = AppendableMessage(message)
            assert one.check(BARE, HOST) is PutMessageStatus.PUT_OK
            self.appender.append(one, 1_700_000_000_000)
            self.put += 1

    def fill_first_file(self) -> None:
        while len(self.log.queue.files) < 2:
            self.append()

    def dispatched(self) -> int:
        queue = self.queues.get("orders", 0)
        assert queue is not None
        assert queue.min_offset == 0
        places = [entry.phy_offset for entry in map(queue.entry, range(queue.max_offset)) if entry is not None]
        assert places == sorted(set(places)), "a pre-blank stands in the queue: units were passed over"
        return queue.max_offset


@pytest.fixture
def log() -> Log:
    return new_log(BARE)


def new_log(config: MessageStoreConfig, on_arrival: Arrival | None = None) -> Log:
    fs, paths = MemoryFileSystem(), StorePaths(ROOT)
    fs.make_directory(ROOT)
    commit_log = CommitLog(fs, paths, config.mapped_file_size_commit_log)
    queues = ConsumeQueues(fs, paths, config)
    checkpoint = StoreCheckpoint(fs, paths.checkpoint)
    assert checkpoint.page == Checkpoint()
    appender = MessageAppender(commit_log, {}, HOST, append_crc=False)
    dispatcher = QueueDispatcher(queues, config.delay_levels_ms, checkpoint, on_arrival)
    reput = ReputMessageService(commit_log, dispatcher, None, lambda: commit_log.max_offset, 0)
    return Log(commit_log, queues, appender, reput, dispatcher, fs)


def test_dispatcher_follows_log_over_many_files(log: Log) -> None:
    log.append(500)
    while log.reput.step(0):
        pass
    assert log.reput.reput_from_offset >= log.log.max_offset
    assert log.dispatched() == 500


def test_dispatcher_waits_at_empty_next_file(log: Log) -> None:
    """The blank is in place and the next file made, but its first record is not: no file may be passed over."""
    log.fill_first_file()
    before = log.put - 1
    second = log.log.queue.files[1]
    behind = second.wrote_position
    log.reput.drain()
    second.set_positions(0)
    log.reput.reput_from_offset = log.log.queue.files[0].file_from_offset
    log.reput.drain()
    assert log.reput.reput_from_offset == second.file_from_offset
    second.set_positions(behind)
    log.append(500)
    log.reput.drain()
    assert log.dispatched() == before + 501


@pytest.mark.parametrize("has_next_file", [False, True])
def test_end_of_last_file_is_end_of_log(log: Log, has_next_file: bool) -> None:
    while log.log.queue.files[-1].size - log.log.queue.files[-1].wrote_position > 500 if log.put else True:
        log.append()
    log.reput.drain()
    count = log.put
    log.log.fill_blank(log.log.queue.files[-1])
    if has_next_file:
        log.log.queue.last_for_append()
    log.reput.step(0)
    assert log.reput.reput_from_offset >= log.log.max_offset
    log.append(400)
    log.reput.drain()
    assert log.dispatched() == count + 400


def test_unconfirmed_records_are_not_dispatched(log: Log) -> None:
    log.append(300)
    confirmed = [log.log.max_offset]
    log.reput._end_offset = lambda: confirmed[0]
    log.append(300)
    log.reput.drain()
    assert log.dispatched() == 300
    confirmed[0] = log.log.max_offset
    log.reput.drain()
    assert log.dispatched() == 600


def test_dispatcher_waits_longer_after_larger_batch(log: Log) -> None:
    def rest_after(count: int) -> float:
        log.append(count)
        log.reput.drain()
        return log.reput.rest_ms()

    assert [rest_after(count) for count in (0, 1, 2, 5, 200, 1)] == [1.0, 1.0, 1.0, 2.5, 5.0, 1.0]


class FullIndex:
    """An index that a full disk left behind at the log's begin; it notes how far the queues are when it is asked."""

    def __init__(self, log: Log) -> None:
        self.reput = log.reput
        self.reput._index = self  # type: ignore[assignment]
        self.told: list[tuple[int, int]] = []
        self.has_room = False
        self.is_behind = True

    def disk_full(self) -> DiskFullError | None:
        return DiskFullError(ROOT, 1) if self.is_behind else None

    def resume(self) -> int:
        self.is_behind = not self.has_room
        return 0

    def dispatch(self, batch: RecordBatch, now_ms: int | None) -> None:
        self.told.append((self.reput.reput_from_offset, self.reput.queues_end_offset))


def test_index_revalidation_does_not_move_queues(log: Log) -> None:
    """A new log file leaves room for units that the queues lack; it was refused while the index caught up."""
    log.append(300)
    while log.reput.step(0):
        pass
    index = FullIndex(log)
    with pytest.raises(DiskFullError):
        log.reput.step(0)
    assert index.told == [(0, log.log.max_offset)]
    assert log.reput.reput_from_offset == log.reput.queues_end_offset == log.log.max_offset
    assert log.dispatched() == 300


def test_deleted_queue_stays_deleted_when_index_catches_up(log: Log) -> None:
    """The queues were given all of it once more, and one that is gone has nothing that says so."""
    index = FullIndex(log)
    log.append(300)
    with pytest.raises(DiskFullError):
        log.reput.drain()
    deleted = log.queues.get("orders", 0)
    assert deleted is not None
    deleted.destroy()
    index.has_room, index.told = True, []
    log.reput.drain()
    assert index.told[0] == (0, log.log.max_offset)
    assert log.dispatched() == 0
    log.appender = MessageAppender(log.log, {}, HOST, append_crc=False)
    log.append()
    log.reput.drain()
    assert log.dispatched() == 1


def test_truncated_queue_gets_its_units_again(log: Log) -> None:
    log.append(100)
    log.reput.drain()
    queue = log.queues.get("orders", 0)
    assert queue is not None
    cut = queue.entry(60)
    assert cut is not None
    queue.truncate(cut.phy_offset)
    log.reput.reput_from_offset = 0
    log.reput.drain()
    assert log.dispatched() == 100


def test_two_damaged_topic_names_decoding_alike_are_one_queue(log: Log) -> None:
    """To Java both topics are "or" and four of U+FFFD, and so they are one directory: no unit may be passed over."""
    log.append(8)
    for offset, spelling in enumerate((b"\xff\xff\xff\xff", b"\xfe\xfe\xfe\xfe") * 4):
        raw = log.log.queue.files[0].array
        at = offset * (log.log.max_offset // 8) + raw[offset * (log.log.max_offset // 8) :].tobytes().index(b"orders")
        raw[at + 2 : at + 6] = np.frombuffer(spelling, np.uint8)
    log.reput.drain()
    queue = log.queues.get("or" + 4 * "\ufffd", 0)
    assert queue is not None
    assert [entry.phy_offset for entry in map(queue.entry, range(8)) if entry] == [
        number * log.log.max_offset // 8 for number in range(8)
    ]


@pytest.mark.parametrize("has_ext", [False, True])
def test_dispatch_of_many_queues_equals_that_of_few(has_ext: bool, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a topic was made anew, and where a queue misses something of the log."""
    config = replace(BARE, enable_consume_queue_ext=has_ext, mapped_file_size_consume_queue_ext=4096)
    found = []
    for many in (1, 1_000):
        monkeypatch.setattr(queue_dispatch, "_MANY_QUEUES", many)
        arrived: list[tuple[str, int, int]] = []
        log, rng = new_log(config, lambda *queue, to=arrived: to.append(queue)), random.Random(seed)
        for _ in range(40):
            for _ in range(rng.randrange(100)):
                one = AppendableMessage(Message(f"t{rng.randrange(30)}", b"x"))
                assert one.check(config, HOST) is PutMessageStatus.PUT_OK
                log.appender.append(one, NOON_MS)
            log.reput.drain()
            offsets = log.queues.next_offsets()
            key = rng.choice(sorted(offsets)) if offsets else ("t0", 0)
            offsets[key] = rng.choice([0, offsets.get(key, 0) + rng.randrange(6)])
            log.appender = MessageAppender(log.log, offsets, HOST, append_crc=False)
        files = {path: data for path, data in files_of(log.fs).items() if "commitlog" not in path.parts}
        assert len(files) > 30
        found.append((files, log.dispatcher.added, sorted(arrived)))
    assert found[0] == found[1]
