"""The two sides as processes: the real RocketMQ behind interop's main, and our worker."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Line = dict[str, Any]
_STDERR = 600


class SideError(RuntimeError):
    """A side ended with an error; the text ends with what it said last."""


@dataclass(frozen=True)
class JavaSide:
    """The real RocketMQ store: ``jar`` is what ``make interop`` builds, its libraries stand beside it in ``lib``."""

    jar: Path

    @classmethod
    def find(cls, jar: Path | None) -> JavaSide | None:
        """The jar that is named, or that of the checkout this package lies in; None where there is none, or no java."""
        checkout = Path(__file__).parents[3] / "interop" / "target" / "interop.jar"
        found = jar or checkout
        return cls(found) if found.exists() and shutil.which("java") else None

    def run(self, command: str, store: Path, settings: Mapping[str, object] | None = None, **options: Any) -> Line:
        """Run one command on a store and return the last line it printed; raises SideError."""
        words = ["java", "-cp", f"{self.jar}:{self.jar.parent}/lib/*", "org.gantrymq.interop.Main", command]
        words += ["--store", str(store)]
        for key, value in (settings or {}).items():
            words += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
        for name, option in options.items():
            words += [f"--{name.replace('_', '-')}", *([] if option is True else [str(option)])]
        return _last_line(words)


def run_ours(work: str, **options: Any) -> Line:
    """Run one function of :mod:`gantrymq.bench.worker` in a fresh process; raises SideError."""
    return _last_line([sys.executable, "-m", "gantrymq.bench.worker", work, json.dumps(options, default=str)])


def run_command(*words: str) -> Line:
    """Run our command line with ``--json`` and return the last line; raises SideError."""
    return _last_line([str(Path(sys.executable).with_name("gantrymq")), *words, "--json"])


def _last_line(words: list[str]) -> Line:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SideError(f"{words[0]} … {words[-1]} ended with {done.returncode}: {done.stderr.strip()[-_STDERR:]}")
    answer: Line = json.loads(done.stdout.splitlines()[-1])
    return answer
