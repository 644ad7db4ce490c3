"""The machine of a result: its hardware, its limits, the versions and the commit."""

from __future__ import annotations

import mmap
import os
import platform
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("gantrymq", "numpy", "numba", "pyarrow", "isal", "pyspark")
_BLOCK = 1 << 20
_REPEATS = 5


def describe(folder: Path) -> dict[str, Any]:
    """Processor, cores, kernel, file system of ``folder``, versions, commit, time, and the load before the run."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memoryGib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _said("java", "-version"),
        "fileSystem": _said("stat", "-f", "-c", "%T", str(folder)),
        "commit": _said("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"),
        "packages": {name: _version(name) for name in _PACKAGES},
        "loadBefore": [round(load, 2) for load in os.getloadavg()],
    }


def limits(folder: Path) -> dict[str, float]:
    """The limits of the hardware: memcpy and CRC-32 (GB/s), fdatasync of 4 KiB and a loopback round trip (µs)."""
    from isal import isal_zlib

    block, target = os.urandom(64 * _BLOCK), memoryview(bytearray(64 * _BLOCK))
    gigabytes = len(block) / 1e9

    def copy() -> None:
        target[:] = block

    return {
        "memcpyGbPerSecond": round(gigabytes / _median_s(copy), 2),
        "crc32GbPerSecond": round(gigabytes / _median_s(lambda: isal_zlib.crc32(block)), 2),
        "fdatasyncMicros": round(_fdatasync_s(folder) * 1e6, 1),
        "loopbackMicros": round(_loopback_s() * 1e6, 1),
    }


def _fdatasync_s(folder: Path) -> float:
    path = folder / "fdatasync"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.posix_fallocate(fd, 0, _BLOCK)
        os.fsync(fd)

        def write() -> None:
            os.pwrite(fd, os.urandom(mmap.PAGESIZE), 0)
            os.fdatasync(fd)

        return _median_s(write, 50)
    finally:
        os.close(fd)
        path.unlink()


def _loopback_s() -> float:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            with server.accept()[0] as taken:
                while taken.send(taken.recv(64)):
                    pass

        thread = threading.Thread(target=echo, daemon=True)
        thread.start()
        with socket.create_connection(server.getsockname()) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def ask() -> None:
                client.send(b"x")
                client.recv(64)

            return _median_s(ask, 1000)


def _median_s(work: Callable[[], object], repeats: int = _REPEATS) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _said(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return (done.stdout or done.stderr).strip().partition("\n")[0] if done.returncode == 0 else ""
