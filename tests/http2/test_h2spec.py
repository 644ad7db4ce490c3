"""The conformance suite h2spec, strict, against the port for gRPC. Go builds it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gantrymq.grpc.transport.connection import GrpcCall, GrpcService, Method
from gantrymq.grpc.transport.port import GrpcPort
from gantrymq.remoting.transport.tls import tls_server

H2SPEC = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]


@pytest.fixture(scope="module")
def h2spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go toolchain")
    folder = tmp_path_factory.mktemp("h2spec")
    subprocess.run([go, "install", H2SPEC], check=True, env={**os.environ, "GOBIN": str(folder)})
    return folder / "h2spec"


@pytest.mark.parametrize("options", [[], ["--tls", "--insecure"]], ids=["plain", "tls"])
async def test_h2spec_passes_whole(h2spec: Path, options: list[str]) -> None:
    async def echo(call: GrpcCall) -> None:
        await call.send(call.request)

    port = GrpcPort(GrpcService({"/x/Echo": Method(echo)}, 1 << 20, 60.0), tls_server({"tls.test.mode.enable": "true"}))
    number = await port.start("127.0.0.1", 0)
    try:
        where = ["--host", "127.0.0.1", "--port", str(number), "--timeout", "10"]
        process = await asyncio.create_subprocess_exec(
            h2spec, "--strict", *where, *options, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
    finally:
        await port.abandon()
    text = output.decode()
    assert text.rstrip().endswith("0 skipped, 0 failed"), text
    assert process.returncode == 0
