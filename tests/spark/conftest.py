"""One Spark for all tests of this folder, and stores to read with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from golden_stores import unpack
from spark_session import spark

__all__ = ["golden", "spark"]


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a golden store, unpacked once; for reading only."""
    unpacked: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in unpacked:
            unpacked[name] = unpack(name, tmp_path_factory.mktemp("golden"))
        return unpacked[name]

    return get
