"""Fixtures that run the command: in this process, or as a process where signals and pipes matter."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_cases import Outcome, Run, start

from golden_stores import unpack


@pytest.fixture
def gantrymq(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``gantrymq("store", "info", path)`` in this process.

    A server's log is not set up: its handlers would keep this test's stderr, and later tests would log into it.
    """
    from gantrymq.cli.main import exit_code

    monkeypatch.setattr("gantrymq.cli.serving._log_to_stderr", lambda **_: None)

    def run(*arguments: object) -> Outcome:
        code = exit_code([str(argument) for argument in arguments])
        out, err = capsysbinary.readouterr()
        return Outcome(code, out, err.decode())

    return run


@pytest.fixture
def process() -> Run:
    """As ``gantrymq``, but in a process of its own; ``input`` is its stdin."""

    def run(*arguments: object, input: bytes = b"") -> Outcome:
        with start(*arguments) as child:
            out, err = child.communicate(input, timeout=120)
        return Outcome(child.returncode, out, err.decode())

    return run


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a golden store, unpacked once; for reading only."""
    unpacked: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in unpacked:
            unpacked[name] = unpack(name, tmp_path_factory.mktemp("golden"))
        return unpacked[name]

    return get


@pytest.fixture
def golden_copy(golden: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a golden store's ``store`` that may be changed."""
    return lambda name: Path(shutil.copytree(golden(name) / "store", tmp_path / name))
