"""Checks, before the first step, that the modules and the Java that the demo needs are there."""

from __future__ import annotations

import os
import platform
import shutil
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from demo.failure import DemoError
from gantrymq import __version__

_MODULES = ("pyspark", "altair", "jinja2", "vl_convert")


def require_all() -> None:
    """Raise DemoError if something is missing. Its text says what to install."""
    missing = [name for name in _MODULES if find_spec(name) is None]
    if missing:
        raise DemoError(f"the demo needs {', '.join(missing)}: `make setup` installs them into .venv")
    if not _has_java():
        raise DemoError("Spark needs Java 17 or later (Debian: apt-get install openjdk-17-jre-headless)")


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return bool(home and (Path(home) / "bin" / "java").exists()) or shutil.which("java") is not None


def versions() -> dict[str, str]:
    """The versions of the programs of a run, and the machine."""
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {
        "gantrymq": __version__,
        "Python": platform.python_version(),
        "Spark": version("pyspark"),
        "pyarrow": version("pyarrow"),
        "on": system,
    }
