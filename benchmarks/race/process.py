"""The two sides as processes: the real RocketMQ through interop's main, and our worker."""

from __future__ import annotations

import json
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Line = dict[str, Any]
_CHECKOUT_JAR = Path(__file__).parents[2] / "interop" / "target" / "interop.jar"
_KILLED = 137
_SAID = 300
_PATIENCE_S = 3600


class SideError(RuntimeError):
    """A side failed. The text has the beginning and the end of its output."""


@dataclass(frozen=True)
class JavaSide:
    """The real RocketMQ store: ``jar`` is built by ``make interop``, with its libraries beside it in ``lib``."""

    jar: Path

    @classmethod
    def find(cls, jar: Path | None) -> JavaSide | None:
        """The jar that is named, or that of this checkout; None if a part of it is missing."""
        return None if cls.missing(jar) else cls(jar or _CHECKOUT_JAR)

    @staticmethod
    def missing(jar: Path | None) -> str:
        """One line that says why it cannot run and what to do; empty if it can run."""
        found = jar or _CHECKOUT_JAR
        built = "`make interop` builds it (needs Maven and a JDK)"
        if not found.is_file():
            return f"{found} is not there; {built}, or name another with --java-jar"
        if not any((found.parent / "lib").glob("rocketmq-store-[0-9]*.jar")):
            return f"{found.parent / 'lib'} has no RocketMQ beside {found.name}; {built}"
        if shutil.which("java") is None:
            return "no java is on the PATH; install Java 17 or newer"
        return ""

    @property
    def version(self) -> str:
        """RocketMQ's version, from the name of its store's jar; empty if the jar is missing."""
        jars = (self.jar.parent / "lib").glob("rocketmq-store-[0-9]*.jar")
        return next((jar.stem.rpartition("-")[2] for jar in jars), "")

    def run(self, command: str, store: Path, settings: Mapping[str, object] | None = None, **options: Any) -> Line:
        """Run one command on a store and return the last line it printed; raises SideError."""
        return last_line([*self._words(command, options), "--store", str(store), *settings_words(settings or {})])

    def put(self, store: Path, settings: Mapping[str, object] | None = None, **options: Any) -> Line:
        """Let put-bench put ``count`` messages; raises SideError also if one of them was not stored."""
        line = self.run("put-bench", store, settings, **options)
        if line["statuses"] != {"PUT_OK": options["count"]}:
            raise SideError(f"RocketMQ did not store all of {options['count']} messages: {line['statuses']}")
        return line

    def kill_while_writing(self, store: Path, **options: Any) -> None:
        """Let threads write a workload until the process ends as by SIGKILL; raises SideError."""
        words = [*self._words("write", {"end": "kill-while-writing", **options}), "--store", str(store)]
        done = _run(words)
        if done.returncode != _KILLED:
            raise _error(words, done.returncode, done.stderr)

    def load(self, namesrv: str, **options: Any) -> Line:
        """Run the load of the Java client on the cluster of a name server and return its result; raises SideError."""
        return last_line(self._words("load", {"namesrv": namesrv, **options}))

    def cluster(
        self, store: Path, settings: Mapping[str, object], auth: Mapping[str, object] | None = None
    ) -> list[str]:
        """The command that runs the real name server and broker, for :func:`serving`; its home is beside the store.

        ``auth`` are keys of RocketMQ's AuthConfig.
        """
        words = self._words("cluster", {}, f"-Djava.io.tmpdir={store.parent}")
        return [*words, "--store", str(store), *settings_words(settings), *settings_words(auth or {}, "--auth")]

    def name_server(self, home: Path) -> list[str]:
        """The command that runs the real name server alone, for :func:`serving`; it writes below ``home``."""
        return self._words("cluster", {"no_broker": True}, f"-Djava.io.tmpdir={home}")

    def _words(self, command: str, options: Mapping[str, Any], *of_jvm: str) -> list[str]:
        words = ["java", *of_jvm, "-cp", f"{self.jar}:{self.jar.parent}/lib/*", "org.gantrymq.interop.Main", command]
        for name, option in options.items():
            words += [f"--{name.replace('_', '-')}", *([] if option is True else [str(option)])]
        return words


@contextmanager
def serving(words: Sequence[str]) -> Iterator[Line]:
    """Run a server for the ``with`` block and yield the JSON line by which it reports that it is ready; then kill it.

    The line has the id of its process, too, as ``pid``.

    Raises SideError if it ends before it is ready.
    """
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                said.seek(0)
                raise _error(words, process.wait(), said.read())
            yield json.loads(line) | {"pid": process.pid}
        finally:
            process.kill()


def run_ours(work: str, **options: Any) -> Line:
    """Run one function of :mod:`benchmarks.race.worker` in a fresh process; raises SideError."""
    return last_line([sys.executable, "-m", "benchmarks.race.worker", work, json.dumps(options, default=str)])


def run_command(*words: str) -> Line:
    """Run our command line with ``--json`` and return the last line; raises SideError."""
    return last_line(our_command(*words))


def timed_command(*words: str) -> tuple[Line, float]:
    """As :func:`run_command`, with the time of the whole process in ms."""
    began = time.perf_counter()
    line = run_command(*words)
    return line, (time.perf_counter() - began) * 1000


def with_cpu(run: Callable[[], Line]) -> Line:
    """What ``run`` returns, and as ``cpuMillis`` the CPU time, user and system, of the processes that it waited for."""
    began_s = _cpu_of_children_s()
    line = run()
    return line | {"cpuMillis": (_cpu_of_children_s() - began_s) * 1000}


def _cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def serve_ours(store: Path, settings: Mapping[str, object]) -> list[str]:
    """The command that runs our name server and broker on free ports, for :func:`serving`."""
    ports = ("--namesrv-port", "0", "--listen-port", "0")
    return our_command("serve", "--store", str(store), *ports, *settings_words(settings))


def our_command(*words: str) -> list[str]:
    """Our command line as a user writes it, with ``--json``."""
    return [str(Path(sys.executable).with_name("gantrymq")), *words, "--json"]


def free_port() -> int:
    """A port of 127.0.0.1 that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def settings_words(settings: Mapping[str, object], option: str = "--set") -> list[str]:
    """RocketMQ's keys, as both command lines take them."""
    words = []
    for key, value in settings.items():
        words += [option, f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return words


def last_line(words: list[str]) -> Line:
    """Run a program to its end and return the last line that it printed; raises SideError."""
    done = _run(words)
    if done.returncode:
        raise _error(words, done.returncode, done.stderr)
    answer: Line = json.loads(done.stdout.splitlines()[-1])
    return answer


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Raises subprocess.TimeoutExpired if it takes more than an hour."""
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)


def _error(words: Sequence[str], code: int, said: str) -> SideError:
    """Keep both ends of the output: a stack trace begins with the cause, other programs print it last."""
    said = said.strip()
    cut = said if len(said) <= 2 * _SAID else f"{said[:_SAID]} … {said[-_SAID:]}"
    return SideError(f"{words[0]} … {words[-1]} ended with {code}: {cut}")
