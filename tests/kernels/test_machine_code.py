"""Putting an object file's code into memory, and what LLVM's linker is asked for."""

from __future__ import annotations

import platform
import random
import zlib
from pathlib import Path

import pytest
from kernel_cases import seeds

from gantrymq.kernels import native
from gantrymq.kernels.api import crc32
from gantrymq.kernels.arrays import read_only
from gantrymq.kernels.machine_code import MachineCode, outside
from gantrymq.kernels.native import Kernel

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere LLVM links all")
DATA = random.Random(5).randbytes(5000)


def kept() -> list[tuple[str, bytes]]:
    """(symbol, object file) of all kernels that are compiled here."""
    crc32(read_only(DATA), 0, 1)
    folder = native._folder()
    assert folder is not None
    parts = [path.read_bytes().partition(b"\n") for path in folder.glob(f"*-{native.source_stamp()}-*.kernel")]
    return [(first.decode().split(" ")[2], code) for first, _, code in parts]


def check(kernel: Kernel) -> None:
    assert kernel(read_only(DATA), 3, 4999) == zlib.crc32(DATA[3:4999])
    assert not kernel.was_compiled


def test_no_kernel_needs_llvm_to_be_linked() -> None:
    found = kept()
    assert found
    for symbol, code in found:
        assert MachineCode(code).address(symbol)


def test_what_cannot_be_linked_here_is_linked_by_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    kept()
    check(Kernel("crc", "crc32"))

    def refused(code: bytes) -> MachineCode:
        raise ValueError("relocation 4 of memcpy")

    monkeypatch.setattr(native, "MachineCode", refused)
    check(Kernel("crc", "crc32"))


def test_memory_that_must_not_be_executed_is_an_error_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    _, code = kept()[0]
    monkeypatch.setattr("gantrymq.kernels.machine_code._READ_EXECUTE", 1 << 20)
    with pytest.raises(OSError, match="executed"):
        MachineCode(code)


def test_names_that_nobody_knows() -> None:
    _, code = kept()[0]
    with pytest.raises(ValueError, match="no something"):
        MachineCode(code).address("something")
    with pytest.raises(ValueError, match="in this process"):
        outside("no_function_of_this_name")


@seeds(3)
def test_damaged_object_files_are_refused_or_read(seed: int, rng: random.Random, tmp_path: Path) -> None:
    """Whatever their bytes are; nothing of them is called here."""
    refused = 0
    _, code = rng.choice(kept())
    for _ in range(300):
        raw = bytearray(code)
        for _ in range(rng.randrange(1, 4)):
            raw[rng.choice((rng.randrange(64), rng.randrange(len(raw)), len(raw) - rng.randrange(1, 1500)))] = (
                rng.randrange(256)
            )
        try:
            MachineCode(bytes(raw[: rng.choice((len(raw), len(raw), rng.randrange(len(raw))))]))
        except ValueError:
            refused += 1
    assert refused > 50


def test_a_file_that_holds_no_code_is_compiled_again(tmp_path: Path) -> None:
    path = tmp_path / "crc.kernel"
    whole = next(native._folder().glob(f"*-{native.source_stamp()}-*.kernel")).read_bytes()
    path.write_bytes(whole)
    assert native._read(path) is not None
    first, _, code = whole.partition(b"\n")
    zeros = first + b"\n" + bytes(len(code))
    for raw in (b"", first, b"\xff\n", zeros, whole[:-1], b'{"symbol": "entry", "results": -1}\n' + code):
        path.write_bytes(raw)
        assert native._read(path) is None
