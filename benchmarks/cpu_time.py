"""What a process and all below it have used of the processor; nothing but the standard library is imported."""

import os
from pathlib import Path


def cpu_seconds() -> float:
    """What this process and all below it (the JVM, Spark's Python workers) have used of all cores."""
    parents, used = {}, {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(status.parent.name)] = int(fields[1])
        used[int(status.parent.name)] = sum(map(int, fields[11:13]))
    total, family = 0, [os.getpid()]
    while family:
        process = family.pop()
        total += used.get(process, 0)
        family += [child for child, parent in parents.items() if parent == process]
    return total / os.sysconf("SC_CLK_TCK")
