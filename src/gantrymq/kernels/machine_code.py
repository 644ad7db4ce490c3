"""The machine code of an object file, put into memory where it can be called.

LLVM's linker does that too, and everything else; but bringing it in costs each command as much as NumPy does. Numba
compiles for the large code model, in which all that must be linked are addresses of 64 bits. What is anything else is
refused, and LLVM links it.

An object file (ELF, 64 bits, little endian, x86-64), as far as it is read here:

| at | bytes | what |
|---|---|---|
| 0 | 6 | 7f ``ELF`` 02 01 |
| 16 | 2 + 2 | type (1: relocatable), machine (62) |
| 40 | 8 | where the section headers begin, 64 bytes each |
| 60 | 2 | their number |
| section header + 4 | 4 + 8 | type, flags (1: written to, 2: in memory) |
| section header + 24 | 8 + 8 | position, length |
| section header + 40 | 4 + 4 | link and info: which sections this one is about |
| section header + 48 | 8 | alignment |
| symbol | 24 | name (4), its kind (2), section (2), value (8), size (8) |
| relocation | 24 | place (8), type (4), symbol (4), addend (8) |
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from functools import lru_cache
from typing import NamedTuple

from gantrymq.kernels.codes import RAISING

_HEADER = struct.Struct("<6s10xHH20xQ12xH2x")
_SECTION = struct.Struct("<4xIQ8xQQIIQ8x")
_SYMBOL = struct.Struct("<I2xHQ8x")
_RELOCATION = struct.Struct("<QIIq")
_ADDRESS = struct.Struct("<Q")
_MAGIC, _RELOCATABLE, _X86_64 = b"\x7fELF\x02\x01", 1, 62
_PROGRAM, _SYMBOLS, _RELOCATIONS, _UNWINDING = 1, 2, 4, 0x70000001
_WRITABLE, _IN_MEMORY, _THREADS_OWN = 1, 2, 0x400
_ABSOLUTE_64 = 1
_ELSEWHERE = 0
_READ_EXECUTE = mmap.PROT_READ | mmap.PROT_EXEC


class _Section(NamedTuple):
    kind: int
    flags: int
    position: int
    length: int
    link: int
    info: int
    alignment: int

    def of(self, code: bytes) -> bytes:
        found = code[self.position : self.position + self.length]
        if len(found) != self.length:
            raise ValueError("a section is not all there")
        return found


class MachineCode:
    """The code of one object file.

    Raises ValueError for an object that cannot be linked here, OSError where memory must not be executed. It lives as
    long as this object does. Safe from any thread.
    """

    def __init__(self, code: bytes) -> None:
        try:
            self._sections = _sections(code)
            self._starts, size = _places(self._sections, len(code))
            self._memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
            self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
            for number, start in self._starts.items():
                raw = self._sections[number].of(code)
                self._memory[start : start + len(raw)] = raw
            self._symbols = self._read_symbols(code)
            for section in self._sections:
                if section.kind == _RELOCATIONS and section.info in self._starts:
                    self._relocate(self._starts[section.info], section.of(code))
        except (struct.error, IndexError, OverflowError) as error:
            raise ValueError(str(error)) from error
        if _process().mprotect(ctypes.c_void_p(self._base), ctypes.c_size_t(size), _READ_EXECUTE):
            raise OSError(ctypes.get_errno(), "memory must not be executed")

    def address(self, name: str) -> int:
        """Of a function; raises ValueError."""
        for found, section, value in self._symbols:
            if found == name:
                return self._address(section, value)
        raise ValueError(f"no {name} in the code")

    def _read_symbols(self, code: bytes) -> list[tuple[str, int, int]]:
        """(name, section, value) of each."""
        table = next((section for section in self._sections if section.kind == _SYMBOLS), None)
        if table is None:
            raise ValueError("no symbols")
        names = self._sections[table.link].of(code)
        symbols = []
        for at, section, value in _SYMBOL.iter_unpack(table.of(code)):
            symbols.append((names[at : names.index(0, at)].decode("ascii"), section, value))
        return symbols

    def _relocate(self, start: int, relocations: bytes) -> None:
        for place, kind, number, addend in _RELOCATION.iter_unpack(relocations):
            name, section, value = self._symbols[number]
            if kind != _ABSOLUTE_64:
                raise ValueError(f"relocation {kind} of {name}")
            target = outside(name) if section == _ELSEWHERE else self._address(section, value)
            _ADDRESS.pack_into(self._memory, start + place, target + addend & 2**64 - 1)

    def _address(self, section: int, value: int) -> int:
        if section not in self._starts:
            raise ValueError(f"section {section} is not in memory")
        return self._base + self._starts[section] + value


@lru_cache(maxsize=64)
def outside(name: str) -> int:
    """The address of what code calls: a function of C's library, or of Python. Raises ValueError.

    What would raise an exception leads to an abort, for kernels raise nothing.
    """
    function = getattr(_process(), "abort" if name in RAISING else name, None)
    if function is None:
        raise ValueError(f"no {name} in this process")
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@lru_cache(maxsize=1)
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _sections(code: bytes) -> list[_Section]:
    magic, kind, machine, first, count = _HEADER.unpack_from(code)
    if (magic, kind, machine) != (_MAGIC, _RELOCATABLE, _X86_64):
        raise ValueError("no object file of this kind of machine")
    return [_Section(*_SECTION.unpack_from(code, first + number * _SECTION.size)) for number in range(count)]


def _places(sections: list[_Section], length: int) -> tuple[dict[int, int], int]:
    """Where each section that is needed begins in memory, and how much they take in all; the file has ``length``."""
    starts, end = {}, 0
    for number, section in enumerate(sections):
        if not section.flags & _IN_MEMORY or section.kind == _UNWINDING:  # kernels raise nothing
            continue
        if section.kind != _PROGRAM or section.flags & (_WRITABLE | _THREADS_OWN):
            raise ValueError(f"section {number} is neither code nor constants")
        alignment = max(section.alignment, 1)
        if alignment > mmap.PAGESIZE or section.length > length:
            raise ValueError(f"section {number} is larger than the file")
        starts[number] = -(-end // alignment) * alignment
        end = starts[number] + section.length
    return starts, max(end, 1)
