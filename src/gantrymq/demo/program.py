"""How a person calls gantrymq here, so that what is printed can be pasted."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

NAME = "gantrymq"


def program() -> str:
    """``gantrymq`` where that is on the PATH, else the path of the command that is running, as ``make run`` has it."""
    started = Path(sys.argv[0])
    if shutil.which(NAME) is not None or started.name != NAME or not started.is_file():
        return NAME
    return os.path.relpath(started)
