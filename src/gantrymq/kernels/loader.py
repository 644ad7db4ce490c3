"""Opens the library of compiled kernels, after checking that it is up to date, and finds a kernel's entry in it.

``build`` makes the library when the package is built, and in a checkout when a source has changed. It is a shared
library with every kernel for each processor variant, and an index beside it, a JSON object:

| key | value |
|---|---|
| ``library`` | the shared library's file name |
| ``variants`` | the names of the variants in it |
| ``kernels`` | for each kernel the digest of its sources, the kinds of its arguments, the number of its results |
| ``stamps`` | in a checkout, modification time and size of each source; empty in an installed package |

Thread rule: any thread.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
from isal import isal_zlib

from gantrymq.errors import KernelsError
from gantrymq.kernels.variants import Variant, choose

FOLDER = Path(__file__).parent / "built"
INDEX = "index.json"
Find = Callable[[str], int]
_BUILDING = threading.Lock()


class Library:
    """An open library, for the variant that is best on this processor.

    Raises KernelsError if it has no variant for this processor.
    """

    def __init__(self, index: dict[str, Any], folder: Path) -> None:
        self._kernels: dict[str, dict[str, Any]] = index["kernels"]
        variant = choose(index["variants"])
        if variant is None:
            raise KernelsError(
                f"{folder / INDEX}: kernels for {', '.join(index['variants'])}, none for this processor;"
                " build them with: python -m gantrymq.kernels"
            )
        self.variant: Variant = variant
        self._find = _opened(folder / index["library"])

    def entry(self, full_name: str, symbol: str) -> tuple[int, int, str]:
        """Return a kernel's address, the number of its results, and the kinds of its arguments."""
        known = self._kernels[full_name]
        return self._find(symbol), known["results"], known["kinds"]


@lru_cache(maxsize=1)
def library() -> Library:
    """Return the library of this package. In a checkout whose kernels have changed it is built first.

    Raises KernelsError if there is none and none can be built.
    """
    with _BUILDING:
        index = read_index(FOLDER)
        if index is None or _is_stale(index):
            index = _built()
        return Library(index, FOLDER)


def _built() -> dict[str, Any]:
    """Run ``build`` and return the new index. A separate process keeps the compiler's imports out of this program."""
    import logging
    import subprocess

    root = os.fspath(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "gantrymq.kernels.build"]
    with subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        for line in child.stdout:
            logging.getLogger(__name__).warning(line.rstrip())
        reason = child.stderr.read().strip()
    index = read_index(FOLDER)
    if child.returncode or index is None:
        raise KernelsError(reason or f"{' '.join(command)} ended with {child.returncode}")
    return index


def read_index(folder: Path) -> dict[str, Any] | None:
    """Return the index of a folder, or None if there is no readable one."""
    try:
        index: dict[str, Any] = orjson.loads((folder / INDEX).read_bytes())
        if not (folder / index["library"]).exists():
            return None
    except (OSError, ValueError, KeyError):
        return None
    return index


def stamp(path: Path) -> list[int]:
    """Return [modification time in ns, size], which shows whether a source was changed."""
    status = path.stat()
    return [status.st_mtime_ns, status.st_size]


def _is_stale(index: dict[str, Any]) -> bool:
    root = Path(__file__).parent.parent
    try:
        return any(stamp(root / path) != told for path, told in index.get("stamps", {}).items())
    except OSError:
        return True


def _opened(path: Path) -> Find:
    try:
        ctypes.CDLL(isal_zlib.__file__, ctypes.RTLD_GLOBAL)  # provides crc32_gzip_refl, which kernels call
        loaded = ctypes.CDLL(os.fspath(path))
    except OSError as error:
        raise KernelsError(
            f"{path} cannot be loaded: {error}; build it again with: python -m gantrymq.kernels"
        ) from error

    def find(symbol: str) -> int:
        return ctypes.cast(getattr(loaded, symbol), ctypes.c_void_p).value or 0

    return find


def object_path(folder: Path, variant: Variant, full_name: str, digest: str) -> Path:
    """Return the path of a kernel's object file."""
    return folder / "objects" / variant.name / f"{full_name}-{digest}.o"
