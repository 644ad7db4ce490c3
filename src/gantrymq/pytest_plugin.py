"""Fixtures for pytest: RocketMQ in the test process, fresh for a test or shared by a session.

    def test_orders(rocketmq):
        place_order(rocketmq.namesrv)
        rocketmq.wait_for_messages("orders", 1)

``rocketmq`` and ``async_rocketmq`` give a test its own broker. ``rocketmq_session`` is one broker for all tests of a
worker, and ``rocketmq_topic`` a new topic in it. The marker ``rocketmq`` sets the settings of one test's broker,
``rocketmq_settings`` in the ini file those of all brokers. The marker's ``console=True`` or the option
``--rocketmq-console`` also serves the web console of a broker. Nothing is imported before a fixture is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from gantrymq.embedded.async_broker import AsyncEmbeddedBroker
    from gantrymq.embedded.broker import EmbeddedBroker
    from gantrymq.embedded.restartable_broker import Setting

MARKER = "rocketmq"
INI_SETTINGS = "rocketmq_settings"
CONSOLE = "console"  # of the marker; no key of RocketMQ has this name
_MAX_OF_A_NAME = 60  # a topic's name may have 127 characters
_HAS_ITS_OWN = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini option for settings."""
    text = "settings of the brokers that the rocketmq fixtures start: KEY=VALUE, one a line"
    words = "serve the web console of the brokers that the rocketmq fixtures start; a test's output has its address"
    parser.getgroup("gantrymq").addoption("--rocketmq-console", action="store_true", help=words)
    parser.addini(INI_SETTINGS, text, type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker for settings."""
    line = (
        f"{MARKER}(console=False, **settings): settings of this test's broker under RocketMQ's keys, as "
        "flushDiskType='SYNC_FLUSH'; console=True serves its web console"
    )
    config.addinivalue_line("markers", line)


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Refuse a marker with settings on a test that uses only the session's broker, where they have no effect.

    Markers of a class or module may be meant for other tests. The check runs after the test, which may still request
    its own broker by ``getfixturevalue``.
    """
    wanted = getattr(item, "fixturenames", ())
    if "rocketmq_session" not in wanted or "rocketmq" in wanted or item.stash.get(_HAS_ITS_OWN, False):
        return
    for marker in item.own_markers:
        if marker.name == MARKER and (marker.args or marker.kwargs):
            raise pytest.UsageError(f"{MARKER}({_shown(marker)}): the broker of rocketmq_session is that of all tests")


@pytest.fixture
def rocketmq(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A broker of the test's own: an empty store, free ports, removed after the test.
    It may be killed and restarted.
    """
    request.node.stash[_HAS_ITS_OWN] = True
    marked: dict[str, Setting] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):  # the nearest marker has precedence
        if marker.args:
            raise pytest.UsageError(f"{MARKER}({_shown(marker)}): settings are written KEY=VALUE, or **{{KEY: VALUE}}")
        marked |= marker.kwargs
    with _broker(request.config, marked) as broker:
        yield broker


@pytest.fixture
def async_rocketmq(rocketmq: EmbeddedBroker) -> AsyncEmbeddedBroker:
    """The test's own broker for a coroutine: its methods are awaited. It runs in a thread of its own."""
    from gantrymq.embedded.async_broker import AsyncEmbeddedBroker

    return AsyncEmbeddedBroker.around(rocketmq)


@pytest.fixture(scope="session")
def rocketmq_session(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """One broker for all tests of this process; under pytest-xdist one for each worker. Do not stop it."""
    with _broker(request.config, {}) as broker:
        yield broker


@pytest.fixture
def rocketmq_topic(request: pytest.FixtureRequest, rocketmq_session: EmbeddedBroker) -> str:
    """A new topic of ``rocketmq_session``, named after the test."""
    name = re.sub(r"[^\w-]", "_", request.node.name, flags=re.ASCII)[:_MAX_OF_A_NAME]
    topic = f"{name}_{uuid4().hex[:12]}"
    rocketmq_session.create_topic(topic)
    return topic


def _shown(marker: pytest.Mark) -> str:
    return ", ".join([*map(repr, marker.args), *(f"{key}={value!r}" for key, value in marker.kwargs.items())])


@contextmanager
def _broker(config: pytest.Config, settings: dict[str, Setting]) -> Iterator[EmbeddedBroker]:
    from gantrymq.embedded.broker import EmbeddedBroker

    lines = (line.partition("=") for line in config.getini(INI_SETTINGS))
    of_all: dict[str, Setting] = {key.strip(): text.strip() for key, _, text in lines}
    marked = dict(settings)
    console = bool(marked.pop(CONSOLE, False)) or config.getoption("rocketmq_console")
    with EmbeddedBroker(settings=of_all | marked, console=console) as broker:
        if console:
            print(f"console of the broker: {broker.console}")  # pytest shows it with a failed test, and with -s
        yield broker
