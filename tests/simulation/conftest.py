"""The figures of the crash tests, and quiet logs: a thousand faults write a thousand warnings."""

import logging
from collections.abc import Callable, Iterator

import pytest

PREFIX = "crash: "


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No log line of a simulated process is written."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def count_up(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """Add to a figure of this run, which tests/crash/conftest.py shows."""

    def add(what: str, number: int = 1) -> None:
        request.node.user_properties.append((PREFIX + what, number))

    return add
