"""Where our log lines go, and that those of the program stay where they were."""

import logging
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import structlog

from gantrymq import ConsumeFromWhere, EmbeddedBroker, Message, Producer, PushConsumer
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.logs import get_logger


def test_log_lines_reach_logging_under_logger_name(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    log = get_logger()
    with caplog.at_level(logging.INFO, logger="gantrymq"):
        log.info("a queue moved", queue=3)
        log.debug("a line below the level")
        try:
            raise ValueError("never")
        except ValueError as error:
            log.warning("it failed", exc_info=error)
    moved, failed = caplog.records
    assert (moved.name, moved.getMessage(), moved.filename) == (
        "gantrymq",
        "event='a queue moved' queue=3",
        "test_logs.py",
    )
    assert failed.getMessage() == "event='it failed'"
    assert failed.exc_info is not None
    assert repr(failed.exc_info[1]) == "ValueError('never')"
    assert failed.exc_text is None or "Traceback" in failed.exc_text
    assert capsys.readouterr().out == ""


def test_line_below_level_imports_no_structlog() -> None:
    program = """
import logging, sys
from gantrymq.logs import get_logger
log = get_logger("gantrymq.client")
log.info("a line below the level", queue=3)
assert "structlog" not in sys.modules
logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
log.info("now", queue=3)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (told.returncode, told.stderr) == (0, "gantrymq.client event='now' queue=3\n")


def test_each_area_has_logger_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """A program hears of consumers and silences the rest."""
    areas = ["broker", "client", "client.consumer", "client.producer", "namesrv", "remoting"]
    for area in areas:
        get_logger(f"gantrymq.{area}").error("said")
    assert [one.name for one in caplog.records] == [f"gantrymq.{area}" for area in areas]


@pytest.mark.parametrize("way", ["listen", "listen_orderly"])
def test_raising_listener_is_logged_with_traceback_and_message(caplog: pytest.LogCaptureFixture, way: str) -> None:
    failed = threading.Event()

    def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
        if not failed.is_set():
            failed.set()
            raise ZeroDivisionError("the user's own")

    with EmbeddedBroker() as broker, Producer(broker.namesrv) as producer:
        broker.create_topic("Raises", 1)
        sent = producer.send(Message("Raises", b"x"))
        with PushConsumer(
            broker.namesrv, consumer_group="raises", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        ) as consumer:
            consumer.subscribe("Raises")
            getattr(consumer, way)(listen)
            consumer.start()
            assert failed.wait(60)
    [raised] = [one for one in caplog.records if "a listener raised" in one.getMessage()]
    assert (raised.name, raised.levelname) == ("gantrymq.client.consumer", "ERROR")
    assert raised.exc_info is not None
    assert raised.exc_info[2] is not None
    assert raised.exc_info[0] is ZeroDivisionError
    assert f"topic='Raises' broker='broker-a' queue_id=0 queue_offset=0 msg_id='{sent.msg_id}'" in raised.getMessage()


def test_structlog_configuration_of_program_is_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    ours = structlog.get_logger("a program")
    with Producer("127.0.0.1:1"):
        ours.info("still printed")
    assert "still printed" in capsys.readouterr().out
    assert not structlog.is_configured()


def test_program_configuring_structlog_gets_our_lines() -> None:
    log, lines = get_logger(), list[tuple[str, object]]()

    def keep(logger: object, method: str, event: structlog.typing.EventDict) -> str:
        lines.append((method, dict(event)))
        raise structlog.DropEvent

    structlog.configure(processors=[keep])
    log.warning("a queue moved", queue=3)
    assert lines == [("warning", {"event": "a queue moved", "queue": 3})]
