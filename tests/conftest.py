"""What all tests share: markers by folder, seeds that can be replayed, and no silent skip of interop in CI."""

import gc
import inspect
import os
import random
import sys
import time
import traceback
import warnings
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import settings

from work_order import in_work_order, scheduler

HERE = Path(__file__).parent
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")  # gw0, gw1 …
MARKED_FOLDERS = ("crash", "interop", "spark")
REQUIRE_INTEROP = "GANTRYMQ_REQUIRE_INTEROP"
RUN_SEED = pytest.StashKey[int]()
FAILURE = pytest.StashKey[BaseException]()

# Spark's workers run this Python, not the first python3 on the PATH, and speak over loopback.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# Its JVM lives for seconds: that it starts soon counts for more than that it runs fast in the end.
for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(variable, "-XX:TieredStopAtLevel=1")

# Write bytecode, even where the container forbids it: otherwise each worker rewrites the asserts of every module, and
# each of the hundreds of processes that tests start compiles what it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Compiling a kernel takes seconds once, so no single example has a deadline.
settings.register_profile("gantrymq", deadline=None, print_blob=True)
settings.load_profile("gantrymq")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="replay: the seed that a failed run printed")
    parser.addoption("--update-transcripts", action="store_true", help="write the outputs of docs/runbook.md anew")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """One seed for the whole run; the workers of pytest-xdist get it from the process that started them.

    Where it is given, Hypothesis draws from it as well, and takes nothing from its database of failures: it is told
    before its own plugin looks. Else Hypothesis draws as it likes, and prints how to replay.
    """
    given = config.getoption("--seed")
    if given is not None and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(given)
    inherited = getattr(config, "workerinput", {}).get("gantrymq_seed")
    config.stash[RUN_SEED] = next(seed for seed in (inherited, given, random.getrandbits(32)) if seed is not None)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["gantrymq_seed"] = node.config.stash[RUN_SEED]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return scheduler(config, log) if config.option.dist == "loadfile" else None


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.stash[RUN_SEED]} (replay with --seed)"


@pytest.fixture(autouse=True)
def structlog_is_not_configured() -> Iterator[None]:
    """Undo what `serve` and `capture_logs` configure: other tests look for log lines in Python's logging."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def _local_time(monkeypatch: pytest.MonkeyPatch, zone: str) -> Iterator[None]:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is UTC."""
    yield from _local_time(monkeypatch, "UTC")


@pytest.fixture
def shanghai(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is eight hours ahead."""
    yield from _local_time(monkeypatch, "Asia/Shanghai")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of the test's own: it follows from the run's seed and the test's name, not from the order of tests."""
    run_seed = request.config.stash[RUN_SEED]
    request.node.add_report_section("setup", "seed", f"replay with: pytest '{request.node.nodeid}' --seed {run_seed}")
    return zlib.crc32(f"{run_seed} {request.node.nodeid}".encode())


@pytest.fixture
def rng(seed: int) -> random.Random:
    """A random source from the test's seed."""
    return random.Random(seed)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Leave out the slow tests before their parameters are multiplied: they were a seventh of all items."""
    if not WORKER or collector.config.option.markexpr != "not slow" or not inspect.isfunction(obj):
        return None
    marks = [*collector.iter_markers(), *getattr(obj, "pytestmark", ())]
    return [] if any(mark.name == "slow" for mark in marks) else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    for item in items:
        folders = item.path.relative_to(HERE).parts[:-1] if item.path.is_relative_to(HERE) else ()
        for name in set(folders) & set(MARKED_FOLDERS):
            item.add_marker(name)
    if WORKER:
        items.sort(key=lambda item: item.path)
    yield
    if WORKER:
        items[:] = in_work_order(items)
    gc.freeze()  # otherwise each collection of garbage visits thousands of tests, which takes half a second


def _no_skip_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get(REQUIRE_INTEROP) == "1":
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{REQUIRE_INTEROP}=1 lets no interop test skip. {why}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.get_closest_marker("interop"):
        _no_skip_in_ci(report)
    if report.failed and call.excinfo is not None:
        item.stash[FAILURE] = call.excinfo.value
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Free what a failed test left open, here: its ResourceWarnings would fail the next test beside it."""
    yield
    error = item.stash.get(FAILURE, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while error is not None:
            traceback.clear_frames(error.__traceback__)
            error = error.__context__
        if FAILURE in item.stash:
            gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a whole file that skips itself.

    Each worker begins with other folders, so it finds the bytecode of the rest.
    """
    report = yield
    if WORKER and collector.path == HERE and report.result:
        first = len(report.result) * int(WORKER.removeprefix("gw")) // WORKERS
        report.result = report.result[first:] + report.result[:first]
    if collector.path.is_relative_to(HERE / "interop"):
        _no_skip_in_ci(report)
    return report
