"""A cluster in which each port asks for a user: name server, broker, HA port; and a mirror of it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli_cases import Run
from test_cli_servers import serving
from test_cli_slave import FILE, SLAVE, SYNC, until

from gantrymq import AdminClient, Message, Producer

ROOT = json.dumps({"username": "root", "password": "rootpw"})
INNER = json.dumps({"accessKey": "inner", "secretKey": "innerpw"})
USERS = {"authenticationEnabled": "true", "initAuthenticationUser": ROOT, "innerClientAuthenticationCredentials": INNER}
KEYS = {"access_key": "root", "secret_key": "rootpw"}


def written(path: Path, entries: dict[str, str]) -> Path:
    path.write_text("".join(f"{name}={text}\n" for name, text in entries.items()))
    return path


@contextmanager
def closed_name_server(tmp_path: Path) -> Iterator[tuple[str, tuple[object, ...]]]:
    """The address of a name server that asks for a user, and the words that start a broker of its cluster."""
    home = {**os.environ, "HOME": str(tmp_path)}
    names_file = written(tmp_path / "namesrv.conf", USERS)
    broker_file = written(tmp_path / "broker.conf", USERS | {"haAuthenticationEnabled": "true", "brokerName": "a"})
    with serving("namesrv", "--listen-port", 0, "-c", names_file, env=home) as (names, _):
        yield names["namesrv"], ("broker", "-n", names["namesrv"], "--listen-port", 0, *FILE, "-c", broker_file)


def test_mirror_with_user_copies_from_closed_cluster(gantrymq: Run, tmp_path: Path) -> None:
    with closed_name_server(tmp_path) as (address, words), serving(*words, "--store", tmp_path / "master"):
        with AdminClient(address, **KEYS) as admin:
            admin.create_topic("T")
        with Producer(address, **KEYS) as producer:
            producer.send(Message("T", b"copied"))
        mirror = ("mirror", "-n", address, "--broker", "a", "--store", tmp_path / "mirror", "--once", "--json")
        copied = gantrymq(*mirror, "--access-key", "root", "--secret-key", "rootpw")
        assert (copied.code, json.loads(copied.out.splitlines()[-1])["messages"]) == (0, 1), copied.err
        refused = gantrymq(*mirror)
        assert refused.code != 0
        assert "username cannot be null." in refused.err
        assert len(refused.err.splitlines()) == 1


def test_slave_of_closed_cluster_is_promoted_by_its_super_user(gantrymq: Run, tmp_path: Path) -> None:
    with (
        closed_name_server(tmp_path) as (address, words),
        serving(*words, "--store", tmp_path / "master", *SYNC) as (_, master),
        serving(*words, "--store", tmp_path / "slave", *SLAVE) as (ready, _),
        AdminClient(address, **KEYS) as admin,
    ):
        where = ready["broker"]
        admin.create_topic("T")
        until(lambda: admin.ha_status(where).ha_client_runtime_info.state == "in sync")
        until(lambda: admin.ha_status(where).ha_client_runtime_info.tables_timestamp)
        with Producer(address, **KEYS) as producer:
            assert producer.send(Message("T", b"before")).status.value == "SEND_OK"
        os.kill(master.pid, signal.SIGKILL)
        master.wait()
        until(lambda: admin.ha_status(where).ha_client_runtime_info.state != "in sync")
        until(lambda: 0 not in admin.cluster_info().broker_addr_table["a"].broker_addrs)
        promote = ("admin", "ha", "promote", "-n", address, "-b", where, "--json", "--force")
        refused = gantrymq(*promote)
        assert (refused.code, len(refused.err.splitlines())) == (3, 1)
        done = gantrymq(*promote, "--access-key", "root", "--secret-key", "rootpw")
        assert (done.code, json.loads(done.out)["promoted"]) == (0, True), done.err
        with Producer(address, **KEYS) as producer:
            assert producer.send(Message("T", b"after")).status.value == "SEND_OK"
