"""``python -m gantrymq.kernels`` compiles every kernel there is, each once."""

import importlib
import pkgutil

import pytest

from gantrymq import kernels
from gantrymq.kernels import jit
from gantrymq.kernels.__main__ import calls, main


def test_no_kernel_is_forgotten() -> None:
    for module in pkgutil.iter_modules(kernels.__path__):
        importlib.import_module(f"gantrymq.kernels.{module.name}")
    named = [kernel for kernel, _ in calls()]
    assert {kernel.__name__ for kernel in named} == {kernel.__name__ for kernel in jit.KERNELS}
    assert len(named) == len(jit.KERNELS)


def test_it_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(jit.KERNELS) + 2
    assert lines[-1].startswith("all ")
