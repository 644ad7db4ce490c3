"""What must not grow with the store: time and memory of opening it, recovering it, getting from it.

A clean open looks at the ends only; recovery after a kill begins with the last files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gantrymq.bench.process import command_ms, run_ours
from gantrymq.bench.races.sparse_log import write_files

SIZES_GIB = (1, 2, 10, 50, 100)
_RECORDS_A_FILE = 1000
_GETS = 20_000


@dataclass(frozen=True)
class Growth:
    """The costs at one size: times in ms (of a get in µs), memory in MiB without page cache."""

    size_gib: int
    rebuild_ms: float
    open_ms: float
    info_ms: float
    recover_ms: float
    get_us: float
    rss_anon_mib: float


def measure(folder: Path, sizes_gib: tuple[int, ...], report: Callable[[str], None]) -> list[dict[str, Any]]:
    """The costs at every size; the same store grows from one to the next."""
    store, made, found = folder / "growing", 0, []
    for size_gib in sizes_gib:
        report(f"a store of {size_gib} GiB")
        write_files(store, max(made - 1, 0), size_gib, _RECORDS_A_FILE)
        made = size_gib
        found.append(asdict(_measure(store, size_gib)))
    return found


def _measure(store: Path, size_gib: int) -> Growth:
    rebuild_ms = command_ms("store", "recover", str(store))
    opened = run_ours("open_reader", store=store)
    info_ms = command_ms("store", "info", str(store))
    got = run_ours("get_each", store=store, count=_GETS)
    (store / "abort").write_text("1")
    recover_ms = command_ms("store", "recover", str(store))
    get_us, memory_mib = got["getMicros"], opened["rssAnonMib"]
    return Growth(size_gib, rebuild_ms, opened["openMs"], info_ms, recover_ms, get_us, memory_mib)
