"""Reads from a store that the real RocketMQ wrote: every message of every queue, and by key.

With warm pages both sides have done the work before, or some of it, so that the JVM has compiled the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.race.process import Line, run_ours
from benchmarks.race.race import Race, Row
from benchmarks.race.track import Track, forget_pages

_MESSAGES = 500_000
_QUERIES = 20_000
_QUERY_WARM_UP = 5_000
_BODY_SIZE = 1024
_BATCH = 32
_USED = "body, tags and keys"


def races(track: Track) -> Iterator[Race]:
    """Get with warm and with cold pages, and query."""
    for is_cold, touch in ((False, False), (False, True), (True, False)):
        yield _get(track, is_cold=is_cold, touch=touch)
    yield _query(track)


def _store(track: Track, folder: Path) -> None:
    work: dict[str, Any] = {"count": track.amount(_MESSAGES), "body_size": _BODY_SIZE}
    if track.java is not None:
        track.java.put(folder / "store", **work, threads=2)
    else:
        run_ours("put", store=folder / "store", **work, threads=1, warm_up=0, settings={})


def _get(track: Track, *, is_cold: bool, touch: bool) -> Race:
    warm: dict[str, Any] = {} if is_cold else {"warm_up": True}

    def ready(folder: Path) -> Path:
        if is_cold:
            forget_pages(folder / "store")
        return folder / "store"

    def java(folder: Path) -> Line:
        return track.other.run("get-bench", ready(folder), batch=_BATCH, decode=True, **warm)

    def ours(folder: Path) -> Line:
        return run_ours("get", store=ready(folder), batch=_BATCH, touch=touch, **warm)

    used = f", {_USED} used" if touch else ""
    row = Row(
        f"get {_BODY_SIZE} B, {'cold' if is_cold else 'warm'}{used}",
        "perSecond",
        "messages/s",
        goal=0.5 if touch else 1,
        note=f"theirs decodes every message, ours {_USED if touch else 'none'}",
    )
    return Race([row], track.sides(java, ours), ("messages",), lambda folder: _store(track, folder))


def _query(track: Track) -> Race:
    work: dict[str, Any] = {
        "messages": track.amount(_MESSAGES),
        "count": track.amount(_QUERIES),
        "warm_up": track.amount(_QUERY_WARM_UP),
    }

    def java(folder: Path) -> Line:
        return track.other.run("query-bench", folder / "store", **work)

    def ours(folder: Path) -> Line:
        return run_ours("query", store=folder / "store", **work)

    row = Row("query by key", "perSecond", "queries/s", goal=0.5, note="decoded")
    return Race([row], track.sides(java, ours), prepare=lambda folder: _store(track, folder))
