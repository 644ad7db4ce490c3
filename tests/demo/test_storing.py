"""Stored, killed, recovered, resumed: a real process and a real SIGKILL, no Spark."""

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from demo import storing
from demo.audit import Audit, audit_store
from demo.failure import DifferenceError, WriterFailedError
from demo.storing import Recovered, recover_store, store_all
from demo.writer_process import Kill, Life, Workplace, WriterProcess, plan_kills, run_writer
from gantrymq.clock import SystemClock


class Silent:
    """A display that shows nothing."""

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Callable[[float], None]]:
        yield lambda done: None

    def wrote(self, number: int, life: Life, kill: Kill | None) -> None:
        pass

    def recovered(self, recovered: Recovered) -> None:
        pass

    def audited(self, audit: Audit, rows: int) -> None:
        pass


def test_every_row_is_there_once_after_kills(place: Workplace, messages: pa.Table, seed: int) -> None:
    kills = plan_kills(messages.num_rows, 2, seed)
    episodes = store_all(place, messages, kills, seed, SystemClock(), Silent())
    assert [episode.kill for episode in episodes] == [*kills, None]
    assert all(episode.recovered is not None for episode in episodes[:-1])
    assert [episode.life.first_row for episode in episodes[1:]] == [one.audit.stored for one in episodes[:-1]]
    assert episodes[-1].audit.stored == messages.num_rows
    assert not (place.store / "abort").exists()


def test_killed_process_ends_by_signal(place: Workplace) -> None:
    with WriterProcess(place, 0) as process:
        next(iter(process.words()))
        process.kill()
        assert process._process.returncode == -signal.SIGKILL
    assert (place.store / "abort").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_late_kill_hits_open_store(place: Workplace, messages: pa.Table) -> None:
    """The last row is acknowledged, and still the writer has not closed its store."""
    last = Kill(after_row=messages.num_rows, delay_ms=100)
    first, second = store_all(place, messages, [last], 1, SystemClock(), Silent())
    assert first.recovered is not None
    assert first.audit.stored == messages.num_rows
    assert second.life.heard == []


def test_seed_determines_kills() -> None:
    kills = plan_kills(336_776, 3, 4711)
    assert kills == plan_kills(336_776, 3, 4711) != plan_kills(336_776, 3, 4712)
    shares = [int(kill.after_row / (336_776 / 4)) for kill in kills]
    assert shares == [0, 1, 2]


def test_writer_with_false_report_is_detected(
    place: Workplace, messages: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledged but not stored: the very loss that the demo is to notice."""

    def lie(place: Workplace, first_row: int, kill: Kill | None, *rest: object) -> Life:
        life = run_writer(place, first_row, kill, *rest)  # type: ignore[arg-type]
        life.heard.append((life.heard[-1][0], messages.num_rows))
        return life

    monkeypatch.setattr(storing, "run_writer", lie)
    with pytest.raises(DifferenceError, match=r"is lost \(acknowledged\)"):
        store_all(place, messages, [Kill(500, 0)], 1, SystemClock(), Silent())


def test_resume_at_wrong_row_is_detected(place: Workplace, messages: pa.Table) -> None:
    clock = SystemClock()
    run_writer(place, 2000, None, clock, lambda row: None)
    with pytest.raises(DifferenceError, match=r"row 0 is lost .*not acknowledged, but later rows"):
        audit_store(place.store, place.conf, messages, 0, 1, lambda done: None)
    run_writer(place, 2990, None, clock, lambda row: None)
    with pytest.raises(DifferenceError) as caught:
        audit_store(place.store, place.conf, messages, 0, 1, lambda done: None)
    assert "row 2995 is there 2 times" in caught.value.differences


def test_failure_of_writer_is_quoted(place: Workplace, tmp_path: Path) -> None:
    (tmp_path / "bad.conf").write_text("mappedFileSizeCommitLog=many\n")
    bad = dataclasses.replace(place, conf=tmp_path / "bad.conf")
    with pytest.raises(WriterFailedError, match="mappedFileSizeCommitLog='many' is not allowed"):
        run_writer(bad, 0, None, SystemClock(), lambda row: None)


def test_empty_index_file_is_accepted(place: Workplace, messages: pa.Table) -> None:
    """As a kill leaves it that falls between the making of the file and its first entry."""
    clock, index = SystemClock(), place.store / "index"

    def wait_for_a_file(row: int) -> None:
        while row == messages.num_rows and not list(index.glob("*")):
            time.sleep(0.01)

    run_writer(place, 0, Kill(messages.num_rows, 0), clock, wait_for_a_file)
    for file in index.iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    recover_store(place.store, place.conf, clock, lambda *done: None)
    assert audit_store(place.store, place.conf, messages, messages.num_rows, 1, lambda done: None).keys_asked == 200
