"""Background work of the console: one function in a process of its own, with progress, a partial result and a cancel.

A thread would be the obvious way. It would share the interpreter's lock with the pages, its memory with the server, and
an unreadable page of a mapped file (SIGBUS) would end the console. A process at a lower priority shares none of them,
and a cancel just ends it: a job only reads. It is a new interpreter, because multiprocessing would run the main module
of the caller again. It ends when the console does.

Thread rule: every method may be called from any thread.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from multiprocessing.connection import Connection, Pipe
from typing import Any, Generic, TypeVar

from gantrymq.clock import Clock
from gantrymq.errors import GantrymqError

Result = TypeVar("Result")
_NICENESS = 10
_REPORT_INTERVAL_S = 0.2
_PROGRAM = f"from {__name__} import run_job; run_job()"


class JobState(StrEnum):
    """The states of a job. All but ``RUNNING`` are final."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class JobView(Generic[Result]):
    """A job at one moment. ``done`` of ``total`` units of ``step`` are processed; a total of 0 is unknown.

    ``result`` is partial while the job runs, and after a cancel or a failure; None if there is none yet. ``error`` is
    the reason of a failure.
    """

    state: JobState
    started_ms: int
    step: str = ""
    done: int = 0
    total: int = 0
    result: Result | None = None
    error: str = ""
    took_ms: float = 0.0

    @property
    def is_running(self) -> bool:
        """Whether the job is at work."""
        return self.state is JobState.RUNNING

    @property
    def percent(self) -> int | None:
        """The processed part of the step in percent, or None if the total is unknown."""
        return min(100 * self.done // self.total, 100) if self.total > 0 else None


class JobReporter:
    """What the function of a job reports with. Reports that follow too fast are dropped."""

    def __init__(self, pipe: Connection, clock: Clock) -> None:
        self._pipe, self._clock = pipe, clock
        self._guard = threading.Lock()
        self._last_s = {"progress": -1.0, "partial": -1.0}

    def progress(self, step: str, done: int, total: int) -> None:
        """Report the progress of a step; as the ``Progress`` of recovery and verify."""
        self._send("progress", lambda: (step, done, total))

    def partial(self, result: Callable[[], Any]) -> None:
        """Report what is found so far; ``result`` is called only if the report is sent."""
        self._send("partial", result)

    def _send(self, kind: str, value: Callable[[], Any]) -> None:
        with self._guard:
            now_s = self._clock.monotonic_s()
            if now_s - self._last_s[kind] >= _REPORT_INTERVAL_S:
                self._last_s[kind] = now_s
                self._pipe.send((kind, value()))


Work = Callable[..., Any]  # work(reporter, *arguments) of a module, so that the new process can import it


class Job(Generic[Result]):
    """One run of ``work(reporter, *arguments)``. It starts at once."""

    def __init__(self, work: Work, arguments: tuple[Any, ...], clock: Clock) -> None:
        self._clock, self._began_s = clock, clock.monotonic_s()
        self._guard = threading.Lock()
        self._view: JobView[Result] = JobView(JobState.RUNNING, clock.now_ms())
        self._pipe, child = Pipe(duplex=False)
        command = [sys.executable, "-c", _PROGRAM, str(child.fileno())]
        paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, pass_fds=[child.fileno()], env=os.environ | paths
        )
        child.close()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already
            pickle.dump((work, arguments), self._process.stdin)
            self._process.stdin.flush()  # it stays open: its end tells the process that the console is gone
        self._reader = threading.Thread(target=self._read, name=f"job-{work.__name__}", daemon=True)
        self._reader.start()

    @property
    def view(self) -> JobView[Result]:
        """The state of the job at this moment, for a page."""
        with self._guard:
            view = self._view
        return replace(view, took_ms=self._took_ms()) if view.is_running else view

    def cancel(self) -> None:
        """End the job, unless it has ended."""
        self._end(JobState.CANCELLED)
        self._process.terminate()

    def wait(self, timeout_s: float | None = None) -> None:
        """Return when the job has ended, or after ``timeout_s``."""
        self._reader.join(timeout_s)

    def _took_ms(self) -> float:
        return (self._clock.monotonic_s() - self._began_s) * 1000

    def _read(self) -> None:
        try:
            while True:
                kind, value = self._pipe.recv()
                self._take(kind, value)
        except (EOFError, OSError):
            pass
        exit_code = self._process.wait()
        self._end(JobState.FAILED, error=_how_it_ended(exit_code))
        self._pipe.close()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _take(self, kind: str, value: Any) -> None:
        if kind == "result":
            self._end(JobState.DONE, result=value)
        elif kind == "failed":
            self._end(JobState.FAILED, error=value)
        else:
            with self._guard:
                if not self._view.is_running:
                    return
                if kind == "progress":
                    step, done, total = value
                    self._view = replace(self._view, step=step, done=done, total=total)
                else:
                    self._view = replace(self._view, result=value)

    def _end(self, state: JobState, **changes: Any) -> None:
        """Set the final state. Only the first call has an effect."""
        with self._guard:
            if self._view.is_running:
                self._view = replace(self._view, state=state, took_ms=self._took_ms(), **changes)


def run_job() -> None:
    """Run in the new process: take the work from stdin, and report to the pipe whose number is the argument."""
    from gantrymq.clock import SystemClock

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the console ends its jobs
    os.nice(_NICENESS)
    pipe = Connection(int(sys.argv[1]), readable=False)
    work, arguments = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_console, daemon=True).start()
    try:
        pipe.send(("result", work(JobReporter(pipe, SystemClock()), *arguments)))
    except BrokenPipeError:  # the console is gone
        return
    except (GantrymqError, OSError, MemoryError) as error:
        pipe.send(("failed", str(error) or type(error).__name__))


def _end_with_console() -> None:
    os.read(0, 1)  # the stream's own read would hold its lock, which the end of the interpreter takes
    os._exit(0)


def _how_it_ended(exit_code: int) -> str:
    if exit_code == -signal.SIGBUS:
        return "a file was cut while it was read, or the disk cannot read it (SIGBUS)"
    if exit_code < 0:
        return f"its process was ended by {signal.Signals(-exit_code).name}"
    return f"its process ended with exit code {exit_code}"


class JobSlot(Generic[Result]):
    """A place for one kind of job: at most one is at work, and the last one stays for its result."""

    def __init__(self, work: Work, arguments: tuple[Any, ...], clock: Clock) -> None:
        self._work, self._arguments, self._clock = work, arguments, clock
        self._guard = threading.Lock()
        self._job: Job[Result] | None = None

    @property
    def view(self) -> JobView[Result] | None:
        """The last job, or None before the first."""
        job = self._job
        return job.view if job is not None else None

    def start(self) -> bool:
        """Start a job. Returns False if one is at work already."""
        with self._guard:
            if self._job is not None and self._job.view.is_running:
                return False
            self._job = Job(self._work, self._arguments, self._clock)
            return True

    def cancel(self) -> None:
        """End the job that is at work, if there is one."""
        job = self._job
        if job is not None:
            job.cancel()

    def wait(self, timeout_s: float | None = None) -> None:
        """Return when no job is at work, or after ``timeout_s``."""
        job = self._job
        if job is not None:
            job.wait(timeout_s)
