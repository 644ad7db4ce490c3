"""The main job from its first step to its last. This file is the list; each step has its own file."""

from __future__ import annotations

import secrets
import shlex
import shutil
import sys
import webbrowser
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from demo.failure import DemoError, DifferenceError
from demo.flights import default_path, read_flights
from demo.messages import make_messages
from demo.output import prepare_output, store_size
from demo.questions import QUESTIONS, compare
from demo.requirements import require_all, versions
from demo.screen import Screen, program
from demo.spark_job import answer_all, read_store, spark_session
from demo.store_settings import write_conf
from demo.storing import store_all
from demo.story import Story, write_summary
from demo.writer import write_messages
from demo.writer_process import Workplace, plan_kills
from gantrymq.clock import SystemClock

KILLS = 3
BATCH = 2000
# With few rows the batches are small, so that a kill still hits a busy writer.
_BATCHES_AT_LEAST = 150
_LOG_WIDTH = 120


def demo(
    out: Path,
    rows: int | None = None,
    seed: int | None = None,
    keep: bool = False,
    open_report: bool = False,
    *,
    kills: int = KILLS,
    flights: Path | None = None,
    console: Console | None = None,
) -> int:
    """Store the flights, kill the writer, recover, ask Spark, compare, report; everything goes into ``out``.

    ``rows`` takes only the first flights. ``seed`` determines the kills. ``keep`` leaves the working files (the
    messages, the logs of writer and Spark) in ``out/work``. Returns the exit code: 0 for success; 1 if something was
    lost, duplicated or miscounted; 3 if the demo could not run. A message then says what and where.
    """
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    story = Story(out, seed, _replay(out, rows, seed), SystemClock())
    screen = Screen(console or _console(), story.clock)
    try:
        _run(story, rows, kills, flights or default_path(), screen, keep=keep)
    except DemoError as error:
        Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(f"demo: {error}")
        return error.exit_code
    if open_report:
        webbrowser.open(story.report.resolve().as_uri())
    return 0


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=_LOG_WIDTH)


def _replay(out: Path, rows: int | None, seed: int) -> str:
    words = [program("python"), "-m", "demo", "--out", str(out), "--seed", str(seed)]
    return shlex.join(words + ([] if rows is None else ["--rows", str(rows)]))


def _run(story: Story, rows: int | None, kills: int, flights_path: Path, screen: Screen, *, keep: bool) -> None:
    require_all()
    story.versions = versions()
    screen.title("gantrymq demo")
    screen.say(f"replay with: {story.replay}")
    flights, messages = _make_messages(story, rows, flights_path, screen)
    _store(story, messages, kills, screen)
    _ask(story, flights, screen)
    _report(story, screen)
    if not keep:
        shutil.rmtree(story.work, ignore_errors=True)
    screen.summary(story)


def _make_messages(story: Story, rows: int | None, path: Path, screen: Screen) -> tuple[pa.Table, pa.Table]:
    screen.title("1  The flights of 2013 become messages")
    with story.phase("Flights become messages") as phase:
        flights = read_flights(path, rows)
        messages = make_messages(flights)
        prepare_output(story.out, story.work)
        write_messages(messages, story.work / "messages.arrow")
        write_conf(story.conf)
        story.rows = flights.num_rows
        story.body_bytes = pc.sum(pc.binary_length(messages["body"])).as_py() or 0
        phase.note = f"{story.rows:,} rows, {story.body_bytes / 1e6:,.1f} MB of JSON"
    screen.done(f"{story.rows:,} flights out of {path.name}, {story.body_bytes / 1e6:,.1f} MB as JSON bodies")
    return flights, messages


def _store(story: Story, messages: pa.Table, kills: int, screen: Screen) -> None:
    screen.title(f"2  Stored by a process that is killed {kills} times")
    batch = max(1, min(BATCH, story.rows // _BATCHES_AT_LEAST))
    place = Workplace(story.store, story.work / "messages.arrow", story.conf, story.work / "writer.log", batch)
    with story.phase("Stored, killed, recovered, read back") as phase:
        story.origin_s, story.origin_ms = story.clock.monotonic_s(), story.clock.now_ms()
        plan = plan_kills(story.rows, kills, story.seed)
        story.episodes = store_all(place, messages, plan, story.seed, story.clock, screen)
        story.store_bytes = store_size(story.store)
        phase.note = f"{story.kills} kills; {story.store_bytes / 1e6:,.0f} MB on the disk"


def _ask(story: Story, flights: pa.Table, screen: Screen) -> None:
    """Let Spark answer from the store and pyarrow from the input. Raises DifferenceError if they differ."""
    screen.title("3  Spark reads the store and answers")
    with story.phase("Spark read and answered") as phase, screen.bar("Spark", len(QUESTIONS) + 3) as show:
        began_s = story.clock.monotonic_s()
        with spark_session(story.work) as spark:
            show(1)
            start_s = story.clock.monotonic_s() - began_s
            answers = answer_all(spark, read_store(spark, story.store), story.clock, lambda done: show(done + 1))
        story.answers = answers
        asked_s = sum(answers.took_s.values())
        phase.note = (
            f"start {start_s:.1f} s, read {answers.read_s:.1f} s, {len(answers.took_s)} queries {asked_s:.1f} s"
        )
    screen.say(f"Spark {story.versions['Spark']} started in {start_s:.1f} s")
    rate = answers.rows / answers.read_s
    screen.say(f"{answers.rows:,} rows read and their JSON parsed in {answers.read_s:.1f} s, {rate:,.0f} a second")
    screen.say(f"{len(answers.took_s)} questions answered in {asked_s:.1f} s")
    with story.phase("Compared with the input"):
        _check(story, flights)
    screen.done(f"{story.numbers:,} numbers computed from the input with pyarrow: all equal to Spark's")


def _check(story: Story, flights: pa.Table) -> None:
    story.expected = {question.name: question.expected(flights) for question in QUESTIONS}
    tables = story.answers.tables
    story.comparisons = [compare(one, tables[one.name], story.expected[one.name]) for one in QUESTIONS]
    differences = [line for comparison in story.comparisons for line in comparison.differences]
    stored = pc.sum(story.answers.stored_by_slice["messages"]).as_py()
    if stored != flights.num_rows:
        differences.append(f"throughput: {stored} messages by store time, {flights.num_rows} in the input")
    if differences:
        raise DifferenceError("Spark's answers are not those of the input", differences)


def _report(story: Story, screen: Screen) -> None:
    # Drawing needs packages that take a second to import, so import them only now.
    from demo.report import write_report

    screen.title("4  The report")
    began_s = story.clock.monotonic_s()
    write_report(story)
    write_summary(story)
    took_s = story.clock.monotonic_s() - began_s
    screen.done(f"{story.report.stat().st_size / 1e6:.1f} MB of HTML in {took_s:.1f} s, no network needed to read it")
