"""Compiling a kernel to code that can be called without Numba; imported only when there is something to compile.

For each kernel and its argument types a small entry function is written that builds the arguments from words (see
``native``), calls the kernel, and puts its results behind them. Numba compiles both into one object.
"""

from __future__ import annotations

import ctypes
import importlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from gantrymq.kernels.codes import RESULT_WORDS
from gantrymq.kernels.machine_code import outside

# Numba's own annotations cover a part of what is used here.
numba: Any = importlib.import_module("numba")
types: Any = numba.types
_DECLARED = re.compile(r'^declare [^@]*@"?([^"(]+)"?\(', re.MULTILINE)

Code = Callable[[Any], None]


class Compiled(NamedTuple):
    """``machine_code`` is None where the code needs something that only a process with Numba in it has."""

    code: Code
    symbol: str
    results: int
    machine_code: bytes | None


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    """A number as an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


def compile_kernel(module: str, name: str, arguments: tuple[Any, ...]) -> Compiled:
    """Compile the kernel for arguments of these types."""
    dispatcher = getattr(importlib.import_module(f"gantrymq.kernels.{module}"), name)
    names: dict[str, Any] = {"carray": numba.carray, "pointer": _pointer, "kernel": dispatcher}
    counter = iter(range(1 << 20))
    built = [_build(argument, counter, names) for argument in arguments]
    at = next(counter)
    dispatcher.compile(tuple(_type_of(argument) for argument in arguments))
    results = _count_results(dispatcher.overloads[tuple(_type_of(argument) for argument in arguments)])
    source = [
        "def entry(block):",
        f"    words = carray(block, ({at + RESULT_WORDS},))",
        f"    result = kernel({', '.join(built)})",
        *([f"    words[{at}] = result"] if results < 0 else []),
        *(f"    words[{at + i}] = result[{i}]" for i in range(results)),
    ]
    exec("\n".join(source), names)
    compiled = numba.cfunc(types.void(types.CPointer(types.int64)))(names["entry"])
    library = compiled._library
    code: Code = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(compiled.address)
    code.keep = compiled  # type: ignore[attr-defined]
    alone = _stands_alone(library.get_llvm_str())
    return Compiled(code, compiled._wrapper_name, results, library._get_compiled_object() if alone else None)


def _build(argument: Any, counter: Iterator[int], names: dict[str, Any]) -> str:
    """The expression that makes an argument from its words, which ``counter`` numbers."""
    if isinstance(argument, np.ndarray):
        element = f"dtype_{argument.dtype.char}"
        names[element] = argument.dtype
        address = next(counter)
        shape = "".join(f"words[{next(counter)}], " for _ in range(argument.ndim))
        return f"carray(pointer(words[{address}]), ({shape}), {element})"
    if isinstance(argument, tuple):
        names[type(argument).__name__] = type(argument)
        parts = ", ".join(_build(part, counter, names) for part in argument)
        return f"{type(argument).__name__}({parts})"
    return f"words[{next(counter)}]"


def _type_of(argument: Any) -> Any:
    """The type that the built argument has: arrays are writable there, numbers are int64."""
    if isinstance(argument, np.ndarray):
        return types.Array(numba.typeof(argument).dtype, argument.ndim, "C")
    if isinstance(argument, tuple):
        return types.NamedTuple([_type_of(part) for part in argument], type(argument))
    return types.int64


def _count_results(overload: Any) -> int:
    kind = overload.signature.return_type
    if isinstance(kind, types.BaseTuple):
        return len(kind)
    return 0 if isinstance(kind, types.NoneType) else -1


def _stands_alone(llvm_text: str) -> bool:
    """Whether all that the code calls is in every Python process: C's library, Python, and what never runs."""
    try:
        for name in _DECLARED.findall(llvm_text):
            if not name.startswith("llvm."):
                outside(name)
    except ValueError:
        return False
    return True
