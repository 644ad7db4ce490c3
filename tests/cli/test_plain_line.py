"""Both parsers of a plain `recover` or `rebuild` line read it the same way."""

from __future__ import annotations

import errno
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from cli_cases import Run
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.cli import rebuild, rebuilding, recover, recovery
from gantrymq.cli.application import application
from gantrymq.cli.main import plain_command
from gantrymq.errors import ConfigError, NotAStoreError

FLAGS = ("--dry-run", "--json", "--queues", "--index")
WORDS = st.sampled_from(
    (*FLAGS, "--js", "--help", "-h", "-c", "--set", "--engine", "local", "--", "-", "", "/data/store", ".")
)
LINES = st.lists(WORDS | st.text(st.characters(exclude_characters="\0"), max_size=3), max_size=5)  # no argv holds a NUL
Call = tuple[str, dict[str, Any]]


@contextmanager
def work_left_out() -> Iterator[list[Call]]:
    """What would have been done, in place of doing it."""
    calls: list[Call] = []

    def told(function: Callable[..., int]) -> Callable[..., int]:
        def call(*positional: Any, **named: Any) -> int:
            bound = inspect.signature(function).bind(*positional, **named)
            bound.apply_defaults()
            calls.append((function.__name__, bound.arguments))
            return 0

        return call

    both = told(recovery.recover_store), told(rebuilding.rebuild_store)
    with (
        mock.patch.object(recovery, "recover_store", both[0]),
        mock.patch.object(recover, "recover_store", both[0]),
        mock.patch.object(rebuilding, "rebuild_store", both[1]),
        mock.patch.object(rebuild, "rebuild_store", both[1]),
    ):
        yield calls


@given(name=st.sampled_from(("recover", "rebuild")), rest=LINES)
def test_the_plain_parser_reads_a_line_as_typer_does(name: str, rest: list[str]) -> None:
    line = ["store", name, *rest]
    with work_left_out() as calls:
        command = plain_command(line)
        if command is None:
            return
        command()
        application(line)(line, standalone_mode=False)
    assert calls[0] == calls[1]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("recover STORE", {}),
        ("recover STORE --json", {"json": True}),
        ("recover --json --dry-run STORE --json", {"json": True, "dry_run": True}),
        ("rebuild STORE --queues", {"queues": True}),
        ("rebuild --index --json STORE", {"index": True, "json": True}),
    ],
)
def test_the_usual_lines_are_plain(line: str, named: dict[str, bool]) -> None:
    with work_left_out() as calls:
        command = plain_command(["store", *line.split()])
        assert command is not None
        command()
    ((_, arguments),) = calls
    assert str(arguments["store"]) == "STORE"
    assert {name for name, value in arguments.items() if value is True} == named.keys()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "store",
        "store recover",
        "store recover --json",
        "store recover a b",
        "store recover a --set x=1",
        "store recover a --queues",
        "store rebuild a --engine=spark",
        "store rebuild -- a",
        "store recover a --help",
        "store info a",
        "demo recover a",
    ],
)
def test_any_other_line_is_left_to_typer(line: str) -> None:
    assert plain_command(line.split()) is None


@pytest.mark.parametrize("more", [[], ["-c", os.devnull]], ids=["plain", "typer"])
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
def test_an_end_is_told_alike(
    gantrymq: Run, name: str, more: list[str], raised: BaseException, code: int, said: str
) -> None:
    module = {"recover": "recovery", "rebuild": "rebuilding"}[name]
    with mock.patch(f"gantrymq.cli.{module}.read_options", side_effect=raised):
        outcome = gantrymq("store", name, "STORE", *more)
    assert (outcome.code, outcome.out, outcome.err) == (code, b"", said)


@pytest.mark.parametrize("more", [[], ["-c", os.devnull]], ids=["plain", "typer"])
def test_a_broken_pipe_and_a_fault_that_is_looked_for_come_through(
    gantrymq: Run, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    monkeypatch.setenv("GANTRYMQ_DEBUG", "1")
    for raised in (BrokenPipeError(errno.EPIPE, "Broken pipe"), RuntimeError("x")):
        with (
            mock.patch("gantrymq.cli.recovery.read_options", side_effect=raised),
            pytest.raises(type(raised)),
        ):
            gantrymq("store", "recover", "STORE", *more)


def test_lines_that_typer_refuses_are_not_plain() -> None:
    line = ["store", "recover", "a", "--index"]
    with pytest.raises(Exception, match="No such option"):
        application(line)(line, standalone_mode=False)
    assert plain_command(line) is None
