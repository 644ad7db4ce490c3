"""The command ``gantrymq``: one small module for each command, and :mod:`gantrymq.cli.main` that joins them.

Rule: at the top of a module here stands only what ``gantrymq --help`` needs. What does the work is imported inside
the command's function, so that no command waits for the imports of another.
"""

import os

# Nothing here multiplies matrices, and the threads that numpy's BLAS starts for it spin for a while.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
