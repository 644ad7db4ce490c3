"""How kernels are compiled: at their first call, without the interpreter's lock, and raising nothing.

Only tests and ``compiler`` call what stands here; everybody else calls a kernel through ``api``, which keeps the
machine code (``native``).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from numba import njit
from numba.core.registry import cpu_target

KERNELS: list[Any] = []  # every kernel of the modules that are imported


def kernel(function: Callable[..., Any]) -> Any:
    """Compile ``function`` at its first call with given argument types."""
    dispatcher: Any = njit(nogil=True, error_model="numpy")(function)
    KERNELS.append(dispatcher)
    return dispatcher


def helper(function: Callable[..., Any]) -> Any:
    """A function for kernels to call: compiled into every place of its call."""
    return njit(nogil=True, error_model="numpy", forceinline=True)(function)


def rare_helper(function: Callable[..., Any]) -> Any:
    """The same for what seldom runs: a call costs more, but its caller stays small."""
    return njit(nogil=True, error_model="numpy")(function)


@lru_cache(maxsize=1)
def cpu_features() -> frozenset[str]:
    """The instruction sets that Numba compiles for here; part of the key of every kept kernel."""
    target: Any = cpu_target.target_context
    _, _, features = target.codegen().magic_tuple()
    return frozenset(name[1:] for name in features.split(",") if name.startswith("+"))
