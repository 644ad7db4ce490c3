"""How Numba compiles kernels: they run without the GIL and raise nothing.

Only tests and ``compiler`` use this; everything else calls a kernel through ``api``.
"""

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from isal import isal_zlib
from numba import njit

KERNELS: list[Any] = []  # every kernel of the imported modules

llvm.load_library_permanently(isal_zlib.__file__)  # crc32_gzip_refl, which kernels call


_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    # Kernels create no arrays, so references need no counting: counting those in a tuple cost a third of a kernel's
    # time.
    "_nrt": False,
}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile ``function`` at its first call with given argument types."""
    dispatcher: Any = njit(**_OPTIONS)(function)
    KERNELS.append(dispatcher)
    return dispatcher


def helper(function: Callable[..., Any]) -> Any:
    """Mark a function that kernels call. It is inlined at each call."""
    return njit(**_OPTIONS, forceinline=True)(function)


def rare_helper(function: Callable[..., Any]) -> Any:
    """Like ``helper`` for rarely called functions: not inlined. A call costs more, but its caller stays small."""
    return njit(**_OPTIONS)(function)
