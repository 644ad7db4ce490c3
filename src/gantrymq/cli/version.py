"""What ``gantrymq --version`` prints: the version, how the package was built, and what this machine runs of it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from gantrymq import __version__

_PACKAGE = Path(__file__).parents[1]
_BUILD_FACTS = _PACKAGE / "build.json"  # hatch_build.py writes it into a wheel
# A module that only the extra brings.
_MODULES = {
    "acl": "yaml",
    "arrow": "pyarrow",
    "console": "starlette",
    "grpc": "grpc",
    "jit": "numba",
    "metrics": "prometheus_client",
    "report": "altair",
    "spark": "pyspark",
    "tls": "cryptography",
    "uvloop": "uvloop",
}


def version_lines() -> Iterator[str]:
    """The lines, the first of which is ``gantrymq VERSION``."""
    yield f"gantrymq {__version__}"
    yield f"  source: {_built()}"
    yield f"  runs on: Python {platform.python_version()}, {platform.system()} {platform.machine()}, {_kernels()}"
    have = [extra for extra, module in _MODULES.items() if find_spec(module)]
    missing = [extra for extra in _MODULES if extra not in have]
    yield f"  extras: {', '.join(have) or 'none'}" + (f" (not installed: {', '.join(missing)})" if missing else "")


def _built() -> str:
    try:
        facts = json.loads(_BUILD_FACTS.read_text("utf-8"))
    except FileNotFoundError:
        return f"a checkout, {_PACKAGE}"
    return f"commit {facts['commit'] or 'unknown'} built for {facts['machine']}"


def _kernels() -> str:
    """The variant of the kernels, which the processor decides; opening the library itself is not needed for it."""
    from gantrymq.kernels.variants import choose, variants_of

    variant = choose([variant.name for variant in variants_of(os.uname().machine)])
    return f"kernels for {variant.name}" if variant else "no kernels for this processor"
