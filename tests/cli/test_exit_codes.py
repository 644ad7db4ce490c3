"""How the command ends: the exit code and the line on stderr for each kind of error."""

from __future__ import annotations

import errno
import re
import signal
from pathlib import Path
from unittest import mock

import pytest
from cli_cases import Run

from gantrymq.cli.exit_codes import EXIT_CODES, INTERRUPTED, NO_READER, TERMINATED, code_of
from gantrymq.cli.man import manual_page
from gantrymq.errors import ConfigError, NotAStoreError, RemotingConnectError


@pytest.mark.parametrize("name", ["recover", "rebuild"])
@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "gantrymq: interrupted\n"),
        (ConfigError("key", "x", "y"), 2, "gantrymq: key='x' is not allowed: y\n"),
        (NotAStoreError("x", "is none"), 3, "gantrymq: x: is none\n"),
        (PermissionError(13, "Permission denied", "x"), 3, "gantrymq: x: Permission denied\n"),
        (EOFError("x"), 3, "gantrymq: this is a fault of gantrymq: EOFError: x (GANTRYMQ_DEBUG=1 shows where)\n"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_error_of_command_gives_its_exit_code_and_one_line(
    gantrymq: Run, name: str, raised: BaseException, code: int, said: str
) -> None:
    with mock.patch(f"gantrymq.cli.{name}.read_writing_options", side_effect=raised):
        outcome = gantrymq("store", name, "STORE")
    assert (outcome.code, outcome.out, outcome.err) == (code, b"", said)


def test_broken_pipe_and_fault_under_debug_are_raised(gantrymq: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANTRYMQ_DEBUG", "1")
    for raised in (BrokenPipeError(errno.EPIPE, "Broken pipe"), RuntimeError("x")):
        with (
            mock.patch("gantrymq.cli.recover.read_writing_options", side_effect=raised),
            pytest.raises(type(raised)),
        ):
            gantrymq("store", "recover", "STORE")


def test_table_has_each_code_and_each_error_once() -> None:
    codes, errors = [row.code for row in EXIT_CODES], [error for row in EXIT_CODES for error in row.errors]
    assert (codes, len(errors)) == (sorted(set(codes)), len(set(errors)))
    of_signals = {128 + number for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)}
    assert {INTERRUPTED, NO_READER, TERMINATED} == of_signals


def test_exit_code_is_of_nearest_error_class() -> None:
    errors = [
        ConfigError("key", "x", "y"),
        RemotingConnectError("a", "b"),
        BrokenPipeError(),
        OSError(),
        RuntimeError(),
    ]
    assert [code_of(error) for error in errors] == [2, 3, 141, 3, 3]


def test_page_and_manual_list_all_exit_codes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    documented = re.findall(r"^- (\d+): ([\w ]+)", page, re.M)
    assert documented == [(str(row.code), row.name) for row in EXIT_CODES]
    manual = re.findall(r"^\.B (\d+)\n(.+): (.+)\.$", manual_page(), re.M)
    assert manual == [(str(row.code), row.name.capitalize(), row.meaning) for row in EXIT_CODES]
