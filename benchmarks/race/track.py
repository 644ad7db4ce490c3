"""The context of every race: the other side, if it is installed, and the amount of work."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.race.process import JavaSide
from benchmarks.race.race import JAVA, OURS, Side

_SETTLES_WITHIN_S, _QUICK_SYNCS, _QUICK_S = 10.0, 20, 0.01


@dataclass(frozen=True)
class Track:
    """``java`` is None if only our side runs; ``one_sided`` says why. ``scale`` multiplies all amounts of work."""

    java: JavaSide | None
    scale: float = 1.0
    one_sided: str = ""

    def amount(self, full: int) -> int:
        """The number of messages: ``full`` times the scale, 1,000 at least."""
        return max(int(full * self.scale), 1000)

    def seconds(self, full: int) -> int:
        """The seconds of timed work: ``full`` times the scale, 1 at least."""
        return max(round(full * self.scale), 1)

    def sides(self, java: Side, ours: Side) -> dict[str, Side]:
        """Both sides, or ours alone."""
        return {OURS: ours} if self.java is None else {JAVA: java, OURS: ours}

    @property
    def other(self) -> JavaSide:
        """The Java side. Call this only for races that need it."""
        if self.java is None:
            raise RuntimeError("the real RocketMQ is not here")
        return self.java


def fresh(folder: Path) -> Path:
    """A path for a new store in ``folder``. Removes an earlier store."""
    path = folder / "store"
    shutil.rmtree(path, ignore_errors=True)
    return path


def copy_of(store: Path) -> Path:
    """A sparse copy of a store beside it, cached and synced, so that no side pays for its write-back."""
    target = store.with_name(store.name + "-copy")
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-r", "--sparse=always", str(store), str(target)], check=True)
    subprocess.run(["sync", "-f", str(target)], check=True)
    settle(target.parent)
    return target


def settle(folder: Path) -> None:
    """Wait until the disk is idle, at most ten seconds: discards of removed files may keep it busy.

    It counts as idle after 20 small syncs in a row of less than 10 ms each.
    """
    probe, quick, deadline = folder / "probe", 0, time.monotonic() + _SETTLES_WITHIN_S
    with probe.open("wb", buffering=0) as file:
        while quick < _QUICK_SYNCS and time.monotonic() < deadline:
            began = time.monotonic()
            file.write(b"x")
            os.fdatasync(file.fileno())
            quick = quick + 1 if time.monotonic() - began < _QUICK_S else 0
            time.sleep(_QUICK_S)
    probe.unlink()


def forget_pages(store: Path) -> None:
    """Drop the files of a store from the page cache, as far as the kernel allows."""
    for path in store.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
