"""The processor variants that kernels are compiled for, and the choice of one for this machine.

One library holds every kernel once for each variant of its architecture. ``choose`` takes the first variant whose
features the processor has, so the table lists the fastest first. The last variant of an architecture is the baseline,
which every processor of it can run.

Source: the levels of the x86-64 psABI.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import NamedTuple

_CPUINFO_BYTES = 64 << 10
_OVERRIDE = "GANTRYMQ_KERNELS"
_AVX2 = frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe".split())
_AVX512 = _AVX2 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())
_V3_FEATURES = "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe"
_SAME = {"amd64": "x86_64", "arm64": "aarch64"}


class Variant(NamedTuple):
    """A processor variant.

    ``cpu`` and ``features`` are LLVM's names. ``flags`` are those of /proc/cpuinfo that the processor must have.
    """

    name: str
    cpu: str
    features: str
    flags: frozenset[str]


VARIANTS = {
    "x86_64": (
        Variant("x86_64_v4", "x86-64-v4", f"{_V3_FEATURES},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl", _AVX512),
        Variant("x86_64_v3", "x86-64-v3", _V3_FEATURES, _AVX2),
        Variant("x86_64_v2", "x86-64-v2", "+sse4.2", frozenset()),
    ),
    "aarch64": (Variant("aarch64", "generic", "+neon", frozenset()),),
}


def variants_of(machine: str) -> tuple[Variant, ...]:
    """Return the variants of an architecture by its name in ``os.uname``; empty if there are none."""
    machine = machine.lower()
    return VARIANTS.get(_SAME.get(machine, machine), ())


def choose(offered: Collection[str]) -> Variant | None:
    """Return the best of the ``offered`` variants for this processor, or None if none can run on it.

    The environment variable ``GANTRYMQ_KERNELS`` names another one, to compare variants on one machine.
    """
    told = os.environ.get(_OVERRIDE)
    here = [variant for variant in variants_of(os.uname().machine) if variant.name in offered]
    if told:
        return next((variant for variant in here if variant.name == told), None)
    flags = _processor_flags()
    return next((variant for variant in here if variant.flags <= flags), None)


def _processor_flags() -> frozenset[str]:
    """Return the feature flags of the first processor from Linux; empty elsewhere, where the baseline is used."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            first = file.read(_CPUINFO_BYTES).partition("\n\n")[0]
    except OSError:
        return frozenset()
    for line in first.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()
