"""One mutant after the other in one process, each within limits of time and of memory."""

from __future__ import annotations

import faulthandler
import os
import resource
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from uses import try_out

MAX_SECONDS = int(os.environ.get("FUZZ_SECONDS", "60"))  # a mutant takes some hundredths of a second
MAX_GROWTH_KIB = 256 << 10
REPLAY = "replay with: MUTANT={} .venv/bin/python -m pytest tests/fuzz -k one_mutant"


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def within_limits(mutant: int, directory: Path) -> str:
    """Try one mutant; says how it went.

    Where it takes too long the process ends, and ``stuck-PID.txt`` in ``directory`` says which one it was, and where.
    """
    with (directory / f"stuck-{os.getpid()}.txt").open("w") as told:
        print(REPLAY.format(mutant), file=told, flush=True)
        faulthandler.dump_traceback_later(MAX_SECONDS, exit=True, file=told)
        before = peak_kib()
        try:
            outcome = try_out(mutant, directory / f"store-{os.getpid()}")
            grown = peak_kib() - before
            assert grown < MAX_GROWTH_KIB, f"{grown} KiB of memory"
            return outcome
        except BaseException as error:
            error.add_note(REPLAY.format(mutant))
            raise
        finally:
            faulthandler.cancel_dump_traceback_later()


def all_within_limits(mutants: Iterable[int], directory: Path) -> Counter[str]:
    """Try them all; how often each outcome came."""
    for mutant in range(10):
        try_out(mutant, directory / "store")  # what is loaded once is on nobody's account
    outcomes = Counter[str]()
    for mutant in mutants:
        outcomes[within_limits(mutant, directory)] += 1
    return outcomes
