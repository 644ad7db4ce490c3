"""What the tests of the command line share: how a command ended, and helpers to read files and output."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "gantrymq")


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def text(self) -> str:
        return self.out.decode()


Run = Callable[..., Outcome]


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """``gantrymq …`` as a process, with pipes."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background job does not hear it
    return subprocess.Popen([*COMMAND, *map(str, arguments)], **(pipes | {"preexec_fn": heard} | options))


def jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Every name below ``root`` with its time of change and a hash of its bytes."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in root.rglob("*")
    }
