"""Fixtures for pytest: RocketMQ in the test process, fresh for a test or shared by a session.

    def test_orders(rocketmq):
        place_order(rocketmq.namesrv)
        rocketmq.wait_for_messages("orders", 1)

``rocketmq`` and ``async_rocketmq`` are a broker of the test's own, ``rocketmq_session`` is one for all tests of a
worker, and ``rocketmq_topic`` a topic in it that no other test has. The marker ``rocketmq`` gives the broker of a test
its settings, ``rocketmq_settings`` in the ini file those of all. Nothing is imported before a fixture is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from gantrymq.embedded.async_broker import AsyncEmbeddedBroker
    from gantrymq.embedded.broker import EmbeddedBroker
    from gantrymq.embedded.restartable_broker import Setting

MARKER = "rocketmq"
INI_SETTINGS = "rocketmq_settings"
_MOST_OF_A_NAME = 60  # of the 127 characters that a topic may have
_HAS_ITS_OWN = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini file's settings."""
    text = "settings of the brokers that the rocketmq fixtures start: KEY=VALUE, one a line"
    parser.addini(INI_SETTINGS, text, type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """The marker's settings."""
    line = f"{MARKER}(**settings): settings of this test's broker under RocketMQ's keys, as flushDiskType='SYNC_FLUSH'"
    config.addinivalue_line("markers", line)


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Refuse settings of a test whose broker is not its own. Those of a class or module may be meant for others.

    Behind the test, where it passed: until then it may ask for a broker of its own, by ``getfixturevalue``.
    """
    wanted = getattr(item, "fixturenames", ())
    if "rocketmq_session" not in wanted or "rocketmq" in wanted or item.stash.get(_HAS_ITS_OWN, False):
        return
    for marker in item.own_markers:
        if marker.name == MARKER and (marker.args or marker.kwargs):
            raise pytest.UsageError(f"{MARKER}({_shown(marker)}): the broker of rocketmq_session is that of all tests")


@pytest.fixture
def rocketmq(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A broker of this test's own: an empty store, free ports, gone when the test ends. May be killed and restarted."""
    request.node.stash[_HAS_ITS_OWN] = True
    marked: dict[str, Setting] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):  # the nearest wins
        if marker.args:
            raise pytest.UsageError(f"{MARKER}({_shown(marker)}): settings are written KEY=VALUE, or **{{KEY: VALUE}}")
        marked |= marker.kwargs
    with _broker(request.config, marked) as broker:
        yield broker


@pytest.fixture
def async_rocketmq(rocketmq: EmbeddedBroker) -> AsyncEmbeddedBroker:
    """The same broker for a coroutine: its methods are awaited. It runs in a thread of its own."""
    from gantrymq.embedded.async_broker import AsyncEmbeddedBroker

    return AsyncEmbeddedBroker.around(rocketmq)


@pytest.fixture(scope="session")
def rocketmq_session(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """One broker for all tests of this process; under pytest-xdist each worker has its own. Leave it running."""
    with _broker(request.config, {}) as broker:
        yield broker


@pytest.fixture
def rocketmq_topic(request: pytest.FixtureRequest, rocketmq_session: EmbeddedBroker) -> str:
    """A topic of ``rocketmq_session`` that is there, and that no other test has: named after the test."""
    name = re.sub(r"[^\w-]", "_", request.node.name, flags=re.ASCII)[:_MOST_OF_A_NAME]
    topic = f"{name}_{uuid4().hex[:12]}"
    rocketmq_session.create_topic(topic)
    return topic


def _shown(marker: pytest.Mark) -> str:
    return ", ".join([*map(repr, marker.args), *(f"{key}={value!r}" for key, value in marker.kwargs.items())])


def _broker(config: pytest.Config, settings: dict[str, Setting]) -> EmbeddedBroker:
    from gantrymq.embedded.broker import EmbeddedBroker

    lines = (line.partition("=") for line in config.getini(INI_SETTINGS))
    of_all: dict[str, Setting] = {key.strip(): text.strip() for key, _, text in lines}
    return EmbeddedBroker(settings=of_all | settings)
