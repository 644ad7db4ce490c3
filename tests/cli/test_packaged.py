"""What a package brings beside the commands: settings in the environment, systemd, completion, the manual page."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from cli_cases import Run, start

from gantrymq.cli.completion import COMPLETE_VARIABLE
from gantrymq.cli.server_options import read_server_options
from gantrymq.cli.service_manager import READY, STOPPING, notify


def test_settings_are_read_from_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=of-file\nbrokerIP1=10.0.0.1\nflushDiskType=SYNC_FLUSH\n")
    monkeypatch.setenv("GANTRYMQ_SET_brokerName", "of-environment")
    monkeypatch.setenv("GANTRYMQ_SET_brokerIP1", "10.0.0.2")
    monkeypatch.setenv("GANTRYMQ_SET_tls__server__mode", "disabled")
    settings = read_server_options(file, ["brokerName=of-option"])
    live = settings.broker(0, tmp_path)
    assert (live.broker.broker_name, live.broker.broker_ip1) == ("of-option", "10.0.0.2")
    assert settings.entries["tls.server.mode"] == "disabled"
    assert settings.entries["flushDiskType"] == "SYNC_FLUSH"


def test_unknown_key_in_environment_is_refused(gantrymq: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANTRYMQ_SET_bindAdress", "127.0.0.1")
    outcome = gantrymq("serve")
    assert outcome.code == 2
    assert "nearest: bindAddress" in outcome.err


@pytest.mark.parametrize(
    ("address", "entries", "acl", "warned"),
    [
        ("0.0.0.0", {}, False, True),
        ("::", {"tls.server.mode": "permissive"}, False, True),
        ("10.1.2.3", {}, False, True),
        ("broker-a", {}, False, True),
        ("0.0.0.0", {}, True, False),
        ("0.0.0.0", {"tls.server.mode": "enforcing", "tls.test.mode.enable": "true"}, False, False),
        ("127.0.0.1", {}, False, False),
        ("::1", {}, False, False),
        ("localhost", {}, False, False),
    ],
)
def test_exposed_server_without_acl_prints_warning(
    capsys: pytest.CaptureFixture[str], address: str, entries: dict[str, str], acl: bool, warned: bool
) -> None:
    settings = read_server_options(None, [f"{key}={value}" for key, value in entries.items()])
    settings.warn_if_exposed(address, acl=acl)
    said = capsys.readouterr().err
    assert ("aclEnable=true" in said) is warned
    assert (f"bindAddress={address} is open" in said) is warned


def test_systemd_is_notified_of_start_and_stop(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "HOME": str(tmp_path)}
        with start("namesrv", "--listen-port", 0, "--json", env=environment) as child:
            assert manager.recv(100) == READY.encode()
            assert child.stdout is not None
            assert json.loads(child.stdout.readline())["ready"]
            child.send_signal(signal.SIGTERM)
            assert manager.recv(100) == STOPPING.encode()
            assert child.wait(60) == 0


@pytest.mark.parametrize("address", ["", "relative", "/no/such/socket", "@no-such-socket"])
def test_notify_without_listening_service_manager_does_nothing(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify(READY)


@pytest.mark.parametrize(
    ("typed", "expected", "missing"),
    [
        ("gantrymq store re", {"recover", "rebuild"}, {"verify"}),
        ("gantrymq store verify --", {"--engine", "--json", "--outlook"}, {"--queues"}),
        ("gantrymq admin topic ", {"list", "create", "delete"}, {"recover"}),
        ("gantrymq completion ", {"bash", "zsh", "fish"}, set()),
    ],
)
def test_shell_completion_offers_commands_and_options(
    gantrymq: Run, monkeypatch: pytest.MonkeyPatch, typed: str, expected: set[str], missing: set[str]
) -> None:
    monkeypatch.setenv(COMPLETE_VARIABLE, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    words = set(gantrymq().text.split())
    assert words >= expected
    assert not words & missing


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_completion_script(gantrymq: Run, shell: str) -> None:
    outcome = gantrymq("completion", shell)
    assert f"{COMPLETE_VARIABLE}=complete_{shell}" in outcome.text
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=outcome.out, check=True)


def test_zsh_completes_at_first_tab_with_script_from_fpath(gantrymq: Run) -> None:
    """zsh runs a file of fpath as the function that completes, at the first Tab."""
    text = gantrymq("completion", "zsh").text
    assert text.startswith("#compdef gantrymq\n")
    assert text.rstrip().endswith("fi")
    loaded, sourced = text.split("if [[ $zsh_eval_context[-1] == loadautofunc ]]; then")[1].split("else")
    assert loaded.split() == ["_gantrymq_completion", '"$@"']
    assert sourced.split()[:3] == ["compdef", "_gantrymq_completion", "gantrymq"]


def test_manual_page_has_every_command(gantrymq: Run) -> None:
    page = gantrymq("man").text
    for words in ("store recover STORE", "admin topic create", "produce TOPIC", "serve", "completion SHELL"):
        assert f'.SS "gantrymq {words}' in page
    assert r"\fB\-\-listen\-port\fR PORT" in page
    if shutil.which("man") and shutil.which("groff"):
        done = subprocess.run(
            ["groff", "-Kutf8", "-man", "-Tutf8", "-ww", "-z"], input=page.encode(), capture_output=True, check=True
        )
        assert done.stderr == b""


@pytest.mark.parametrize("words", ["admin producer list", "admin group delete", "store verify", "man"])
def test_examples_are_indented(gantrymq: Run, words: str) -> None:
    lines = gantrymq(*words.split(), "--help").text.splitlines()
    at = lines.index(next(line for line in lines if "Examples of use:" in line))
    assert lines[at + 2].startswith(f"     gantrymq {words}")
    assert "Examples" in lines[at]
    assert lines[at - 2].strip(), "one empty line stands before the examples"
