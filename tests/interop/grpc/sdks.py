"""The official gRPC SDKs as programs behind the line protocol of interop/grpc/README.md.

with SdkClient("java", endpoints) as client:
    client.call("producer", name="p", topics=["T"])
    client.call("send", client="p", message={"topic": "T", "body": "hello"})
"""

import fcntl
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from ..java import INTEROP, JVM_OPTIONS, Line, java_available, java_program

PROGRAMS = INTEROP / "grpc"
CACHE = INTEROP.parent / ".cache" / "grpc-clients"
BUILD_SECONDS = 1200
CALL_SECONDS = 120
LOG_LINES = 40


class SdkError(RuntimeError):
    """What an SDK raised: ``code`` is the server's status, or None if the SDK gave up before it had one."""

    def __init__(self, kind: str, code: int | None, message: str) -> None:
        super().__init__(f"{kind} {code}: {message}")
        self.kind, self.code, self.message = kind, code, message

    @property
    def has_no_settings(self) -> bool:
        """Whether the real proxy says that it has no settings of the client, which came too soon or after a restart."""
        return '"settings" is null' in self.message


class SdkEndedError(RuntimeError):
    """The program ended before it answered."""


def sdk_missing(sdk: str) -> str | None:
    """Why the programs of an SDK cannot run here, or None."""
    if sdk == "java":
        return java_available() or (None if shutil.which("mvn") else "no mvn on this machine")
    if sdk == "python":
        return None if find_spec("rocketmq") else "rocketmq-python-client is not installed"
    tools = {"node": ("node", "npm"), "go": ("go",)}[sdk]
    absent = [tool for tool in tools if shutil.which(tool) is None]
    return f"no {' and no '.join(absent)} on this machine" if absent else None


class SdkClient:
    """One process of an SDK. Thread rule: any thread; requests are answered side by side."""

    def __init__(self, sdk: str, endpoints: str, *, trusted: Path | None = None, **options: Any) -> None:
        """``options`` go with each command that makes a client: tls, accessKey, secretKey.

        ``trusted`` is a certificate for the SDKs that check the server's (Python, Node).
        """
        self.sdk, self._server = sdk, {"endpoints": endpoints, **options}
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._home = tempfile.TemporaryDirectory(prefix=f"gantrymq-{sdk}-", ignore_cleanup_errors=True)
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (it lives as long as this)
        # Each SDK writes its log below the home directory.
        environment = os.environ | {"HOME": self._home.name, "user.home": self._home.name}
        if trusted is not None:
            environment |= {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(trusted), "NODE_EXTRA_CA_CERTS": str(trusted)}
        if sdk == "node":
            environment["NODE_PATH"] = str(_installed_node())
        self._process = subprocess.Popen(
            _WORDS[sdk](self._home.name),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        self._reader = threading.Thread(target=self._read, name=f"{sdk}-answers", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.kill()

    def call(self, command: str, *, seconds: float = CALL_SECONDS, **arguments: Any) -> Line:
        """The result of one command. Raises SdkError, SdkEndedError, TimeoutError."""
        if command in {"producer", "consumer", "push"}:
            arguments = self._server | arguments
        answer: Future[Line] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = answer
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(json.dumps({"id": number, "do": command, **arguments}) + "\n")
                self._process.stdin.flush()
            except (BrokenPipeError, ValueError):
                raise SdkEndedError(self.log()) from None
        line = answer.result(seconds)
        if "error" in line:
            error = line["error"]
            raise SdkError(error["type"], error["code"], error["message"])
        result: Line = line["result"]
        return result

    def kill(self) -> None:
        """SIGKILL: nothing is closed, no message is given back."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._log.close()
        self._home.cleanup()

    def log(self) -> str:
        """The end of what the program wrote to stderr."""
        self._log.seek(0)
        return "".join(self._log.readlines()[-LOG_LINES:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            self._waiting.pop(line["id"]).set_result(line)
        for answer in list(self._waiting.values()):
            answer.set_exception(SdkEndedError("the program ended"))


def _python(home: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / "python" / "client.py")]


def _java(home: str) -> list[str]:
    target = built_by_maven("java")
    quick = [option for option in os.environ.get(JVM_OPTIONS, "").split() if "SharedArchiveFile" not in option]
    memory = ["-Xmx256m", f"-Duser.home={home}"]
    words = [java_program(), *quick, *memory, "-cp", f"{target}/client.jar:{target}/lib/*"]
    return [*words, "org.gantrymq.interop.grpc.Main"]


def _node(home: str) -> list[str]:
    return ["node", str(PROGRAMS / "node" / "client.js")]


def _go(home: str) -> list[str]:
    return [str(_built_go())]


_WORDS: dict[str, Callable[[str], list[str]]] = {"python": _python, "java": _java, "node": _node, "go": _go}


def built_by_maven(project: str) -> Path:
    """The target directory of a project below interop/grpc, built if it is missing or older than its sources."""
    folder = PROGRAMS / project
    stamp = folder / "target" / ".built"

    def build() -> None:
        _checked(["mvn", "--batch-mode", "--quiet", "--file", str(folder / "pom.xml"), "package"], folder)

    sources = [folder / "pom.xml", *(folder / "src").rglob("*.java")]
    _once(stamp, sources, build)
    return folder / "target"


def _installed_node() -> Path:
    folder, lock = CACHE / "node", PROGRAMS / "node" / "package-lock.json"

    def install() -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(PROGRAMS / "node" / name, folder / name)
        _checked(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    _once(folder / ".built", [lock], install)
    return folder / "node_modules"


def _built_go() -> Path:
    folder = PROGRAMS / "go"
    program = CACHE / "go" / "client"
    _once(
        CACHE / "go" / ".built",
        [path for path in folder.iterdir() if path.is_file()],
        lambda: _checked(["go", "build", "-o", str(program), "."], folder),
    )
    return program


def _once(stamp: Path, sources: Iterable[Path], build: Callable[[], object]) -> None:
    """Build unless a build of the same sources is there. One process builds, the others wait."""
    digest = hashlib.sha256()
    for path in sorted(sources):
        digest.update(path.read_bytes())
    stamp.parent.mkdir(parents=True, exist_ok=True)
    with _locked(stamp.with_name(".lock")):
        if not stamp.exists() or stamp.read_text() != digest.hexdigest():
            build()
            stamp.write_text(digest.hexdigest())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _checked(words: list[str], folder: Path) -> None:
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
