"""What the process of a landing does with memory that it has freed: it keeps it until the next commit.

A landing allocates and frees buffers of some MiB all the time. The obvious way leaves that to the allocators of Arrow
(mimalloc) and glibc as they are set up. Then a landing of a million messages of 100 B has 565,000 page faults, and they
take about as much time as its own work. With these settings, and glibc's allocator for both, it has 115,000. Which of
the buffers cause the faults was not measured: each kind of buffer alone, in a loop of one size, does not.

After a commit, or a task of Spark, the rest is given back: else it grows with each commit, 3 GB in commits of 200,000
rows to 980 MB, with this to 560.

The setting is one of the process: of the command with the local engine, and of Spark's Python workers. Without glibc
nothing changes.

Thread rule: any thread.

Source: mallopt(3), malloc_trim(3).
"""

from __future__ import annotations

import ctypes

import pyarrow as pa

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
_NEVER = (1 << 31) - 1
_LARGEST_KEPT = 1 << 30


def keep_freed_memory() -> None:
    """Let buffers of less than 1 GiB be made of memory that was freed."""
    glibc = ctypes.CDLL(None)
    if not hasattr(glibc, "malloc_trim"):
        return
    glibc.mallopt(_TRIM_THRESHOLD, _NEVER)
    glibc.mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
    pa.set_memory_pool(pa.system_memory_pool())


def release_freed_memory() -> None:
    """Give the freed memory back, before a time without work, or work with buffers of other sizes."""
    glibc = ctypes.CDLL(None)
    if hasattr(glibc, "malloc_trim"):
        glibc.malloc_trim(0)
