"""RocketMQ's proxy as a process, and the gRPC SDK for Java as a load: both of interop/grpc, built by Maven."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.race.process import JavaSide, Line, SideError, free_port, last_line, serving
from gantrymq.client.admin.admin_client import AdminClient
from gantrymq.errors import GantrymqError

_PROJECTS = Path(__file__).parents[2] / "interop" / "grpc"
_HOST = "127.0.0.1"
_READY_S = 180


def missing() -> str:
    """What is missing for the SDK and the proxy, in a line; empty if both can run."""
    return "" if (_PROJECTS.is_dir() and shutil.which("mvn")) else "no Maven, or no interop/grpc"


def load(endpoints: str, home: Path, **options: Any) -> Line:
    """Run the SDK at a server, and return its result (interop/grpc/java, Load). It logs in ``home``.

    Raises SideError.
    """
    target = _built("java")
    words = ["java", "-Xmx1g", f"-Duser.home={home}", "-cp", f"{target}/client.jar:{target}/lib/*"]
    words += ["org.gantrymq.interop.grpc.Load", "--endpoints", endpoints]
    for name, option in options.items():
        words += [f"--{name.replace('_', '-')}", str(option)]
    return last_line(words)


@contextmanager
def serving_proxy(java: JavaSide, home: Path, settings: Mapping[str, object]) -> Iterator[Line]:
    """Run RocketMQ's proxy in LOCAL mode, which is a broker as well, and a name server in a process of its own.

    Yields addresses (``grpc``, ``namesrv``) and ``pid``, the process of proxy and broker. Raises SideError if it does
    not start.
    """
    lib = _built("proxy") / "lib"
    home.mkdir(parents=True)
    with serving(java.name_server(home)) as names:
        ports = [free_port() for _ in range(3)]
        broker = dict(settings) | {"storePathRootDir": home / "store", "storePathCommitLog": home / "store/commitlog"}
        broker |= {"brokerIP1": _HOST, "brokerIP2": _HOST, "listenPort": ports[2], "haListenPort": 0}
        entries = {key: str(value).lower() if isinstance(value, bool) else value for key, value in broker.items()}
        (home / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in entries.items()))
        keys: dict[str, Any] = {"rocketMQClusterName": "DefaultCluster", "localServeAddr": _HOST}
        keys |= {"grpcServerPort": ports[0], "remotingListenPort": ports[1]}
        (home / "rmq-proxy.json").write_text(json.dumps(keys))
        words = ["java", f"-Duser.home={home}", "-cp", f"{lib}/*", "org.apache.rocketmq.proxy.ProxyStartup"]
        words += ["-n", names["namesrv"], "-pm", "local"]
        words += ["-pc", str(home / "rmq-proxy.json"), "-bc", str(home / "broker.conf")]
        environment = os.environ | {"ROCKETMQ_HOME": str(home), "RMQ_PROXY_HOME": str(home)}
        with (home / "out").open("w") as out, subprocess.Popen(words, stdout=out, stderr=out, env=environment) as proxy:
            try:
                _await(names["namesrv"], ports[0], proxy, home / "out")
                yield {"grpc": f"{_HOST}:{ports[0]}", "namesrv": names["namesrv"], "pid": proxy.pid}
            finally:
                proxy.kill()


def _built(project: str) -> Path:
    """The target directory of a project, which is built if it is missing."""
    target = _PROJECTS / project / "target"
    if not (target / "lib").is_dir() or (project == "java" and not _has_load(target)):
        words = ["mvn", "-q", "-B", "-f", str(_PROJECTS / project / "pom.xml"), "package"]
        subprocess.run(words, check=True, stdout=sys.stderr)
    return target


def _has_load(target: Path) -> bool:
    return (target / "classes/org/gantrymq/interop/grpc/Load.class").is_file() and (target / "client.jar").is_file()


def _await(namesrv: str, port: int, proxy: subprocess.Popen[bytes], out: Path) -> None:
    """Return when the proxy listens and its broker is registered, which may come later."""
    deadline = time.monotonic() + _READY_S
    with AdminClient(namesrv) as admin:
        while True:
            try:
                socket.create_connection((_HOST, port), 1).close()
                if admin.cluster_info().broker_addr_table:
                    return
            except (OSError, GantrymqError):
                pass
            if time.monotonic() > deadline or proxy.poll() is not None:
                raise SideError(f"RocketMQ's proxy did not start: {out.read_text()[-600:]}")
            time.sleep(0.1)
