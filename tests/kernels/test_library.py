"""The library of compiled kernels: what is in it, when it is built again, how it is linked and chosen."""

from __future__ import annotations

import ctypes
import importlib
import os
import pkgutil
import random
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from gantrymq import kernels
from gantrymq.errors import KernelsError
from gantrymq.kernels import api, build, jit, variants
from gantrymq.kernels.api import examples
from gantrymq.kernels.arrays import read_only
from gantrymq.kernels.calls import Kernel
from gantrymq.kernels.loader import FOLDER, library, read_index

PACKAGE = Path(kernels.__file__).parent.parent
USE = """
import sys
from gantrymq.kernels.api import crc32, valid_units
from gantrymq.kernels.arrays import read_only
assert crc32(read_only(b"123456789"), 0, 9) == 0xcbf43926
print([name for name in ("numba", "llvmlite", "gantrymq.kernels.build") if name in sys.modules])
"""


def run(root: Path, *command: str, **environment: str) -> str:
    """What a process says that imports gantrymq from ``root``."""
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": str(root), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with its library built; returns what PYTHONPATH has to name."""
    library()
    shutil.copytree(PACKAGE, tmp_path / "gantrymq", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1))


def test_library_has_every_kernel() -> None:
    for module in pkgutil.iter_modules(kernels.__path__):
        importlib.import_module(f"gantrymq.kernels.{module.name}")
    compiled = {(kernel.py_func.__module__.rpartition(".")[2], kernel.__name__) for kernel in jit.KERNELS}
    offered = [kernel for kernel in vars(api).values() if isinstance(kernel, Kernel)]
    assert {(kernel.module, kernel.name) for kernel in offered} == compiled
    assert [kernel for kernel, _ in examples()] == offered
    library()
    index = read_index(FOLDER)
    assert index is not None
    assert set(index["kernels"]) == {kernel.full_name for kernel in offered}


def test_each_kernel_of_library_can_be_called() -> None:
    for kernel, arguments in examples():
        kernel(*arguments)


def test_kernels_run_without_numba_and_llvm(checkout: Path) -> None:
    assert run(checkout, "-c", USE) == "[]\n"


def test_arguments_of_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match=r"crc\.crc32 takes .*'B'.*, not .*'i'"):
        Kernel("crc", "crc32")(np.zeros(4, np.int32), 0, 4)


def test_edited_docstring_compiles_nothing(checkout: Path) -> None:
    before = read_index(checkout / "gantrymq/kernels/built")
    edit(checkout / "gantrymq/kernels/crc.py", '"""', '"""More of it. ')
    edit(checkout / "gantrymq/model/flags.py", "\n", "\n# A comment.\n")
    edit(checkout / "gantrymq/kernels/variants.py", "\n", "\n# A comment.\n")
    assert "up to date" in run(checkout, "-m", "gantrymq.kernels")
    after = read_index(checkout / "gantrymq/kernels/built")
    assert before is not None
    assert after is not None
    assert before["library"] == after["library"]
    assert {name for name, told in after["stamps"].items() if told[1] != before["stamps"][name][1]} == {
        *("kernels/crc.py", "kernels/variants.py", "model/flags.py")  # noticed, so an edit of their code is as well
    }
    assert run(checkout, "-c", USE) == "[]\n"


@pytest.mark.slow
def test_only_edited_kernel_is_compiled_at_next_use(checkout: Path) -> None:
    source = checkout / "gantrymq/kernels/torn.py"
    source.write_text(source.read_text() + "\n_MORE = 1\n")
    said = run(checkout, "-c", USE)
    assert "gantrymq compiles its kernels, 2 of them" in said  # first_torn, and digest, which uses it
    assert run(checkout, "-c", USE) == "[]\n"


def test_build_without_linker_names_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "linker", lambda: None)
    with pytest.raises(KernelsError, match="set CC to one, or pip install ziglang"):
        build._link([], tmp_path)
    assert not list(tmp_path.iterdir())


def test_failed_linker_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(KernelsError, match="false cannot link the kernels"):
        build._link([], tmp_path)
    assert not list(tmp_path.iterdir())


def test_unloadable_library_is_named(checkout: Path) -> None:
    (found,) = (checkout / "gantrymq/kernels/built").glob("kernels-*.so")
    found.write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-m", "gantrymq.kernels"],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert str(found) in done.stderr


@pytest.mark.skipif(not variants.variants_of(os.uname().machine), reason="no variants for this processor")
def test_each_variant_computes_same_results(tmp_path: Path) -> None:
    """In a process of its own each, as ``build`` starts the compiler."""
    raw = random.Random(3).randbytes(3000)
    buf = read_only(raw)
    here = variants.variants_of(os.uname().machine)
    flags = variants._processor_flags()
    for variant in [variant for variant in here if variant.flags <= flags]:
        folder = tmp_path / variant.name
        folder.mkdir()
        child = build._start_compiler(variant, folder, ["crc.crc32"])
        assert child.communicate()[1] == ""
        name = build._link([folder / "crc.crc32.o"], folder)
        assert name is not None
        code = ctypes.CDLL(str(folder / name))[api.crc32.symbol(variant)]
        for stop in [*range(5, 1200), 3000]:
            words = (ctypes.c_int64 * 12)(buf.ctypes.data, len(raw), 5, stop)
            code(words)
            assert words[4] == zlib.crc32(raw[5:stop]), (variant.name, stop)


def test_chosen_variant_is_best_for_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    table = variants.VARIANTS["x86_64"]
    names = [variant.name for variant in table]
    monkeypatch.setattr("os.uname", lambda: os.uname_result(("Linux", "", "", "", "x86_64")))
    for flags, wanted in ((table[0].flags, "x86_64_v4"), (table[1].flags, "x86_64_v3"), (frozenset(), "x86_64_v2")):
        monkeypatch.setattr(variants, "_processor_flags", lambda flags=flags: flags)
        chosen = variants.choose(names)
        assert chosen is not None
        assert chosen.name == wanted
    monkeypatch.setenv("GANTRYMQ_KERNELS", "x86_64_v3")
    assert variants.choose(names) == table[1]
    assert variants.choose(["aarch64"]) is None
