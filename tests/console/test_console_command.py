"""``gantrymq console`` as a process: its ready line, its token, its end, and what it needs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from gantrymq import EmbeddedBroker, Message, Producer


@pytest.mark.slow
def test_ready_line_has_address_and_ctrl_c_ends_console(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "store") as broker, Producer(broker.namesrv) as producer:
        producer.send(Message("orders", b"hello"))
    words = ["console", str(tmp_path / "store"), "--listen", "0.0.0.0", "--port", "0", "--json"]
    command = [sys.executable, "-m", "gantrymq", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["ready"] is True
        assert ready["store"] == str(tmp_path / "store")
        base, _, token = ready["console"].partition("?token=")
        assert len(token) >= 32
        url = base.replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(base_url=url) as client:
            assert client.get("/").status_code == 401
            assert client.get("/", params={"token": token}).status_code == 303
            assert "orders" in client.get("/").text
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")


def test_starting_command_loads_no_web_framework() -> None:
    code = (
        "import sys; from gantrymq.cli.application import application; application(['console']);"
        "import gantrymq.embedded.broker;"
        "print([one for one in ('starlette', 'uvicorn', 'jinja2') if one in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
