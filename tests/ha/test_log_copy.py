"""The checked copy of a log: bytes cut anywhere give the same log, and nothing damaged is appended."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from faulty_file_system import FaultyFileSystem, broken_disk, disk_full
from gantrymq.errors import GantrymqError, LogCopyError
from gantrymq.format.record import MAGIC_BLANK, Layout, read_layout
from gantrymq.fs.api import Bytes
from gantrymq.fs.killable import KillableFileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.ha.copy import CheckedLogCopy, CopyState
from gantrymq.model.message import Message
from gantrymq.store.message_store import MessageStore
from gantrymq.store.reader import StoreReader
from gantrymq.tools.findings import Severity
from gantrymq.tools.verify import verify_store
from golden_stores import unpack
from mirror_cases import LogBytes, copied, open_copy
from store_cases import SMALL, content

HEALTHY = ("broker-features", "direct-mixed", "retention")


def cuts(log: LogBytes, rng: random.Random, begin: int) -> list[int]:
    """Offsets at which to cut: sizes from a byte to several files, never across a file."""
    at, offsets = begin, [begin]
    while at < log.end:
        size = rng.choice((1, 7, 91, 4096, 32768, 1 << 20))
        at += len(log.cut(at, rng.randrange(1, size + 1)))
        offsets.append(at)
    return offsets


def feed(copy: CheckedLogCopy, log: LogBytes, offsets: list[int]) -> None:
    for begin, end in pairwise(offsets):
        copy.receive(begin, log.data[begin - log.begin : end - log.begin])


@pytest.mark.parametrize("name", HEALTHY)
def test_log_cut_anywhere_is_copied_byte_for_byte_and_dispatched(name: str, tmp_path: Path, rng: random.Random) -> None:
    original = unpack(name, tmp_path) / "store"
    log, path = LogBytes(original), tmp_path / "copy"
    with open_copy(path, log) as store:
        copy = CheckedLogCopy(store.append_copied, log.file_size, log.begin)
        feed(copy, log, cuts(log, rng, log.begin))
        assert (copy.end_offset, copy.received_offset) == (log.end, log.end)
    assert copied(path, log) == log.data
    with StoreReader.open(path) as ours, StoreReader.open(original) as theirs:
        known = {queue: messages for queue, messages in content(theirs).items() if messages}
        assert content(ours) == known
        message = next(one for queue in known.values() for one in queue.values() if one.properties.get("KEYS"))
        key = message.properties["KEYS"].split(" ")[0]
        assert message in ours.query(message.topic, key)
    assert [one for one in verify_store(path) if one.level is Severity.DAMAGE] == []


def test_log_from_zero_with_its_first_byte_known_is_copied_whole(tmp_path: Path, rng: random.Random) -> None:
    log, path = LogBytes(unpack("broker-features", tmp_path) / "store"), tmp_path / "copy"
    with open_copy(path, log) as store:
        copy = CheckedLogCopy(store.append_copied, log.file_size, 0, b"\0")
        feed(copy, log, cuts(log, rng, 1))
    assert copied(path, log) == log.data


def record_ends(log: LogBytes) -> list[int]:
    """The offsets at which records end, blanks included."""
    ends, at, view = [], log.begin, memoryview(log.data)
    while at < log.end:
        rest = log.file_size - at % log.file_size
        layout = read_layout(view, at - log.begin, min(at - log.begin + rest, len(view)))
        at += layout.size if isinstance(layout, Layout) else rest
        ends.append(at)
    return ends


def append_nowhere(data: Bytes, phy_offset: int, store_timestamp_ms: int) -> None:
    """Store nothing."""


def test_any_flipped_bit_of_a_header_or_body_ends_the_copy_before_that_record(
    tmp_path: Path, rng: random.Random
) -> None:
    log = LogBytes(unpack("broker-features", tmp_path) / "store")
    ends = [log.begin, *record_ends(log)]
    for number in range(60):
        index = rng.randrange(len(ends) - 1)
        begin = ends[index]
        layout = read_layout(memoryview(log.data), begin, min(len(log.data), begin + log.file_size))
        if not isinstance(layout, Layout):
            continue
        # The size, the magic code, the CRC, the position, and the body: what the format can check.
        checked = [*range(12), *range(28, 36), *range(layout.body_at, layout.body_at + layout.body_length)]
        damaged = bytearray(log.data)
        damaged[begin + rng.choice(checked)] ^= 1 << rng.randrange(8)
        copy, fed = CheckedLogCopy(append_nowhere, log.file_size, 0), 0
        state, reason = "", ""
        try:
            while fed < log.end:
                size = len(log.cut(fed, rng.randrange(1, 40_000)))
                copy.receive(fed, bytes(damaged[fed : fed + size]))
                fed += size
        except LogCopyError as error:
            state, reason = error.state, error.reason
        assert copy.end_offset == begin, f"round {number}, {reason}"
        # A larger size may ask for more bytes than the log has; then nothing is wrong yet, and nothing is appended.
        assert fed >= log.end or (state == CopyState.BAD_RECORD and f"offset {begin}" in reason)


def test_bytes_at_another_offset_are_refused_and_change_nothing(tmp_path: Path) -> None:
    log = LogBytes(unpack("broker-features", tmp_path) / "store")
    appended: list[int] = []
    copy = CheckedLogCopy(lambda data, offset, _: appended.append(len(data)), log.file_size, 0)
    copy.receive(0, log.data[:50])
    for offset in (0, 49, 51, 1 << 40):
        with pytest.raises(LogCopyError, match=f"wrong offset: the master sent offset {offset}, not 50"):
            copy.receive(offset, log.data[50:60])
    copy.receive(50, log.data[50:5000])
    assert sum(appended) == copy.end_offset > 0


def test_blank_that_does_not_fill_its_file_ends_the_copy() -> None:
    copy = CheckedLogCopy(append_nowhere, 4096, 0)
    with pytest.raises(LogCopyError, match="bad record: the master sent no valid record at offset 0: size"):
        copy.receive(0, (4000).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big"))


def test_zeros_are_no_records() -> None:
    copy = CheckedLogCopy(append_nowhere, 4096, 0)
    with pytest.raises(LogCopyError, match="bad record: the master sent no valid record at offset 0: zeros"):
        copy.receive(0, bytes(300))


def held_log(path: Path) -> bytes:
    """The bytes of all log files of a store."""
    directory = path / "commitlog"
    return b"".join(file.read_bytes() for file in sorted(directory.iterdir())) if directory.exists() else b""


def killed_at(path: Path, log: LogBytes, fs: KillableFileSystem, rng: random.Random) -> None:
    """Copy from the log's end on, and kill the file system somewhere."""
    store = MessageStore.open(path, log.config, housekeeping=False, delivers=False, fs=fs)
    try:
        copy = CheckedLogCopy(store.append_copied, log.file_size, store.max_phy_offset)
        offsets = cuts(log, rng, copy.end_offset)
        at = rng.randrange(len(offsets))
        feed(copy, log, offsets[: at + 1])
        fs.kill()
        feed(copy, log, offsets[at:])
        store.close()
    except GantrymqError:
        return
    finally:
        for runner in store._runners:  # a killed process has no threads
            runner.abandon()
        store._log.close()
        store._lock.release()


