"""The servers of the matrix, each a process: started, killed, started again on the same ports.

with JavaProxy(tmp_path, mode="local") as server:
    server.endpoints, server.namesrv
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, Self

from gantrymq import AdminClient
from gantrymq.errors import GantrymqError

from ..fixed_ports import fixed_port
from ..java import JVM_OPTIONS, JavaError, Setting, java_program, setting_text, slow_down_idle_loop
from ..java_cluster import FOR_TESTS, SPARING, JavaCluster
from .sdks import built_by_maven

HOST = "127.0.0.1"
READY_SECONDS = 90
PROXY_MAIN = "org.apache.rocketmq.proxy.ProxyStartup"
# Both sides have them. A transaction is checked after a second and then each second, and not given up before the real
# proxy in cluster mode has told the broker of its producers (20 s). SQL filters and recalls are off by default.
SETTINGS: dict[str, Setting] = {
    "brokerName": "broker-a",
    "enablePropertyFilter": True,
    "recallMessageEnable": True,
    "timerWheelEnable": True,
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 1000,
    "transactionCheckMax": 1000,
}


class Server(Protocol):
    """What the cases need of a server."""

    endpoints: str
    namesrv: str

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class _Process:
    """One program with a log file; it ends when this is left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[str] | None = None

    def run(self, words: list[str], **options: Any) -> subprocess.Popen[str]:
        with (self._folder / "stderr").open("w") as log:
            self._process = subprocess.Popen(words, stderr=log, text=True, **options)
        return self._process

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(READY_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def log(self) -> str:
        return "\n".join((self._folder / "stderr").read_text(errors="replace").splitlines()[-40:])


class JavaProxy:
    """rocketmq-proxy 5.5.0 with the real name server and broker.

    ``mode`` is "local" (proxy and broker are one process, which ``kill`` ends) or "cluster" (the broker is another
    process; ``kill`` ends the proxy). ``proxy`` are keys of ProxyConfig and AuthConfig.
    """

    def __init__(
        self,
        folder: Path,
        mode: str = "local",
        *,
        settings: Mapping[str, Setting] | None = None,
        proxy: Mapping[str, Any] | None = None,
        auth: Mapping[str, str] | None = None,
    ) -> None:
        self._folder, self._mode, self._open = folder, mode, ExitStack()
        self._settings = FOR_TESTS | SPARING | SETTINGS | dict(settings or {})
        self._proxy, self._auth = dict(proxy or {}), dict(auth or {})
        self._process = _Process(folder / "proxy")
        self._port, self._remoting_port, self._broker_port = fixed_port(), fixed_port(), fixed_port()
        self.endpoints, self.namesrv = f"{HOST}:{self._port}", ""

    def __enter__(self) -> Self:
        try:
            if self._mode == "local":
                cluster = JavaCluster(None, broker=False)
            else:
                cluster = JavaCluster(self._folder / "store", self._settings, auth=self._auth)
            self.namesrv = self._open.enter_context(cluster).namesrv
            self.start()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *unused: object) -> None:
        self._leave()

    def start(self) -> None:
        lib = built_by_maven("proxy") / "lib"
        quick = [option for option in os.environ.get(JVM_OPTIONS, "").split() if "SharedArchiveFile" not in option]
        memory = ["-Xmx512m", "-XX:MaxDirectMemorySize=512m", f"-Djava.io.tmpdir={self._folder}"]
        home = [f"-Duser.home={self._folder}", f"-Drocketmq.home.dir={self._folder}"]
        words = [java_program(), *quick, *memory, *home, "-cp", f"{lib}/*", PROXY_MAIN]
        words += ["-n", self.namesrv, "-pm", self._mode, "-pc", str(self._proxy_file())]
        if self._mode == "local":
            words += ["-bc", str(self._broker_file())]
        environment = os.environ | {"ROCKETMQ_HOME": str(self._folder), "RMQ_PROXY_HOME": str(self._folder)}
        with (self._folder / "proxy" / "stdout").open("w") as out:
            proxy = self._process.run(words, stdout=out, env=environment, cwd=self._folder)
        await_port(self.endpoints, self._process)
        slow_down_idle_loop(proxy)

    def stop(self) -> None:
        self._process.end(signal.SIGTERM)

    def kill(self) -> None:
        self._process.end(signal.SIGKILL)

    def _leave(self) -> None:
        self.kill()
        self._open.close()

    def _proxy_file(self) -> Path:
        keys = {
            "rocketMQClusterName": "DefaultCluster",
            "localServeAddr": HOST,
            "grpcServerPort": self._port,
            "remotingListenPort": self._remoting_port,
            "enablePrintJstack": False,
        }
        file = self._folder / "rmq-proxy.json"
        file.write_text(json.dumps(keys | self._proxy))
        return file

    def _broker_file(self) -> Path:
        keys = self._settings | {
            "storePathRootDir": str(self._folder / "store"),
            "storePathCommitLog": str(self._folder / "store" / "commitlog"),
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "listenPort": self._broker_port,
            "haListenPort": 0,
            "diskMaxUsedSpaceRatio": 95,
            "cleanFileForciblyEnable": False,
        }
        file = self._folder / "broker.conf"
        entries = {key: setting_text(value) for key, value in keys.items()} | self._auth
        file.write_text("".join(f"{key}={value}\n" for key, value in entries.items()))
        return file


