"""The output directory. A run replaces the files of an earlier run and leaves all other files alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from demo.failure import DemoError

MARK = "demo.txt"
_MARK_TEXT = "Made by the demo of gantrymq, which replaces all that it left here when it runs again.\n"
_EARLIER_MARK_TEXT = "Made by `gantrymq demo`, which replaces all that it left here when it runs again.\n"
_OURS = ("store", "work")
_FILES = ("report.html", "summary.json", "broker.conf")


def prepare_output(out: Path, work: Path) -> None:
    """Create ``out`` and ``work`` below it, and remove the files of an earlier run.

    Other files may be there. Raises DemoError if one of them has a name that the demo needs.
    """
    if out.exists() and not out.is_dir():
        raise DemoError(f"{out} is a file; the demo needs a directory")
    out.mkdir(parents=True, exist_ok=True)
    taken = [] if _is_marked(out) else [name for name in (*_OURS, *_FILES, MARK) if os.path.lexists(out / name)]
    if taken:
        names = " and ".join(taken)
        raise DemoError(f"{names} in {out} was not made by the demo: give another directory with --out")
    for name in _OURS:
        shutil.rmtree(out / name, ignore_errors=True)
    for name in _FILES:
        (out / name).unlink(missing_ok=True)
    (out / MARK).write_text(_MARK_TEXT, "utf-8")
    work.mkdir()


def _is_marked(out: Path) -> bool:
    mark = out / MARK
    return mark.is_file() and mark.read_bytes() in (_MARK_TEXT.encode(), _EARLIER_MARK_TEXT.encode())


def store_size(store: Path) -> int:
    """The disk space of the store's files in bytes (files are sparse)."""
    return sum(file.stat().st_blocks * 512 for file in store.rglob("*") if file.is_file())
