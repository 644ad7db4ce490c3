"""An S3 server on this machine, which is built with Go when it is needed first."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SERVER = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
KEPT = Path(__file__).resolve().parents[2] / ".cache" / "versitygw"


@contextmanager
def s3_server(root: Path, bucket: str) -> Iterator[dict[str, str]]:
    """Run a server for ``bucket``, whose objects are files below ``root``. Yields the environment that names it."""
    program = KEPT / "versitygw"
    if not program.exists():
        if shutil.which("go") is None:
            pytest.skip("go is missing, which builds the server")
        settings = {**os.environ, "GOBIN": str(KEPT), "CGO_ENABLED": "0"}
        subprocess.run(["go", "install", SERVER], check=True, env=settings, capture_output=True)
    (root / bucket).mkdir()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    keys = {"ROOT_ACCESS_KEY": "lander", "ROOT_SECRET_KEY": "secret-of-lander"}
    command = [str(program), "--port", f"127.0.0.1:{port}", "posix", str(root)]
    process = subprocess.Popen(
        command, env={**os.environ, **keys}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _await_port(port)
        yield {
            **{"AWS_ACCESS_KEY_ID": "lander", "AWS_SECRET_ACCESS_KEY": "secret-of-lander", "AWS_REGION": "us-east-1"},
            **{"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true"},
            **{"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
        }
    finally:
        process.kill()
        process.wait()


def _await_port(port: int) -> None:
    for _ in range(100):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"no server at {port}")
