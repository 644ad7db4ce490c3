"""Compiled kernels in memory before anything is timed: a first use would be paid for by whatever was just measured."""

from __future__ import annotations

from collections.abc import Callable

from gantrymq.kernels.__main__ import calls


def load_kernels(loaded: Callable[[float], None]) -> int:
    """Load every kernel, compiling those that the cache lacks; ``loaded`` hears the share done. Returns how many.

    Afterwards the writer and Spark's workers find all of them in the cache.
    """
    planned = list(calls())
    for number, (kernel, arguments) in enumerate(planned, 1):
        kernel(*arguments)
        loaded(number / len(planned))
    return len(planned)
