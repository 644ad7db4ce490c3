"""How kernels are compiled: lazily, without the interpreter's lock, and cached on disk next to their source.

Numba keys a cached kernel by its argument types, the CPU's name and features, and the source file it stands in.
Here the whole of what kernels are made of (this package, and the constants of ``format`` and ``model``) takes the
place of that one file: a kernel has its helpers of other files compiled in, and would not notice that they changed.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache
from numba.core.registry import cpu_target

_PARTS = ("kernels", "format", "model")
KERNELS: list[Any] = []  # every kernel of the modules that are imported


@lru_cache(maxsize=1)
def _source_stamp() -> bytes:
    stamp = hashlib.sha256()
    root = Path(__file__).parent.parent
    for path in sorted(path for part in _PARTS for path in (root / part).glob("*.py")):
        stamp.update(path.read_bytes())
    return stamp.digest()


def _cache(function: Callable[..., Any]) -> Any:
    cache: Any = FunctionCache
    cache = cache(function)
    cache._cache_file._source_stamp = _source_stamp()
    return cache


def kernel(function: Callable[..., Any]) -> Any:
    """Compile ``function`` at its first call with given argument types, or load it from the cache."""
    dispatcher: Any = njit(nogil=True, error_model="numpy")(function)
    dispatcher._cache = _cache(function)
    KERNELS.append(dispatcher)
    return dispatcher


def helper(function: Callable[..., Any]) -> Any:
    """A function for kernels to call: compiled into every place of its call, not cached for itself."""
    return njit(nogil=True, error_model="numpy", forceinline=True)(function)


def rare_helper(function: Callable[..., Any]) -> Any:
    """The same for what seldom runs: a call costs more, but its caller stays small."""
    return njit(nogil=True, error_model="numpy")(function)


@lru_cache(maxsize=1)
def cpu_features() -> frozenset[str]:
    """The instruction sets that Numba compiles for here; part of the key of every cached kernel."""
    target: Any = cpu_target.target_context
    _, _, features = target.codegen().magic_tuple()
    return frozenset(name[1:] for name in features.split(",") if name.startswith("+"))
