"""The command ``gantrymq``: one small module for each command, and :mod:`gantrymq.cli.main` that joins them.

Rule: the top of a module here imports only what ``gantrymq --help`` needs. Everything else is imported inside the
command's function, so that no command waits for the imports of another.
"""

import gc
import os
from typing import NoReturn

_COLLECTED_AFTER = 100_000  # new objects: imports are never freed, and collecting takes a tenth of a start


def run() -> NoReturn:
    """The entry point of the console script."""
    gc.set_threshold(_COLLECTED_AFTER)
    # gantrymq multiplies no matrices, and the threads that numpy's BLAS would start for it use CPU for a while.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from gantrymq.cli.main import run as run_command

    run_command()
