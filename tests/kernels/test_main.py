"""``python -m gantrymq.kernels`` compiles every kernel there is, each once, to code that needs no Numba."""

import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from gantrymq import kernels
from gantrymq.kernels import api, jit
from gantrymq.kernels.__main__ import main
from gantrymq.kernels.native import Kernel
from gantrymq.kernels.ready import calls


def test_no_kernel_is_forgotten() -> None:
    for module in pkgutil.iter_modules(kernels.__path__):
        importlib.import_module(f"gantrymq.kernels.{module.name}")
    compiled = {(kernel.py_func.__module__.rpartition(".")[2], kernel.__name__) for kernel in jit.KERNELS}
    known = {(kernel.module, kernel.name) for kernel in vars(api).values() if isinstance(kernel, Kernel)}
    assert known == compiled
    assert [kernel for kernel, _ in calls()] == [kernel for kernel in vars(api).values() if isinstance(kernel, Kernel)]


def test_it_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(jit.KERNELS) + 1
    assert lines[-1].startswith("all ")


def test_once_compiled_they_run_without_numba() -> None:
    main()
    program = "import sys; from gantrymq.kernels.__main__ import main; main(); assert 'numba' not in sys.modules"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "compiled" not in answer.stdout


def test_who_waits_for_a_compilation_is_told_once(tmp_path: Path) -> None:
    program = (
        "from gantrymq.kernels import api; from gantrymq.kernels.arrays import read_only; buf = read_only(b'')\n"
        "api.valid_units(buf, 0, 0, 0); api.rising_units(buf, 0, 0, 0, 0)"
    )
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    said = [
        subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stderr
        for _ in range(2)
    ]
    assert said == ["gantrymq compiles its kernels for this processor: once, up to a minute\n", ""]
