"""``python -m gantrymq.kernels``: brings the kernel library of this checkout up to date."""

import sys
import time

from gantrymq.errors import KernelsError
from gantrymq.kernels.loader import FOLDER, library, read_index


def main() -> int:
    """Build what has changed. Prints the number of kernels, the processor variant, and the time that it took."""
    started = time.perf_counter()
    before = read_index(FOLDER)
    try:
        variant = library().variant
    except KernelsError as error:
        print(f"gantrymq: {error}", file=sys.stderr)
        return 1
    index = read_index(FOLDER) or {}
    how = "up to date" if before and index["kernels"] == before["kernels"] else "built"
    print(f"{len(index['kernels'])} kernels for {variant.name}: {how} in {time.perf_counter() - started:.1f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
