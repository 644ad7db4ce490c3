"""Kernels as machine code, called without Numba.

Importing Numba and setting it up costs more than most commands take. So the first call of a kernel with given argument
types compiles it (``compiler``, where Numba is imported) to an object file that is kept beside the sources; every later
process puts that file's code into memory (``machine_code``; what that refuses, LLVM's linker does) and calls it. The
file's name has digests of all that the code depends on: Numba, LLVM, the processor and the folder of this package; the
sources here and of the constants they use; the argument types. Who writes a file removes those of the same first digest
and another second, if they are a day old.

How a call goes: each argument becomes one or more 64-bit words (a number, or the address and the lengths of an array),
the code reads them and writes its results behind them. The interpreter's lock is not held meanwhile. The words are kept
for the next call, which mostly has the same arrays: asking one for its address takes longer than a small kernel does.

Thread rule: kernels may be called from any thread.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gantrymq.kernels.codes import RAISING, RESULT_WORDS
from gantrymq.kernels.machine_code import MachineCode, outside

try:  # as Python's own random does: hashlib brings in all of OpenSSL
    from _sha512 import sha512  # type: ignore[import-not-found]
except ImportError:
    from hashlib import sha512

_PARTS = ("kernels", "format", "model")
_KEPT_S = 24 * 3600
_CPUINFO_BYTES = 16 << 10
_LASTING = (b"vendor_id", b"cpu family", b"model", b"model name", b"flags")  # those of its lines that stay the same
Code = Callable[[Any], None]
_DATA_AT = 40  # of PyArrayInterface, where words have 64 bits
_word = ctypes.c_void_p
_pointer_of = ctypes.pythonapi["PyCapsule_GetPointer"]  # our own: the attribute of that name is everybody's
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_size_t, (ctypes.py_object, ctypes.c_char_p)


class Entry(NamedTuple):
    """Loaded code: ``results`` is how many numbers it returns, -1 for a single one that is no tuple."""

    code: Code
    results: int


class Kernel:
    """The kernel ``name`` of the module ``gantrymq.kernels.MODULE``. Calling it is calling the kernel.

    Arrays must be C-contiguous; the element types are those of the kernel's documentation. Raises TypeError for what no
    kernel takes.
    """

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name
        self.was_compiled = False
        self._entries: dict[tuple[Any, ...], Entry] = {}
        self._guard = threading.Lock()
        self._idle: list[_Call] = []  # one at most; a call takes it, so that no other thread writes into its words

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel; the first call of a process loads or compiles it."""
        try:
            call = self._idle.pop()
        except IndexError:
            call = None
        if call is None or not call.take(arguments):
            words: list[int] = []
            kinds = tuple([_append_words(words, argument) for argument in arguments])
            call = _Call(self._entries.get(kinds) or self._load(kinds, arguments), words, arguments)
        result = call.run()
        self._idle[:] = (call,)
        return result

    def _load(self, kinds: tuple[Any, ...], arguments: tuple[Any, ...]) -> Entry:
        with self._guard:
            entry = self._entries.get(kinds)
            if entry is None:
                path = self._path(kinds)
                entry = _read(path) if path else None
                if entry is None:
                    entry = self._compile(path, arguments)
                self._entries[kinds] = entry
            return entry

    def _path(self, kinds: tuple[Any, ...]) -> Path | None:
        folder = _folder()
        if folder is None:
            return None
        digests = "-".join([_environment(), source_stamp(), _digest(repr(kinds).encode())])
        return folder / f"{self.module}.{self.name}-{digests}.kernel"

    def _compile(self, path: Path | None, arguments: tuple[Any, ...]) -> Entry:
        from gantrymq.kernels.compiler import compile_kernel

        _say_once()
        compiled = compile_kernel(self.module, self.name, arguments)
        self.was_compiled = True
        if path is not None and compiled.machine_code is not None:
            head = f"{_digest(compiled.machine_code)} {compiled.results} {compiled.symbol}\n"
            _write(path, head.encode() + compiled.machine_code)
            _remove_outdated(path)
        return Entry(compiled.code, compiled.results)


@lru_cache(maxsize=1)
def _say_once() -> None:
    """Whoever waits for the first command on a machine is told what for."""
    import logging

    logging.getLogger(__name__).warning("gantrymq compiles its kernels for this processor: once, up to a minute")


class _Call:
    """The words of a call, for the next one with arguments of the same kinds."""

    __slots__ = ("_arrays", "_at", "_block", "_code", "_numbers", "_results", "_tuples")

    def __init__(self, entry: Entry, words: list[int], arguments: tuple[Any, ...]) -> None:
        self._code, self._results, self._at = entry.code, entry.results, len(words)
        self._block = (ctypes.c_int64 * (len(words) + RESULT_WORDS))(*words)
        self._arrays: list[_Array] = []
        self._tuples: list[tuple[int, Any]] = []
        self._numbers: list[tuple[int, int]] = []
        at = 0
        for place, argument in enumerate(arguments):
            if isinstance(argument, np.ndarray):
                self._arrays.append(_Array(place, at, argument))
                at += 1 + argument.ndim
            elif isinstance(argument, tuple):
                self._tuples.append((place, argument))
                at += _word_count(argument)
            else:
                self._numbers.append((place, at))
                at += 1

    def take(self, arguments: tuple[Any, ...]) -> bool:
        """Bring the words up to date; False where these arguments are of other kinds."""
        block = self._block
        for array in self._arrays:
            argument = arguments[array.place]
            if array.kept() is not argument and not array.take(argument, block):
                return False
        for place, kept in self._tuples:
            if arguments[place] is not kept:
                return False
        for place, at in self._numbers:
            block[at] = int(arguments[place])
        return True

    def run(self) -> Any:
        self._code(self._block)
        at, results = self._at, self._results
        if results < 0:
            return self._block[at]
        return tuple(self._block[at : at + results]) if results else None


