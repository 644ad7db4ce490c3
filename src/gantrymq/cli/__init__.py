"""The command ``gantrymq``: one small module for each command, and :mod:`gantrymq.cli.main` that joins them.

Rule: at the top of a module here stands only what ``gantrymq --help`` needs. What does the work is imported inside
the command's function, so that no command waits for the imports of another.
"""

import gc
import os
from typing import NoReturn

_COLLECTED_AFTER = 100_000  # new objects: what is imported lives for good, and collecting is a tenth of a start


def run() -> NoReturn:
    """The console script."""
    gc.set_threshold(_COLLECTED_AFTER)
    # Nothing here multiplies matrices, and the threads that numpy's BLAS starts for it spin for a while.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from gantrymq.cli.main import run as run_command

    run_command()
