"""Disks that do not give back what was written: a real one, and a seam that works on every machine.

The real one is an ext4 image on a loop device. Chosen blocks of its files are moved behind the place where the image's
own file is then cut, so that the kernel gives EIO for exactly these blocks, on a read and on a look at a mapping.

Writes fail where a mounted loop device is made shorter (:func:`failing_disk`).

The seam fails the reads of :mod:`gantrymq.fs.pages`, which all of the store's files go through. What a test puts into
the bad bytes beforehand is what a look at a mapping would find that did not ask first.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gantrymq.errors import DiskError
from gantrymq.fs import pages
from gantrymq.store.log import mapped_file

BLOCK_BYTES = 4096
_IMAGE_BLOCKS, _KEPT_BLOCKS = 8192, 8128
GARBAGE = b"\xdb"
_FIBMAP, _LOOP_SET_STATUS64, _LOOP_GET_STATUS64 = 1, 0x4C04, 0x4C05
_LOOP_INFO_BYTES, _SIZE_LIMIT_AT = 232, 32


def _done(*words: str | Path, stdin: str = "") -> bool:
    return subprocess.run(words, input=stdin, text=True, capture_output=True, timeout=60, check=False).returncode == 0


@contextmanager
def _mounted(image: Path, here: Path) -> Iterator[Path]:
    here.mkdir(exist_ok=True)
    if not _done("mount", "-o", "loop", image, here):
        pytest.skip("this machine does not let us mount an image")
    try:
        yield here
    finally:
        _done("umount", "-l", here)


def image_of(store: Path, scratch: Path) -> Path:
    """An image that holds ``store`` as ``store``; skips where this machine cannot make one."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    if shutil.which("mkfs.ext4") is None or shutil.which("debugfs") is None:
        pytest.skip("mkfs.ext4 and debugfs are not installed here")
    image = scratch / "whole-image"
    image.touch()
    os.truncate(image, _IMAGE_BLOCKS * BLOCK_BYTES)
    options = ("-m", "0", "-b", str(BLOCK_BYTES), "-O", "^has_journal,^metadata_csum")
    if not _done("mkfs.ext4", "-q", "-F", *options, image):
        pytest.skip("mkfs.ext4 cannot make the image")
    with _mounted(image, scratch / "filled") as disk:
        shutil.copytree(store, disk / "store")
    return image


@contextmanager
def bad_blocks(image: Path, scratch: Path, *blocks: tuple[str, int]) -> Iterator[Path]:
    """The store of a copy of ``image``, of which these (path in the store, block number) cannot be read."""
    bad = scratch / "bad-image"
    shutil.copyfile(image, bad)
    moves = [f"bmap /store/{path} {block} {_KEPT_BLOCKS + 8 + n}\n" for n, (path, block) in enumerate(blocks)]
    assert _done("debugfs", "-w", "-f", "-", bad, stdin="".join(moves))
    with _mounted(bad, scratch / "disk") as disk:
        os.truncate(bad, _KEPT_BLOCKS * BLOCK_BYTES)
        yield disk / "store"


@dataclass(frozen=True)
class FailingDisk:
    """A mounted ext4 on a loop device that can be made shorter: the kernel then refuses to write what lies behind.

    It finds out when it writes pages back, so that a write succeeds and the sync fails (EIO), and a later sync of the
    same pages succeeds, for they were given up. What was on the disk stays there. (A disk that is full below the loop
    device will not do: the loop driver takes a short write for a whole one.)
    """

    image: Path
    here: Path

    def fail_behind(self, path: Path, position: int) -> None:
        """Let no block be written that lies on the disk at or behind that of this byte of a file."""
        with path.open("rb") as file:
            raw = fcntl.ioctl(file, _FIBMAP, struct.pack("i", position // BLOCK_BYTES))
        (block,) = struct.unpack("i", raw)
        assert block, "that byte was not written yet"
        self._limit(block * BLOCK_BYTES)

    def heal(self) -> None:
        """Let all blocks be written again."""
        self._limit(0)

    def mount_again(self) -> None:
        """Forget what is only in memory, as a restart of the machine does."""
        assert _done("umount", self.here)
        assert _done("mount", "-o", "loop", self.image, self.here)

    def _limit(self, size_bytes: int) -> None:
        with Path(_device_of(self.here)).open("rb") as device:
            status = bytearray(fcntl.ioctl(device, _LOOP_GET_STATUS64, bytes(_LOOP_INFO_BYTES)))
            struct.pack_into("Q", status, _SIZE_LIMIT_AT, size_bytes)
            fcntl.ioctl(device, _LOOP_SET_STATUS64, bytes(status))


def _device_of(mounted: Path) -> str:
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return next(device for device, where, *_ in lines if where == str(mounted))


@contextmanager
def failing_disk(scratch: Path) -> Iterator[FailingDisk]:
    """A disk whose writes can be made to fail; skips where this machine cannot make one."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("only root may mount a disk, and mkfs.ext4 has to be there")
    image = scratch / "failing-image"
    image.touch()
    os.truncate(image, 64 << 20)
    options = ("-m", "0", "-b", str(BLOCK_BYTES), "-O", "^has_journal,^metadata_csum")
    if not _done("mkfs.ext4", "-q", "-F", *options, image):
        pytest.skip("mkfs.ext4 cannot make the image")
    with _mounted(image, scratch / "failing") as here:
        yield FailingDisk(image, here)


Break = Callable[[Path, int, int], None]


def break_reads(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Returns ``spoil(path, begin, end)``: these bytes cannot be read from then on, and hold garbage.

    A file that takes the place of that one can be read.
    """
    bad: dict[int, tuple[int, int]] = {}
    read_some = pages._read_some

    def read(fd: int, path: Path, position: int, length: int) -> bytes:
        begin, end = bad.get(os.fstat(fd).st_ino, (0, 0))
        if position < end and begin < position + length:
            if position >= begin:
                raise DiskError(path, "Input/output error", position)
            length = begin - position  # a read ends in front of the sector that it cannot have
        return read_some(fd, path, position, length)

    def spoil(path: Path, begin: int, end: int) -> None:
        end = min(end, path.stat().st_size)
        with path.open("r+b") as file:
            file.seek(begin)
            file.write(GARBAGE * (end - begin))
        bad[path.stat().st_ino] = (begin, end)
        # As long as it is open no other file gets its number.
        weakref.finalize(read, os.close, os.open(path, os.O_RDONLY))

    monkeypatch.setattr(pages, "_read_some", read)
    monkeypatch.setattr(mapped_file, "_FETCHED_S", 0.0)
    monkeypatch.setattr(pages, "populate", lambda *_: errno.EINVAL)  # as on a system that cannot be asked for pages
    return spoil
