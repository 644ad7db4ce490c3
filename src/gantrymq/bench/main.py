"""What ``gantrymq bench`` calls: who races, what is raced, and the run itself."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from gantrymq.bench.process import JavaSide
from gantrymq.bench.programme import chosen
from gantrymq.bench.race import Outcome, Race
from gantrymq.bench.session import Session
from gantrymq.bench.track import Track


def find_java(jar: Path | None) -> JavaSide | None:
    """The real RocketMQ, from the jar that is named or the checkout's; None where it is not here."""
    return JavaSide.find(jar)


def programme(java: JavaSide | None, scale: float, words: tuple[str, ...]) -> list[Race]:
    """The races whose name holds one of ``words``; all where there is none."""
    return chosen(Track(java, scale), words)


def race(
    races: Sequence[Race], rounds: int, sizes_gib: tuple[int, ...], scratch: Path | None, out: Path, *, as_json: bool
) -> list[Outcome]:
    """Run them with stores in a directory of their own within ``scratch``; returns what failed."""
    with tempfile.TemporaryDirectory(dir=scratch, prefix="gantrymq-bench-") as folder:
        return Session(races, rounds, sizes_gib, Path(folder)).run(out, as_json=as_json)