class _Array:
    """An argument that is an array: kept weakly, or a file that is gone would keep its mapping."""

    __slots__ = ("at", "kept", "kind", "place")

    def __init__(self, place: int, at: int, array: Any) -> None:
        self.place, self.at, self.kind = place, at, (array.dtype.char, array.ndim)
        self.kept = weakref.ref(array)

    def take(self, argument: Any, block: Any) -> bool:
        if not isinstance(argument, np.ndarray) or (argument.dtype.char, argument.ndim) != self.kind:
            return False
        at = self.at
        block[at] = _address(argument)
        for length in argument.shape:
            at += 1
            block[at] = length
        self.kept = weakref.ref(argument)
        return True


def _word_count(argument: Any) -> int:
    words: list[int] = []
    _append_words(words, argument)
    return len(words)


def _address(array: Any) -> int:
    """Of the first element, by NumPy's array interface for C: the same in a dictionary takes twice as long."""
    if not array.flags.c_contiguous:
        raise TypeError("a kernel takes C-contiguous arrays only")
    capsule = array.__array_struct__
    return int(_word.from_address(_pointer_of(capsule, None) + _DATA_AT).value or 0)


def _append_words(words: list[int], argument: Any) -> Any:
    """Append what stands for ``argument``; returns what its code depends on."""
    if isinstance(argument, np.ndarray):
        words.append(_address(argument))
        words.extend(argument.shape)
        return argument.dtype.char, argument.ndim
    if isinstance(argument, tuple):
        kinds = tuple([_append_words(words, part) for part in argument])
        return type(argument).__name__, kinds
    words.append(int(argument))
    return "i"


def _read(path: Path) -> Entry | None:
    """The code in a file; None where there is none, or none that can be used."""
    try:
        raw = path.read_bytes()
        first, _, machine_code = raw.partition(b"\n")
        digest, results, symbol = first.decode("ascii").split(" ")
        if digest != _digest(machine_code):
            return None  # a power cut, or a disk; LLVM would not survive it
        return Entry(_link(symbol, machine_code), int(results))
    except (OSError, ValueError, RuntimeError):
        return None


def _write(path: Path, raw: bytes) -> None:
    """Put a file in place in one step: another process may be doing the same."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(raw)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)


def _remove_outdated(fresh: Path) -> None:
    """Remove what was compiled here from other sources, but nothing of today: it may be another branch's, or newer."""
    _, environment, stamp, _ = fresh.name.split("-")
    with suppress(OSError):
        oldest_s = fresh.stat().st_mtime - _KEPT_S
        for path in fresh.parent.glob(f"*-{environment}-*.kernel*"):
            if path.name.split("-")[2] != stamp and path.stat().st_mtime < oldest_s:
                path.unlink()


def _link(symbol: str, machine_code: bytes) -> Code:
    try:
        memory = MachineCode(machine_code)
        address = memory.address(symbol)
    except (OSError, ValueError):
        memory, address = None, _link_with_llvm(symbol, machine_code)
    code: Code = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
    code.keep = memory  # type: ignore[attr-defined]
    return code


_LINKING = threading.Lock()


def _link_with_llvm(symbol: str, machine_code: bytes) -> int:
    import llvmlite.binding as llvm

    with _LINKING:
        engine = _engine()
        engine.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
        engine.finalize_object()
        address = int(engine.get_function_address(symbol))
    if not address:
        raise ValueError(f"no {symbol} in the code")
    return address


@lru_cache(maxsize=1)
def _engine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name in RAISING:
        if llvm.address_of_symbol(name) is None:
            llvm.add_symbol(name, outside(name))
    machine = llvm.Target.from_default_triple().create_target_machine()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


@lru_cache(maxsize=1)
def source_stamp() -> str:
    """A digest of everything that kernels are made of."""
    return _digest(*[path.read_bytes() for path in sources()])


def sources() -> list[Path]:
    """The files that kernels are made of: this package, and where its constants stand."""
    root = Path(__file__).parent.parent
    return sorted(path for part in _PARTS for path in (root / part).glob("*.py"))


@lru_cache(maxsize=1)
def _environment() -> str:
    # Numba compiles for the processor it runs on unless these say otherwise.
    told = [os.environ.get(f"NUMBA_CPU_{what}", "").encode() for what in ("NAME", "FEATURES")]
    return _digest(bytes(Path(__file__).parent), *map(_version, ("numba", "llvmlite")), *told, _processor())


def _version(package: str) -> bytes:
    """What a package says of its version, without importing it."""
    spec = find_spec(package)
    try:
        return Path(spec.origin).with_name("_version.py").read_bytes() if spec and spec.origin else b""
    except OSError:
        return b""


def _processor() -> bytes:
    """What the first processor is and can do, in Linux's words; elsewhere what kind of machine this is."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            first = file.read(_CPUINFO_BYTES).partition(b"\n\n")[0]
    except OSError:
        return os.uname().machine.encode()
    return b"\n".join(line for line in first.splitlines() if line.partition(b"\t")[0].strip() in _LASTING)


def _digest(*parts: bytes) -> str:
    return str(sha512(b"\n".join(parts)).hexdigest()[:16])


@lru_cache(maxsize=1)
def _folder() -> Path | None:
    """Where code is kept: where Numba is told to, else beside the sources, else in the user's cache."""
    told = os.environ.get("NUMBA_CACHE_DIR")
    beside = Path(__file__).parent / "__pycache__"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "gantrymq"
    for folder in (Path(told),) if told else (beside, cache):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return None
