"""Background jobs of the console: progress, results, failures, a cancel, and at most one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import job_cases
from console_stores import CONFIG, SIZES, make

from gantrymq.clock import SystemClock
from gantrymq.console.store.jobs import Job, JobSlot, JobState
from gantrymq.tools.verify import verify_store

CLOCK = SystemClock()


def await_true(is_true: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_verify_progress_counts_compared_queues(tmp_path: Path) -> None:
    make(tmp_path, 1_700_000_000_000, messages=20)
    told = list[tuple[str, int, int]]()
    list(verify_store(tmp_path, CONFIG, given=SIZES, queue_progress=lambda *of: told.append(of)))
    assert {(step, total) for step, _, total in told} == {("Verifying queues", len(told))}
    assert [done for _, done, _ in told] == list(range(len(told)))
    assert len(told) == 2 * len(list((tmp_path / "consumequeue").glob("*/*")))


def test_verify_progress_shows_read_part_of_index_then_log(tmp_path: Path) -> None:
    make(tmp_path, 1_700_000_000_000, messages=20)
    told = list[tuple[str, int, int]]()
    list(verify_store(tmp_path, CONFIG, given=SIZES, progress=lambda *of: told.append(of)))
    sizes = [file.stat().st_size for file in sorted((tmp_path / "index").iterdir())]
    assert told[: len(sizes)] == [("Verifying the index", sum(sizes[:n]), sum(sizes)) for n in range(len(sizes))]
    assert {step for step, _, _ in told[len(sizes) :]} == {"Verifying"}


def test_job_ends_with_result_or_reason() -> None:
    counting: Job[int] = Job(job_cases.count, (1000,), CLOCK)
    failing: Job[None] = Job(job_cases.fail, ("/data/store",), CLOCK)
    dying: Job[None] = Job(job_cases.die, (), CLOCK)
    for job in (counting, failing, dying):
        job.wait(60)
    done = counting.view
    assert (done.state, done.result, done.step, done.total, done.error) == (
        JobState.DONE,
        499_500,
        "counting",
        1000,
        "",
    )
    assert (failing.view.state, failing.view.error) == (JobState.FAILED, "/data/store: is not there")
    assert dying.view.state is JobState.FAILED
    assert "SIGBUS" in dying.view.error


def test_job_slot_runs_one_job_and_cancels_it() -> None:
    slot: JobSlot[str] = JobSlot(job_cases.wait, (600.0,), CLOCK)
    assert slot.view is None
    slot.cancel()
    assert slot.start()
    assert not slot.start()
    await_true(lambda: slot.view is not None and slot.view.result)
    running = slot.view
    assert running is not None
    assert (running.is_running, running.step, running.percent, running.result) == (True, "waiting", 25, "so far")
    slot.cancel()
    slot.wait(60)
    ended = slot.view
    assert ended is not None
    assert (ended.state, ended.result) == (JobState.CANCELLED, "so far")
    slot.cancel()
    assert slot.view == ended