class OurServer:
    """``gantrymq serve --grpc-port`` as a process of its own."""

    def __init__(self, folder: Path, *, settings: Mapping[str, Setting] | None = None) -> None:
        self._folder = folder
        self._settings = FOR_TESTS | SETTINGS | dict(settings or {})
        self._process = _Process(folder / "ours")
        self._port, self._namesrv_port, self._broker_port = fixed_port(), fixed_port(), fixed_port()
        self.endpoints, self.namesrv = f"{HOST}:{self._port}", f"{HOST}:{self._namesrv_port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.kill()

    def start(self) -> None:
        words = ["serve", "--store", str(self._folder / "store"), "--grpc-port", str(self._port)]
        words += ["--namesrv-port", str(self._namesrv_port), "--listen-port", str(self._broker_port)]
        for key, value in self._settings.items():
            words += ["--set", f"{key}={setting_text(value)}"]
        run_ours(self._process, words)

    def stop(self) -> None:
        self._process.end(signal.SIGTERM)

    def kill(self) -> None:
        self._process.end(signal.SIGKILL)


class OurProxy:
    """``gantrymq proxy`` in front of a cluster; ``kill`` ends the proxy.

    The cluster is the real name server and broker, unless another one is given. ``proxy`` is its rmq-proxy.json.
    """

    def __init__(
        self, folder: Path, cluster: JavaCluster | OurServer | None = None, proxy: Mapping[str, Any] | None = None
    ) -> None:
        self._cluster = cluster or JavaCluster(folder / "store", SETTINGS)
        self._file = folder / "rmq-proxy.json"
        self._file.write_text(json.dumps(proxy or {}))
        self._process = _Process(folder / "our-proxy")
        self._port = fixed_port()
        self.endpoints, self.namesrv = f"{HOST}:{self._port}", ""

    def __enter__(self) -> Self:
        try:
            self.namesrv = self._cluster.__enter__().namesrv
            self.start()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *unused: object) -> None:
        self._leave()

    def start(self) -> None:
        run_ours(self._process, ["proxy", "-n", self.namesrv, "-pc", str(self._file), "--grpc-port", str(self._port)])

    def stop(self) -> None:
        self._process.end(signal.SIGTERM)

    def kill(self) -> None:
        self._process.end(signal.SIGKILL)

    def _leave(self) -> None:
        self.kill()
        self._cluster.__exit__()


def run_ours(process: _Process, words: list[str]) -> None:
    """Run a command of ours that announces itself with a line when it serves."""
    running = process.run([sys.executable, "-m", "gantrymq", *words, "--json"], stdout=subprocess.PIPE)
    assert running.stdout is not None
    if not running.stdout.readline():
        process.end(signal.SIGKILL)
        raise RuntimeError(f"gantrymq {words[0]} did not start\n{process.log()}")


def await_port(address: str, process: _Process) -> None:
    """Return when the address takes connections."""
    host, port = address.split(":")
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError:
            if time.monotonic() > deadline or not process.is_running():
                process.end(signal.SIGKILL)
                raise JavaError(f"the real proxy did not start\n{process.log()}") from None
            time.sleep(0.1)
        else:
            return


def await_broker(namesrv: str, **keys: str) -> AdminClient:
    """An administration client of a cluster whose broker is registered."""
    admin = AdminClient(namesrv, request_timeout_ms=10_000, **keys)
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            if admin.cluster_info().broker_addr_table:
                return admin
        except GantrymqError:
            if time.monotonic() > deadline:
                admin.close()
                raise
        time.sleep(0.1)
