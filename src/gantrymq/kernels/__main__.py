"""``python -m gantrymq.kernels``: compiles every kernel with the argument types it is used with, or loads it.

The first run fills the cache (about a minute); later ones show how long loading takes, which is what a command waits
for when it starts.
"""

import time

from gantrymq.kernels.ready import calls


def main() -> int:
    """Compile or load, and say how long each took."""
    started = time.perf_counter()
    for kernel, arguments in calls():
        begun = time.perf_counter()
        kernel(*arguments)
        how = "compiled" if kernel.was_compiled else "loaded"
        print(f"{kernel.name:24}{time.perf_counter() - begun:8.3f} s  {how}", flush=True)
    print(f"{'all':24}{time.perf_counter() - started:8.3f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
