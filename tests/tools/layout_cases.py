"""A closed store of real files, several of each kind, and what verify finds in it."""

from __future__ import annotations

from pathlib import Path

from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.tools.findings import Finding
from gantrymq.tools.verify import verify_store
from store_cases import GEOMETRY_KEYS, SMALL, open_store


def make_store(path: Path, messages: int) -> Path:
    """Queues orders/0 and orders/1 in turn; every message has a key of its own."""
    with open_store(RealFileSystem(), path) as store:
        store.put_batch([Message("orders", b"x" * 50, queue_id=i % 2, keys=[f"k{i}"]) for i in range(messages)])
    return path


def findings(store: Path) -> list[Finding]:
    return list(verify_store(store, SMALL, given=GEOMETRY_KEYS))


def parts(store: Path, part: str) -> list[Path]:
    """What a directory of the store holds, in the order of the names."""
    return sorted((store / part).iterdir())