def test_killed_copy_continues_at_its_last_whole_record(tmp_path: Path, rng: random.Random) -> None:
    log, path = LogBytes(unpack("broker-features", tmp_path) / "store"), tmp_path / "copy"
    for _ in range(4):
        killed_at(path, log, KillableFileSystem(RealFileSystem()), rng)
        with StoreReader.open(path, log.config) as reader:
            end = reader.max_phy_offset
            assert reader.problems == []
        assert held_log(path)[:end] == log.data[:end]
    with open_copy(path, log) as store:
        copy = CheckedLogCopy(store.append_copied, log.file_size, store.max_phy_offset)
        feed(copy, log, cuts(log, rng, copy.end_offset))
    assert copied(path, log) == log.data
    assert [one for one in verify_store(path) if one.level is Severity.DAMAGE] == []


@pytest.mark.parametrize("error", [disk_full, broken_disk])
def test_failed_append_raises_and_leaves_whole_records(error: object, tmp_path: Path, rng: random.Random) -> None:
    log = LogBytes(unpack("broker-features", tmp_path) / "store")
    for number in range(5):
        path = tmp_path / f"copy-{number}"
        fs = FaultyFileSystem(RealFileSystem(), 0, error)  # type: ignore[arg-type]
        store = MessageStore.open(path, log.config, housekeeping=False, delivers=False, fs=fs)
        copy, failed = CheckedLogCopy(store.append_copied, log.file_size, 0), False
        fs.fail_at = len(fs.operations) + rng.randrange(1, 40)
        try:
            feed(copy, log, cuts(log, rng, 0))
        except (GantrymqError, OSError):
            failed = True
        fs.fail_at = 0
        try:
            store.close()
        except (GantrymqError, OSError):
            failed = True
        assert failed or store.failures or copy.end_offset == log.end
        with StoreReader.open(path, log.config) as reader:
            end = reader.max_phy_offset
        # The blank end of a file is found again when the next file begins.
        assert end == copy.end_offset or (copy.end_offset % log.file_size == 0 and end >= copy.end_offset - 4096)
        assert held_log(path)[:end] == log.data[:end]


def test_deleted_and_recreated_topic_begins_again_in_a_copy(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "master", SMALL, housekeeping=False) as master:
        for number in range(5):
            master.put(Message("t", b"old %d" % number))
        content(master)
        master.delete_topic("t")
        for number in range(3):
            master.put(Message("t", b"new %d" % number))
    log = LogBytes(tmp_path / "master")
    with open_copy(tmp_path / "copy", log) as store:
        copy = CheckedLogCopy(store.append_copied, log.file_size, 0)
        copy.receive(0, log.data)
    with StoreReader.open(tmp_path / "copy") as reader:
        assert [message.body for message in content(reader)["t", 0].values()] == [b"new 0", b"new 1", b"new 2"]
