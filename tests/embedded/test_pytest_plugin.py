"""The fixtures as somebody else's tests use them: a pytest of its own in a folder of its own."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]

SEND = """
    from gantrymq import Message, Producer

    def send(broker, topic, *bodies, **of):
        with Producer(broker.namesrv) as producer:
            for body in bodies:
                producer.send(Message(topic, body, **of))
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder whose tests may import ``send``."""
    pytester.makepyfile(sending=SEND)
    pytester.makeini("[pytest]\nasyncio_mode = strict\nasyncio_default_fixture_loop_scope = function\n")
    return pytester


def run(project: pytest.Pytester, tests: str, *words: str) -> pytest.RunResult:
    project.makepyfile(tests)
    return project.runpytest_subprocess("-p", "no:cacheprovider", *words, timeout=120)


def test_pytest_plugin_is_entry_point() -> None:
    assert [one.value for one in entry_points(group="pytest11", name="gantrymq")] == ["gantrymq.pytest_plugin"]


def test_importing_plugin_imports_no_server() -> None:
    """Not the servers, not numpy: every start of pytest would pay for it."""
    program = "import sys, pytest, gantrymq.pytest_plugin; print([m for m in sys.modules if m in {names}])"
    names = {"numpy", "asyncio", "structlog", "msgspec", "gantrymq.embedded.broker", "gantrymq.store.message_store"}
    out = subprocess.run(
        [sys.executable, "-c", program.format(names=names)], capture_output=True, text=True, check=True
    ).stdout
    assert set(out.strip(" []\n").replace("'", "").split(", ")) <= {"", "asyncio"}  # pytest may want asyncio itself


def test_each_test_has_broker_of_its_own(project: pytest.Pytester) -> None:
    tests = """
        import pytest
        from sending import send

        def test_one(rocketmq):
            send(rocketmq, "T", b"one")
            assert rocketmq.bodies("T") == [b"one"]

        def test_other(rocketmq):
            assert rocketmq.messages("T") == []

        def test_killed(rocketmq):
            send(rocketmq, "T", b"one", b"two")
            rocketmq.kill()
            rocketmq.restart()
            rocketmq.wait_for_messages("T", 2)

        def test_later(rocketmq):
            send(rocketmq, "T", b"one", delay_level=5)
            assert rocketmq.messages("T") == []
            rocketmq.clock.advance(61_000)
            rocketmq.wait_for_messages("T", 1)

        @pytest.mark.asyncio
        async def test_awaited(async_rocketmq, rocketmq):
            await async_rocketmq.create_topic("T", 1)
            assert async_rocketmq.namesrv == rocketmq.namesrv
            await async_rocketmq.wait_for_messages("T", 0)

        def test_failing(rocketmq):
            send(rocketmq, "T", b"the body", keys=["4711"])
            rocketmq.wait_for_messages("T", 2, timeout_s=0.1)
    """
    result = run(project, tests)
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["*T has 1 messages, not 2:*", "*keys ['4711'?*b'the body'*"])


def test_settings_come_from_ini_file_and_nearest_marker(project: pytest.Pytester) -> None:
    tests = """
        import pytest
        from gantrymq import Producer
        from sending import send

        pytestmark = pytest.mark.rocketmq(brokerName="of-the-module", defaultTopicQueueNums=3)

        def queues(broker):
            send(broker, "T", b"one")
            with Producer(broker.namesrv) as producer:
                return {(one.broker_name, one.queue_id) for one in producer.queues("T")}

        def test_module(rocketmq):
            assert queues(rocketmq) == {("of-the-module", number) for number in range(3)}

        @pytest.mark.rocketmq(defaultTopicQueueNums=2)
        def test_marked(rocketmq):
            assert queues(rocketmq) == {("of-the-module", number) for number in range(2)}

        def test_session(rocketmq_session):
            assert queues(rocketmq_session) == {("of-the-ini", number) for number in range(1)}

        @pytest.mark.rocketmq(flushDisk="SYNC_FLUSH")
        def test_typing_error(rocketmq):
            pass
    """
    project.makeini(
        "[pytest]\naddopts = --strict-markers\n"
        "rocketmq_settings =\n    brokerName=of-the-ini\n    defaultTopicQueueNums = 1\n"
    )
    result = run(project, tests)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*flushDisk='SYNC_FLUSH' is not allowed: it is not a key*; nearest: flushDiskType*"])


def test_ineffective_plugin_settings_are_refused(project: pytest.Pytester) -> None:
    tests = """
        import pytest

        @pytest.mark.rocketmq({"brokerName": "b"}, 7)
        def test_positional(rocketmq):
            pass

        @pytest.mark.rocketmq(brokerName="b")
        def test_of_the_session(rocketmq_session):
            pass

        @pytest.mark.rocketmq(brokerName="b")
        class TestSome:
            @pytest.mark.rocketmq
            def test_chosen_by_its_marker(self, rocketmq_session):
                pass
    """
    result = run(project, tests)
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines_random(
        [
            "*UsageError: rocketmq({'brokerName': 'b'}, 7): settings are written KEY=VALUE, or [*][*]{KEY: VALUE}",
            "*UsageError: rocketmq(brokerName='b'): the broker of rocketmq_session is that of all tests",
        ]
    )


def test_second_broker_fixture_can_start_at_any_time(project: pytest.Pytester) -> None:
    tests = """
        import pytest

        @pytest.fixture(autouse=True)
        def shared(rocketmq_session):
            pass

        @pytest.fixture
        def own(request):
            return request.getfixturevalue("rocketmq")

        @pytest.mark.rocketmq(brokerName="b")
        def test_by_a_fixture(own):
            assert own.is_running

        @pytest.mark.rocketmq(brokerName="b")
        def test_by_itself(request):
            assert request.getfixturevalue("rocketmq").is_running

        @pytest.mark.rocketmq(brokerName="b")
        def test_with_a_mark_and_no_fixture():
            pass
    """
    result = run(project, tests)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["FAILED *::test_with_a_mark_and_no_fixture*"])


def test_session_shares_one_broker_and_each_worker_has_its_own(project: pytest.Pytester) -> None:
    tests = """
        import os
        from pathlib import Path

        import pytest
        from sending import send

        @pytest.mark.parametrize("number", range(8))
        def test_shared(rocketmq_session, rocketmq_topic, number):
            send(rocketmq_session, rocketmq_topic, b"%d" % number)
            assert rocketmq_session.bodies(rocketmq_topic) == [b"%d" % number]
            worker = os.environ["PYTEST_XDIST_WORKER"]
            with open("seen", "a") as seen:
                seen.write(f"{worker} {rocketmq_session.namesrv} {rocketmq_topic}\\n")
    """
    result = run(project, tests, "-n", "2")
    result.assert_outcomes(passed=8)
    seen = [line.split() for line in (project.path / "seen").read_text().splitlines()]
    brokers = {(worker, namesrv) for worker, namesrv, _ in seen}
    assert len(brokers) == len({worker for worker, _ in brokers}) == len({namesrv for _, namesrv in brokers})
    assert len({topic for _, _, topic in seen}) == 8


@pytest.mark.slow
def test_console_of_broker_is_served_for_marker_or_option(project: pytest.Pytester) -> None:
    tests = """
        import urllib.request

        import pytest

        def overview(broker):
            return urllib.request.urlopen(broker.console).read().decode()

        @pytest.mark.rocketmq(console=True, defaultTopicQueueNums=3)
        def test_marked(rocketmq):
            assert rocketmq.address in overview(rocketmq)

        def test_shared(rocketmq_session):
            assert rocketmq_session.address in overview(rocketmq_session)
    """
    run(project, tests).assert_outcomes(passed=1, failed=1)
    found = run(project, tests, "--rocketmq-console", "-s")
    found.assert_outcomes(passed=2)
    found.stdout.fnmatch_lines(["*console of the broker: http://127.0.0.1:*"])
