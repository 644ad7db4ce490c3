"""How a person calls a program of this environment, so that what is printed can be pasted."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def program(name: str) -> str:
    """The path of ``python`` or ``gantrymq`` in the environment that is running: ``.venv/bin/gantrymq``."""
    return os.path.relpath(Path(sys.executable).with_name(name))
