"""Where our log lines go, and that those of the program stay where they were."""

import logging
from collections.abc import Iterator

import pytest
import structlog

from gantrymq import Producer
from gantrymq.logs import get_logger


@pytest.fixture(autouse=True)
def nothing_is_configured() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def test_lines_go_to_logging_and_say_who_wrote_them(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    log = get_logger()
    with caplog.at_level(logging.INFO, logger="gantrymq"):
        log.info("a queue moved", queue=3)
        log.debug("nobody wants to know")
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
    assert "ValueError: never" in failed.getMessage()
    assert capsys.readouterr().out == ""


def test_a_program_s_own_structlog_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    ours = structlog.get_logger("a program")
    with Producer("127.0.0.1:1"):
        ours.info("still printed")
    assert "still printed" in capsys.readouterr().out
    assert not structlog.is_configured()


def test_a_program_that_configures_structlog_gets_our_lines_too() -> None:
    log, lines = get_logger(), list[tuple[str, object]]()

    def keep(logger: object, method: str, event: structlog.typing.EventDict) -> str:
        lines.append((method, dict(event)))
        raise structlog.DropEvent

    structlog.configure(processors=[keep])
    log.warning("a queue moved", queue=3)
    assert lines == [("warning", {"event": "a queue moved", "queue": 3})]
