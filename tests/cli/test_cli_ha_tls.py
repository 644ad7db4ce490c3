"""haTlsEnable: the HA port of a master speaks TLS alone, with certificates of both sides, for slaves and mirrors."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from cli_cases import Run
from test_cli_servers import serving
from test_cli_slave import FILE, SLAVE, SYNC, log_of, until

from gantrymq import AdminClient, Message, Producer

TLS = Path(__file__).parent.parent / "remoting" / "tls"
OF_SERVER = {"certPath": "server.pem", "keyPath": "server.key", "trustCertPath": "server.pem"}
SERVER = {
    "tls.server.need.client.auth": "require",
    **{f"tls.server.{name}": str(TLS / file) for name, file in OF_SERVER.items()},
}
KEYS = {"haTlsEnable": "true", **SERVER}
OF_CLIENT = {
    "tls.enable": "true",
    "tls.client.authServer": "true",
    **{f"tls.client.{name}": str(TLS / file) for name, file in OF_SERVER.items()},
}


def options(*keys: dict[str, str]) -> tuple[str, ...]:
    return tuple(word for of in keys for name, text in of.items() for word in ("--set", f"{name}={text}"))


def closed_states(admin: AdminClient, broker: str) -> list[str | None]:
    return [slave.state for slave in admin.ha_status(broker).closed_connection_info or ()]


def test_slave_and_mirror_with_certificates_copy_and_others_are_named(gantrymq: Run, tmp_path: Path) -> None:
    home = {**os.environ, "HOME": str(tmp_path)}
    with serving("namesrv", "--listen-port", 0, *options(SERVER), env=home) as (names, _):
        address = names["namesrv"]
        words = ("broker", "-n", address, "--listen-port", 0, *FILE, *options(KEYS, OF_CLIENT))
        sync = ("--set", "brokerName=broker-a", *SYNC, "--set", "slaveTimeout=5000")
        with (
            serving(*words, "--store", tmp_path / "master", *sync) as (master, _),
            serving(*words, "--store", tmp_path / "slave", "--set", "brokerName=broker-a", *SLAVE),
            AdminClient(address, tls=OF_CLIENT) as admin,
        ):
            until(lambda: admin.ha_status(master["broker"]).in_sync_slave_nums == 1)
            ha_port = int(admin.broker_config(master["broker"])["haListenPort"])
            with socket.create_connection(("127.0.0.1", ha_port)) as plain:
                plain.sendall(bytes(8))
                until(lambda: "no tls" in closed_states(admin, master["broker"]))
            admin.create_topic("T")
            with Producer(address, tls=OF_CLIENT) as producer:
                statuses = {producer.send(Message("T", os.urandom(3_000))).status.value for _ in range(400)}
            assert statuses == {"SEND_OK"}
            until(lambda: log_of(tmp_path / "master") == log_of(tmp_path / "slave"))
            mirror = ("mirror", "-n", address, "--broker", "broker-a", "--store", str(tmp_path / "mirror"), "--once")
            files = {"trust": "server.pem", "cert": "server.pem", "key": "server.key"}
            tls = [word for name, file in files.items() for word in (f"--tls-{name}", str(TLS / file))]
            copied = gantrymq(*mirror, *tls, "--json", "--set", "haTlsEnable=true")
            assert (copied.code, json.loads(copied.out.splitlines()[-1])["messages"]) == (0, 400), copied.err


@pytest.mark.parametrize(
    ("more", "named"),
    [((), "tls.server.certPath"), ((*SLAVE, *options(KEYS)), "tls.enable=true")],
    ids=["no certificate", "slave without tls"],
)
def test_start_without_tls_to_use_is_refused(gantrymq: Run, tmp_path: Path, more: tuple[str, ...], named: str) -> None:
    words = ("broker", "-n", "127.0.0.1:1", "--store", tmp_path / "s", "--listen-port", 0)
    outcome = gantrymq(*words, "--set", "haTlsEnable=true", *more)
    assert outcome.code == 2
    assert "haTlsEnable" in outcome.err
    assert named in outcome.err
    assert not (tmp_path / "s").exists()
