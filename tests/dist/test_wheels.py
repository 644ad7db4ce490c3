"""The Pythons that the package names are those for which its dependencies have wheels."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [
    found[1]
    for line in PROJECT["classifiers"]
    if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
]
PLATFORMS = [f"manylinux{tag}_x86_64" for tag in ("2014", "_2_27", "_2_28")]
# PySpark has no wheel, and needs no compiler.
EXTRAS = ("acl", "arrow", "console", "grpc", "jit", "metrics", "rocksdb", "tls", "uvloop")


def test_pythons_are_named_alike() -> None:
    """Classifiers, README, installation page and the script that looks for a Python."""
    first, last = PYTHONS[0], PYTHONS[-1]
    assert PROJECT["requires-python"] == f">={first}"
    for page in ("README.md", "docs/install.md", "CONTRIBUTING.md"):
        assert f"Python {first} to {last}" in (ROOT / page).read_text(), page
    candidates = " ".join(f"python{version}" for version in reversed(PYTHONS))
    assert candidates in (ROOT / "scripts" / "preflight.sh").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
def test_locked_dependencies_have_wheels(python: str, tmp_path: Path) -> None:
    """pip resolves them for a Python that need not be on this machine; it asks the package index."""
    lock = (ROOT / "requirements" / "dev.lock").read_text()
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("\n".join(re.findall(r"^[\w.-]+==[^\s;\\]+", lock, re.MULTILINE)))
    of_extras = [one for extra in EXTRAS for one in PROJECT["optional-dependencies"][extra]]
    wanted = [*PROJECT["dependencies"], *(one for one in of_extras if not one.startswith("gantrymq["))]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--dry-run", "--quiet"]
    command += ["--ignore-installed", "--report", "-", "--target", str(tmp_path), "--only-binary", ":all:"]
    command += ["--python-version", python, "--constraint", str(constraints)]
    command += [text for platform in PLATFORMS for text in ("--platform", platform)]
    done = subprocess.run([*command, *wanted], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    names = {item["metadata"]["name"].lower() for item in json.loads(done.stdout)["install"]}
    assert {"isal", "lz4", "msgspec", "numba", "numpy", "orjson", "pyarrow", "zstandard"} <= names
