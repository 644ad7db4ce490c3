"""A mirror beside a master that misbehaves: each state has its name, and the copy stays a part of the log."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantrymq.errors import DiskError, GantrymqError, LogCopyError, StoreError
from gantrymq.fs.killable import KillableFileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.ha.copy import CopyState
from gantrymq.ha.frames import LogFrame
from gantrymq.ha.mirror import Mirror, Progress
from gantrymq.store.message_store import MessageStore
from gantrymq.store.reader import StoreReader
from golden_stores import unpack
from mirror_cases import FakeMaster, FastClock, LogBytes, copied, open_copy

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> LogBytes:
    """A log of four files that begins at 0."""
    return LogBytes(unpack("broker-features", tmp_path_factory.mktemp("golden")) / "store")


@pytest.fixture(scope="module")
def late_log(tmp_path_factory: pytest.TempPathFactory) -> LogBytes:
    """A log whose first files retention has removed."""
    return LogBytes(unpack("retention", tmp_path_factory.mktemp("golden")) / "store")


@pytest.fixture
def master(log: LogBytes) -> Iterator[FakeMaster]:
    with FakeMaster(log) as master:
        yield master


class Copying:
    """A mirror of ``master`` with a clock that does not wait, and what it told."""

    def __init__(self, master: FakeMaster, **options: Any) -> None:
        self.clock, self.told, self.is_stopped = FastClock(), list[Progress](), False
        self.mirror = Mirror(
            master,
            clock=self.clock,
            stopped=lambda: self.is_stopped,
            tell=self.told.append,
            sleep=self.clock.sleep,
            **options,
        )

    def once(self, path: Path, log: LogBytes) -> Progress:
        """Copy what the master has."""
        with open_copy(path, log) as store:
            return self.mirror.run(store, once=True)

    def stop_in_sync(self) -> None:
        """Stop when the copy has everything."""

        def tell(progress: Progress) -> None:
            self.told.append(progress)
            self.is_stopped = progress.state is CopyState.IN_SYNC

        self.mirror._tell = tell

    @property
    def reasons(self) -> list[str]:
        """The reasons that were told, without repetition."""
        return list(dict.fromkeys(one.reason for one in self.told if one.reason))


def check(master: FakeMaster, path: Path) -> None:
    with StoreReader.open(path) as held:
        Copying(master).mirror.check(held, held.lookup.log.file_size)


def partly(path: Path, log: LogBytes, master: FakeMaster, until: int) -> None:
    """A mirror that was stopped when it had ``until`` bytes of the log."""
    whole, master.log = master.log, LogBytes.__new__(LogBytes)
    vars(master.log).update(vars(whole) | {"end": until})
    master.extent_of = whole.begin, until
    Copying(master).once(path, log)
    master.log, master.extent_of = whole, (whole.begin, whole.end)


# History


@pytest.mark.parametrize("name", ["log", "late_log"])
def test_mirror_gets_the_whole_log_from_the_min_offset(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    log = request.getfixturevalue(name)
    with FakeMaster(log) as master:
        last = Copying(master).once(tmp_path / "copy", log)
    assert copied(tmp_path / "copy", log) == log.data
    assert (last.min_offset, last.max_offset, last.lag_bytes, last.is_whole) == (log.begin, log.end, 0, True)
    assert last.records > 100
    assert last.copied_bytes + (log.begin == 0) == log.end - log.begin


def test_mirror_continues_where_it_was_and_asks_for_its_last_bytes_again(
    log: LogBytes, master: FakeMaster, tmp_path: Path
) -> None:
    with open_copy(tmp_path / "copy", log) as store:
        master.closes_after = 100_000
        copying = Copying(master)
        copying.stop_in_sync()
        last = copying.mirror.run(store, once=False)
    assert copied(tmp_path / "copy", log) == log.data
    assert last.max_offset == log.end
    requests = [reports[0] for reports in master.reports]
    assert requests[0] == 1
    assert len(requests) > 2
    assert copying.reasons == ["the master closed the connection"]
    ends = [one.max_offset for one in copying.told if one.state is CopyState.DISCONNECTED]
    assert all(request < end for end, request in zip(ends, requests[1:], strict=True))


def test_copy_that_begins_later_than_the_master_is_called_partial(
    log: LogBytes, late_log: LogBytes, tmp_path: Path
) -> None:
    with FakeMaster(late_log) as master:
        Copying(master).once(tmp_path / "copy", late_log)
        master.extent_of = 0, late_log.end
        assert not Copying(master).once(tmp_path / "copy", late_log).is_whole


def test_master_without_a_log_is_waited_for(log: LogBytes, master: FakeMaster, tmp_path: Path) -> None:
    master.extent_of, copying = (0, 0), Copying(master)

    def grow(seconds: float) -> None:
        master.extent_of = 0, log.end
        copying.clock.sleep(seconds)

    copying.mirror._sleep = grow
    with open_copy(tmp_path / "copy", log) as store:
        copying.stop_in_sync()
        copying.mirror.run(store, once=False)
    assert copied(tmp_path / "copy", log) == log.data


# Votes


def test_reports_after_the_request_acknowledge_nothing(log: LogBytes, master: FakeMaster, tmp_path: Path) -> None:
    copying = Copying(master)
    with open_copy(tmp_path / "copy", log) as store:
        running = threading.Thread(target=copying.mirror.run, args=(store,), kwargs={"once": False})
        running.start()
        while store.max_phy_offset < log.end or len(master.reports[0]) < 3:
            copying.clock.advance(1000)
            time.sleep(0.01)
        copying.is_stopped = True
        running.join(10)
    assert master.reports[0][0] == 1
    assert set(master.reports[0][1:]) == {0}


def test_request_for_the_end_waits_until_no_put_waits_for_acknowledgements(
    log: LogBytes, master: FakeMaster, tmp_path: Path
) -> None:
    master.ack_timeout_s = 3.0
    first = Copying(master)
    first.once(tmp_path / "copy", log)
    assert sum(first.clock.slept_s) == 0  # a request for the begin acknowledges nothing
    second = Copying(master)
    second.clock.advance(60_000)  # the master may have lost its end and written other messages meanwhile
    with open_copy(tmp_path / "copy", log) as store:
        second.mirror._tell = lambda progress: setattr(second, "is_stopped", True)
        second.mirror.run(store, once=False)
    assert sum(second.clock.slept_s) > 3.0
    assert len(master.reports) == 2
    assert master.reports[1][0] < log.end


# What does not fit


def test_other_log_is_refused_and_the_directory_stays(log: LogBytes, master: FakeMaster, tmp_path: Path) -> None:
    partly(tmp_path / "copy", log, master, 150_000)
    before = {file: file.read_bytes() for file in (tmp_path / "copy").rglob("*") if file.is_file()}
    master.edit = lambda frame: LogFrame(frame.offset, frame.body.replace(b"a", b"b"))
    with pytest.raises(LogCopyError, match="diverged: the master has other bytes between"):
        check(master, tmp_path / "copy")
    assert before == {file: file.read_bytes() for file in (tmp_path / "copy").rglob("*") if file.is_file()}
    with open_copy(tmp_path / "copy", log) as store, pytest.raises(LogCopyError, match="diverged"):
        Copying(master).mirror.run(store, once=False)


def test_same_log_passes_the_check(log: LogBytes, master: FakeMaster, tmp_path: Path) -> None:
    partly(tmp_path / "copy", log, master, 150_000)
    check(master, tmp_path / "copy")
    Copying(master).mirror.check(None, 0)


def test_other_file_size_is_refused(log: LogBytes, master: FakeMaster, tmp_path: Path) -> None:
    Copying(master).once(tmp_path / "copy", log)
    master.file_size = 1 << 30
    with pytest.raises(
        LogCopyError, match="other file size: the log has files of 65536 bytes, the master's of 1073741"
    ):
        check(master, tmp_path / "copy")


def test_copy_ahead_of_its_master_is_refused(log: LogBytes, master: FakeMaster, tmp_path: Path) -> None:
    Copying(master).once(tmp_path / "copy", log)
    master.extent_of = 0, 1000
    with pytest.raises(LogCopyError, match=f"ahead: the copy ends at offset {log.end} and the master's log at 1000"):
        check(master, tmp_path / "copy")


def test_copy_behind_retention_is_refused(log: LogBytes, master: FakeMaster, tmp_path: Path) -> None:
    partly(tmp_path / "copy", log, master, 40_000)
    master.extent_of = 131_072, log.end
    with pytest.raises(LogCopyError, match="behind retention: the copy ends at offset"):
        check(master, tmp_path / "copy")


def test_retention_that_overtakes_a_waiting_mirror_is_named(log: LogBytes, master: FakeMaster, tmp_path: Path) -> None:
    """A Java master sends nothing for an offset that it has no more."""
    master.edit = lambda frame: LogFrame(1, b"")
    copying = Copying(master)
    with open_copy(tmp_path / "copy", log) as store:
        copying.mirror._tell = lambda progress: (
            copying.clock.advance(3000),
            setattr(master, "extent_of", (65_536, log.end)),
        )
        with pytest.raises(LogCopyError, match="behind retention"):
            copying.mirror.run(store, once=False)


@pytest.mark.parametrize(
    ("edit", "states"),
    [
        (lambda frame: LogFrame(frame.offset + 8, frame.body), {CopyState.WRONG_OFFSET}),
        # Where the damaged frame of the second connection ends within what the copy holds, it is another log's.
        (lambda frame: LogFrame(frame.offset, frame.body[:-1] + b"?"), {CopyState.BAD_RECORD, CopyState.DIVERGED}),
    ],
    ids=["wrong offset", "bad record"],
)
def test_wrong_frame_is_tried_again_once_and_then_ends_the_mirror(
    edit: Any, states: set[CopyState], log: LogBytes, master: FakeMaster, tmp_path: Path
) -> None:
    """The third frame of each connection is damaged."""
    copying = Copying(master)
    master.edit = lambda frame: edit(frame) if frame.offset > 100_000 else frame
    with open_copy(tmp_path / "copy", log) as store:
        with pytest.raises(LogCopyError) as failed:
            copying.mirror.run(store, once=False)
        end = store.max_phy_offset
    assert failed.value.state in states
    assert [one.state for one in copying.told if one.reason][-1] == failed.value.state
    held = b"".join(file.read_bytes() for file in sorted((tmp_path / "copy" / "commitlog").iterdir()))
    assert end > 60_000
    assert held[:end] == log.data[:end]
    # Once the master is right again the copy goes on.
    master.edit = lambda frame: frame
    Copying(master).once(tmp_path / "copy", log)
    assert copied(tmp_path / "copy", log) == log.data


def test_bytes_that_are_no_frames_end_the_mirror(log: LogBytes, master: FakeMaster, tmp_path: Path) -> None:
    master.edit = lambda frame: LogFrame(-5, frame.body)
    with open_copy(tmp_path / "copy", log) as store, pytest.raises(GantrymqError, match="at offset -5"):
        Copying(master).mirror.run(store, once=False)


def test_failed_disk_ends_the_mirror_with_the_error_of_the_store(
    log: LogBytes, master: FakeMaster, tmp_path: Path
) -> None:
    fs = KillableFileSystem(RealFileSystem())
    store = MessageStore.open(tmp_path / "copy", log.config, housekeeping=False, delivers=False, fs=fs)
    copying = Copying(master)
    copying.mirror._tell = lambda progress: fs.kill()
    with pytest.raises(StoreError):
        copying.mirror.run(store, once=False)
    with pytest.raises(DiskError):
        store.close()


def test_lost_master_is_asked_again_for_ever_but_only_once_with_once(
    log: LogBytes, master: FakeMaster, tmp_path: Path
) -> None:
    copying, finds = Copying(master), []
    real = master.find

    def find() -> Any:
        finds.append(1)
        if 1 < len(finds) < 6:
            raise ConnectionError("no master")
        return real()

    master.find = find  # type: ignore[method-assign]
    with open_copy(tmp_path / "copy", log) as store:
        with pytest.raises(ConnectionError):
            copying.mirror.run(store, once=True)
        finds[:] = [1]
        copying.stop_in_sync()
        copying.mirror.run(store, once=False)
    assert len(finds) >= 6
    assert copied(tmp_path / "copy", log) == log.data


def test_master_that_does_not_let_the_mirror_in_is_named_with_the_next_step(
    log: LogBytes, master: FakeMaster, tmp_path: Path
) -> None:
    master.closes_after = 0
    with (
        open_copy(tmp_path / "copy", log) as store,
        pytest.raises(ConnectionError, match=r"closed the connection before it sent anything; see .* haAllowedSlaves"),
    ):
        Copying(master).mirror.run(store, once=True)


def test_rate_limits_the_received_bytes(log: LogBytes, master: FakeMaster, tmp_path: Path) -> None:
    copying = Copying(master, rate=20_000)
    copying.once(tmp_path / "copy", log)
    assert sum(copying.clock.slept_s) >= (log.end - 5000) / 20_000
    assert max(copying.clock.slept_s) < 1
