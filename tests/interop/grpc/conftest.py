"""What the tests of the gRPC matrix share: the servers, the SDKs' programs, and the cases that were selected."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from .cases import CASES
from .scene import Facts, Scene
from .sdks import SdkClient, sdk_missing
from .servers import JavaProxy, OurProxy, OurServer, Server, await_broker

SDKS = ("python", "java", "node", "go")
# The real proxy in the broker's process and ours, and both as a process of their own in front of the real broker.
SERVERS = ("proxy", "ours")
KINDS = (*SERVERS, "cluster", "our-proxy")
AT_ONCE = 8  # most cases wait most of the time


def server_of(kind: str, folder: pytest.TempPathFactory) -> JavaProxy | OurServer | OurProxy:
    """A server that is not started yet, by its name in KINDS."""
    if kind == "ours":
        return OurServer(folder.mktemp(kind))
    if kind == "our-proxy":
        return OurProxy(folder.mktemp(kind))
    return JavaProxy(folder.mktemp(kind), "local" if kind == "proxy" else "cluster")


def require(sdk: str) -> None:
    """Skip a test whose SDK has no toolchain here; the skip fails where interop is required."""
    missing = sdk_missing(sdk)
    if missing:
        pytest.skip(f"{sdk}: {missing}")


class Matrix:
    """Plays the selected cases, those of one SDK and server side by side, as soon as one of them is asked for."""

    def __init__(self, items: list[pytest.Item], folder: pytest.TempPathFactory) -> None:
        self._folder, self._open = folder, ExitStack()
        self._servers: dict[str, Server] = {}
        self._results: dict[tuple[str, str, str], Future[Facts]] = {}
        self._wanted: dict[tuple[str, str], list[str]] = {}
        for item in items:
            parameters = getattr(item, "callspec", None) and item.callspec.params  # type: ignore[attr-defined]
            if parameters and {"kind", "sdk", "case"} <= parameters.keys():
                self._wanted.setdefault((parameters["kind"], parameters["sdk"]), []).append(parameters["case"])

    def facts(self, kind: str, sdk: str, case: str) -> Facts:
        """The facts of a case, or what it raised."""
        if (kind, sdk, case) not in self._results:
            self._play(kind, sdk)
        return self._results[kind, sdk, case].result()

    def close(self) -> None:
        self._open.close()

    def _play(self, kind: str, sdk: str) -> None:
        server = self._server(kind)
        cases = self._wanted[kind, sdk]
        with (
            SdkClient(sdk, server.endpoints) as client,
            await_broker(server.namesrv) as admin,
            ThreadPoolExecutor(AT_ONCE, thread_name_prefix=f"{kind}-{sdk}") as threads,
        ):
            for case in cases:
                scene = Scene(case, sdk, server, client, admin)
                self._results[kind, sdk, case] = threads.submit(CASES[case], scene)

    def _server(self, kind: str) -> Server:
        if kind not in self._servers:
            self._servers[kind] = self._open.enter_context(server_of(kind, self._folder))
        return self._servers[kind]


@pytest.fixture(scope="session")
def matrix(request: pytest.FixtureRequest, java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    """The cases of this run, played once for all its tests."""
    made = Matrix(request.session.items, tmp_path_factory)
    yield made
    made.close()
