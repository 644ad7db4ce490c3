"""Compiles kernels to object files for one processor variant. Only the build imports it.

For each kernel and its argument types a small entry function is generated. It makes the arguments from 64-bit words
(see ``calls``), calls the kernel, and writes the results after them. Numba compiles both into one module of LLVM's
intermediate language. LLVM makes position-independent code of it, in which only the entry is an external symbol.

Kernels raise nothing. Numba still emits the code that would pass an exception to the interpreter. Functions of Numba
and of Python that only this code calls are replaced by one that aborts the process, so the object needs only the C
library and ``crc32_gzip_refl`` of ISA-L.

``build`` runs ``python -m gantrymq.kernels.compiler VARIANT FOLDER KERNEL…`` once for each variant, because Numba
compiles for one processor type per process, which its environment names.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from gantrymq.kernels.api import examples
from gantrymq.kernels.calls import Kernel, kinds_of
from gantrymq.kernels.codes import RESULT_WORDS
from gantrymq.kernels.variants import VARIANTS, Variant

# Numba's annotations cover only a part of what is used here.
numba: Any = importlib.import_module("numba")
types: Any = numba.types
# The functions that the code may call: those of the C library that LLVM inserts by itself, and ISA-L's CRC-32. All
# others belong to the raising of exceptions.
_CALLED = frozenset({"memcpy", "memmove", "memset", "memcmp", "abort", "crc32_gzip_refl"})
_DECLARED = re.compile(r'^declare [^@]*@"?([^"(]+)"?\(', re.MULTILINE)
_EXTERNAL_DATA = re.compile(r'^(@"?[^"= ]+"?) = external (?:local_unnamed_addr )?global i8\b.*$', re.MULTILINE)
_COMMON_DATA = re.compile(r" = common (?:local_unnamed_addr )?global ")


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    """Convert a number to an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


def main(arguments: list[str]) -> int:
    """Compile the kernels named MODULE.NAME to FOLDER/MODULE.NAME.o, with a .json file of what ``calls`` must know."""
    variant = next(variant for variants in VARIANTS.values() for variant in variants if variant.name == arguments[0])
    folder, wanted = Path(arguments[1]), set(arguments[2:])
    for kernel, example in examples():
        if kernel.full_name in wanted:
            code, results = compile_kernel(kernel, example, variant)
            known = {"kinds": repr(kinds_of(example)), "results": results}
            (folder / f"{kernel.full_name}.json").write_text(json.dumps(known))
            (folder / f"{kernel.full_name}.o").write_bytes(code)
            print(kernel.full_name, flush=True)
    return 0


def compile_kernel(kernel: Kernel, example: tuple[Any, ...], variant: Variant) -> tuple[bytes, int]:
    """Return the object file and the number of results: -1 for a single number instead of a tuple."""
    dispatcher = getattr(importlib.import_module(f"gantrymq.kernels.{kernel.module}"), kernel.name)
    signature = tuple(_type_of(argument) for argument in example)
    dispatcher.compile(signature)
    results = _count_results(dispatcher.overloads[signature])
    entry = numba.cfunc(types.void(types.CPointer(types.int64)))(_entry(dispatcher, example, results))
    module = _isolated(entry._library.get_llvm_str(), entry._wrapper_name, kernel.symbol(variant))
    return _emit(module, variant), results


def _entry(dispatcher: Any, example: tuple[Any, ...], results: int) -> Any:
    names: dict[str, Any] = {"carray": numba.carray, "pointer": _pointer, "kernel": dispatcher}
    counter = iter(range(1 << 20))
    built = [_build(argument, counter, names) for argument in example]
    at = next(counter)
    source = [
        "def entry(block):",
        f"    words = carray(block, ({at + RESULT_WORDS},))",
        f"    result = kernel({', '.join(built)})",
        *([f"    words[{at}] = result"] if results < 0 else []),
        *(f"    words[{at + i}] = result[{i}]" for i in range(results)),
    ]
    exec("\n".join(source), names)
    return names["entry"]


def _build(argument: Any, counter: Iterator[int], names: dict[str, Any]) -> str:
    """Return the expression that makes an argument from its words, which ``counter`` numbers."""
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
    """Return the Numba type of the argument that the entry makes: arrays are writable there, numbers are int64."""
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


def _isolated(text: str, entry: str, symbol: str) -> Any:
    """Return the module with ``entry`` named ``symbol``, and no other external name except those of ``_CALLED``."""
    text = _EXTERNAL_DATA.sub(r"\1 = internal global i8 0", text)
    text = _COMMON_DATA.sub(" = internal global ", text)
    module = llvm.parse_assembly(text)
    for function in module.functions:
        if not function.is_declaration:
            function.linkage = "internal"
    kernel_function = module.get_function(entry)
    kernel_function.linkage, kernel_function.name = "external", symbol
    text = str(module)
    for name in _DECLARED.findall(text):
        if not name.startswith("llvm.") and name not in _CALLED:
            text = _abort_instead(text, name)
    return llvm.parse_assembly(text)


def _abort_instead(text: str, name: str) -> str:
    """Give the declared function a body that aborts."""
    line = next(line for line in text.splitlines() if line.startswith("declare") and re.search(rf'@"?{name}"?\(', line))
    head = re.sub(r"#\d+|local_unnamed_addr|, \.\.\.", "", line.removeprefix("declare")).replace("extern_weak", "")
    called = "" if "@abort(" in text else "\ndeclare void @abort()"
    return text.replace(line, f"define internal {head.strip()} {{\n  call void @abort()\n  unreachable\n}}{called}")


def _emit(module: Any, variant: Variant) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(module.triple)
    machine = target.create_target_machine(
        cpu=variant.cpu, features=variant.features, opt=3, reloc="pic", codemodel="default"
    )
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    code: bytes = machine.emit_object(module)
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
