"""The crash tests count what they did; the figures stand at the end of a run, summed over all tests and workers."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from gantrymq.store.log import mapped_file

PREFIX = "crash: "


@pytest.fixture(autouse=True)
def mapped_bytes_are_always_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """For 0.1 s a store does not fetch the same bytes again: operation k would be another one on a slow machine."""
    monkeypatch.setattr(mapped_file, "_FETCHED_S", 0.0)


@pytest.fixture
def count_up(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """Add to a figure of this run."""

    def add(what: str, number: int = 1) -> None:
        request.node.user_properties.append((PREFIX + what, number))

    return add


def pytest_terminal_summary(terminalreporter: Any) -> None:
    figures: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, number in report.user_properties if report.when == "call" else ():
            if name.startswith(PREFIX):
                figures[name.removeprefix(PREFIX)] += number
    if figures:
        terminalreporter.section("what the crash tests did")
        for name, number in sorted(figures.items()):
            terminalreporter.write_line(f"{number:>10,} {name}")
