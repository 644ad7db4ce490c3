"""A Spark driver in its own process, which takes orders as JSON lines: see :mod:`benchmarks.race.spark_worker`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self

_SAID_LAST = 3000
_ENDS_WITHIN_S = 30


class SparkDriver:
    """The Spark of a ``python``, with the connector in ``jars`` or with ours (None). Use it as a context manager.

    Its output and temporary files go into ``temporary``. ``path`` is added to the PYTHONPATH of its workers.
    """

    def __init__(self, python: str | Path, jars: Path | None, temporary: Path, path: Path | None = None) -> None:
        worker = Path(__file__).with_name("spark_worker.py")
        words = [str(python), str(worker), str(jars or ""), str(temporary)]
        more = {"PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])} if path else {}
        temporary.mkdir(parents=True, exist_ok=True)
        self._said = temporary / "spark.out"
        with self._said.open("a") as said:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, cwd=temporary,
                env=os.environ | more,
            )  # fmt: skip

    def __enter__(self) -> Self:
        """Wait until Spark is ready. Raises RuntimeError if it ended."""
        self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        """Let Spark end, or kill it after 30 s: an interrupted run may have left it working."""
        try:
            self._process.communicate(timeout=_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def ask(self, **order: Any) -> dict[str, Any]:
        """Send an order and return its answer. Raises RuntimeError with Spark's output if it ended."""
        print(json.dumps(order, default=str), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a Spark ended:\n" + self._said.read_text()[-_SAID_LAST:])
        answer: dict[str, Any] = json.loads(line)
        return answer
