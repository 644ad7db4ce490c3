"""How the test files are divided among the workers of pytest-xdist: which files one worker runs, and in what order."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

# Fixtures of the session that take seconds to set up, by the parameter that asks for one. One worker runs all files
# that share one, so it is set up once and not once in each worker.
SHARED = {"spark": "spark: SparkSession", "cluster": "cluster: JavaCluster"}
WAITING = "interop"
EXPENSIVE = ("spark", "benchmarks", "cli", "crash", "demo", "golden", "tools")


@cache
def shared_fixture(file: Path) -> str | None:
    """The key of SHARED for a test file, or None. A file with a fixture of its own of that name shares nothing."""
    text = file.read_text()
    return next((name for name, use in SHARED.items() if use in text and f"def {name}(" not in text), None)


def in_work_order(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Sort the tests by files. The workers take files from the front.

    The files that share a fixture are first, because one worker takes minutes for them. Then files that wait for Java
    alternate with files that compute, so the workers seldom wait at the same time. Fast files are last, so that all
    workers end together.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    sharing = [path for name in SHARED for path in sorted(files) if shared_fixture(path) == name]
    rest = sorted(files.keys() - set(sharing), key=lambda path: (path.parent.name not in EXPENSIVE, path))
    waiting = [path for path in rest if path.parent.name == WAITING]
    computing = [path for path in rest if path.parent.name != WAITING]
    turns = chain(sharing, *zip_longest(computing, waiting))
    return [item for path in turns if path is not None for item in files[path]]


def scheduler(config: pytest.Config, log: Any) -> Any:
    """The scheduler of ``--dist loadfile``, which gives the files that share a fixture to one worker."""
    from xdist.scheduler import LoadFileScheduling

    class Sharing(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return shared_fixture(config.rootpath / file) or file

    return Sharing(config, log)
