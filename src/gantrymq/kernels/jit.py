"""How Numba compiles kernels: to run without the interpreter's lock, and to raise nothing.

Only tests and ``compiler`` use this; everything else calls a kernel through ``api``.
"""

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from isal import isal_zlib
from numba import njit

KERNELS: list[Any] = []  # every kernel of the modules that are imported

llvm.load_library_permanently(isal_zlib.__file__)  # crc32_gzip_refl, which kernels call


_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    # Kernels make no arrays, so nobody counts references: of those in a tuple that cost a third of a kernel's time.
    "_nrt": False,
}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile ``function`` at its first call with given argument types."""
    dispatcher: Any = njit(**_OPTIONS)(function)
    KERNELS.append(dispatcher)
    return dispatcher


def helper(function: Callable[..., Any]) -> Any:
    """A function for kernels to call: compiled into every place of its call."""
    return njit(**_OPTIONS, forceinline=True)(function)


def rare_helper(function: Callable[..., Any]) -> Any:
    """The same for what seldom runs: a call costs more, but its caller stays small."""
    return njit(**_OPTIONS)(function)
