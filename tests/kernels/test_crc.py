"""CRC-32 against zlib, both ways of computing it, and the cache of compiled kernels."""

import os
import random
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import seeds

from gantrymq.kernels import crc, jit, native
from gantrymq.kernels.arrays import read_only

WAYS = [crc._table_crc] + ([crc._folded_crc] if crc.HAS_CLMUL else [])


@pytest.mark.parametrize("way", WAYS)
def test_every_length_and_alignment(way) -> None:
    raw = random.Random(7).randbytes(700)
    buf = read_only(raw)
    for length in range(600):
        for start in (0, 1, 7, 16, 33):
            assert way(buf, start, start + length) == zlib.crc32(raw[start : start + length])


@pytest.mark.parametrize("way", WAYS)
@seeds(5)
def test_random_lengths(way, rng: random.Random) -> None:
    raw = rng.choice([rng.randbytes(70_000), bytes(70_000), b"\xff" * 70_000])
    for _ in range(50):
        start, stop = sorted(rng.randrange(len(raw) + 1) for _ in range(2))
        assert way(read_only(raw), start, stop) == zlib.crc32(raw[start:stop])


@given(st.binary(max_size=200))
def test_of_anything_up_to_the_end_of_the_buffer(raw: bytes) -> None:
    assert crc.crc32(read_only(raw), 0, len(raw)) == zlib.crc32(raw)


def test_the_last_bytes_of_a_page_are_read_without_touching_the_next(tmp_path: Path) -> None:
    import mmap

    with (tmp_path / "page").open("wb+") as file:
        file.write(b"\x5a" * mmap.PAGESIZE)
        file.flush()
        with mmap.mmap(file.fileno(), mmap.PAGESIZE, access=mmap.ACCESS_READ) as page:
            buf = read_only(page)
            for length in range(100):
                expected = zlib.crc32(b"\x5a" * length)
                assert crc.crc32(buf, mmap.PAGESIZE - length, mmap.PAGESIZE) == expected
            del buf


CHILD = """
import random, sys, zlib
from gantrymq.kernels.api import crc32
from gantrymq.kernels.arrays import read_only
raw = random.Random(1).randbytes(3000)
for stop in [*range(1200), 3000]:
    assert crc32(read_only(raw), 5, max(stop, 5)) == zlib.crc32(raw[5:stop]), stop
compiled = crc32.was_compiled
from gantrymq.kernels.crc import HAS_CLMUL, HAS_WIDE_CLMUL, WIDE_LANES
print(HAS_CLMUL, WIDE_LANES if HAS_WIDE_CLMUL else 1, "compiled" if compiled else "loaded")
"""
LANES = crc.WIDE_LANES if crc.HAS_WIDE_CLMUL else 1
HERE = [str(crc.HAS_CLMUL), str(LANES)]


def run_child(cache: Path, without: str = "") -> list[str]:
    """Compute CRCs in a process of its own, as on a processor that lacks the features ``without``."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    if without:
        # All that the processor has not, too: its name promises what a virtual machine may hide.
        told = {name.lstrip("+-") for name in jit.told_features()}
        kept = jit.cpu_features() - set(without.split())
        environment["NUMBA_CPU_FEATURES"] = ",".join(f"{'+' if name in kept else '-'}{name}" for name in sorted(told))
    done = subprocess.run([sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


HERE_TOO, ELSEWHERE = native._environment(), "0" * 16
NOW, EARLIER = native.source_stamp(), "1" * 16
STAYS = {
    f"crc.crc32-{HERE_TOO}-{NOW}-2.kernel": 90,
    f"crc.crc32-{HERE_TOO}-{EARLIER}-of_today.kernel": 0,
    f"crc.crc32-{ELSEWHERE}-{EARLIER}-of_another_machine_or_checkout.kernel": 90,
    "of-something-else.txt": 90,
}
GOES = {
    f"crc.crc32-{HERE_TOO}-{EARLIER}-1.kernel": 2,
    f"scan.scan-{HERE_TOO}-{EARLIER}-whose_writer_was_killed.kernel.4711": 90,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a process has compiled the kernel, beside what others had left there before."""
    folder = tmp_path_factory.mktemp("cache")
    for name, days_ago in {**STAYS, **GOES}.items():
        (folder / name).touch()
        os.utime(folder / name, (time.time() - days_ago * 86_400,) * 2)
    assert run_child(folder) == [*HERE, "compiled"]
    return folder


def test_a_new_process_loads_the_kernel_from_the_cache(cache: Path) -> None:
    assert run_child(cache) == [*HERE, "loaded"]


def test_who_compiles_removes_what_old_sources_left(cache: Path) -> None:
    left = {path.name for path in cache.iterdir()}
    assert set(STAYS) <= left
    assert not set(GOES) & left


@pytest.mark.skipif(not crc.HAS_CLMUL, reason="this processor has no carry-less multiplication to take away")
def test_processors_with_other_features_compile_for_themselves(cache: Path) -> None:
    if LANES == 4:
        assert run_child(cache, "avx512f") == ["True", "2", "compiled"]
    assert run_child(cache, "vpclmulqdq") == ["True", "1", "compiled"]
    assert run_child(cache, "vpclmulqdq pclmul") == ["False", "1", "compiled"]
    assert run_child(cache) == [*HERE, "loaded"]


def test_the_cache_knows_every_source_that_kernels_are_made_of() -> None:
    sources = {path.name for path in native.sources()}
    assert {"crc.py", "machine.py", "record.py", "flags.py"} <= sources
