"""How Numba compiles kernels: to run without the interpreter's lock, and to raise nothing.

Only tests and ``compiler`` use this; everything else calls a kernel through ``api``.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from numba import njit
from numba.core.registry import cpu_target

KERNELS: list[Any] = []  # every kernel of the modules that are imported


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


@lru_cache(maxsize=1)
def cpu_features() -> frozenset[str]:
    """The instruction sets that Numba compiles for in this process (``compiler`` sets them)."""
    return frozenset(name[1:] for name in told_features() if name.startswith("+"))


def told_features() -> list[str]:
    """What Numba tells LLVM of the processor: "+avx2" where it has something, "-avx512f" where not."""
    target: Any = cpu_target.target_context
    _, _, features = target.codegen().magic_tuple()
    return str(features).split(",")
