"""Starts with a key that cannot be honoured: exit code 3, one line, and nothing is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_cases import Outcome, Run, start, tree

from gantrymq import AdminClient, Message, MessageStore
from gantrymq.config.known_keys import AUTH_KEYS
from gantrymq.config.properties import read_settings

SIZES = {
    "mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "60000", "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}  # fmt: skip
REFUSED_KEYS = {
    "access": ({"authorizationEnabled": "true"}, "authorizationEnabled"),
    "provider": ({"authenticationEnabled": "true", "authenticationProvider": "a.B"}, "authenticationProvider"),
    "first user": ({"authenticationEnabled": "true", "initAuthenticationUser": "{"}, "initAuthenticationUser"),
    "slave": ({"brokerId": "1"}, "brokerId"),
    "form": ({"storeType": "defaultRocksDB"}, "storeType"),
    "copies": ({"brokerRole": "SYNC_MASTER", "allAckInSyncStateSet": "true"}, "allAckInSyncStateSet"),
}
SERVERS = {
    "serve": ("--namesrv-port", "0", "--listen-port", "0"),
    "broker": ("-n", "127.0.0.1:1", "--listen-port", "0"),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store", read_settings(SIZES).config) as opened:
        opened.put(Message("T", b"body"))
    return tmp_path / "store"


def conf(path: Path, entries: dict[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in (SIZES | entries).items()))
    return path


def assert_refused(outcome: Outcome, key: str) -> None:
    assert (outcome.code, outcome.out) == (3, b"")
    (line,) = outcome.err.splitlines()
    assert line.startswith(f"gantrymq: {key}=")
    is_acceptable = key not in AUTH_KEYS  # half of access control would be open
    assert (f"accept it with acceptWithoutEffect={key}" in line) is is_acceptable


@pytest.mark.parametrize("case", REFUSED_KEYS)
@pytest.mark.parametrize("server", SERVERS)
def test_start_with_refused_key_leaves_store_unchanged(
    gantrymq: Run, tmp_path: Path, store: Path, server: str, case: str
) -> None:
    entries, key = REFUSED_KEYS[case]
    file, before = conf(tmp_path / "broker.conf", entries), tree(store)
    assert_refused(gantrymq(server, "-c", file, "--store", store, *SERVERS[server]), key)
    assert tree(store) == before


@pytest.mark.parametrize("server", SERVERS)
def test_start_with_refused_key_creates_no_store(gantrymq: Run, tmp_path: Path, server: str) -> None:
    path = tmp_path / "new"
    assert_refused(gantrymq(server, "--store", path, "--set", "enableLmq=true", *SERVERS[server]), "enableLmq")
    assert not path.exists()


def test_refused_key_in_environment_or_saved_settings_is_refused(
    gantrymq: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("serve", "--store", store, *SERVERS["serve"])
    with monkeypatch.context() as context:
        context.setenv("GANTRYMQ_SET_enableLmq", "true")
        assert_refused(gantrymq(*arguments), "enableLmq")
    (store / "config").mkdir(exist_ok=True)
    conf(store / "config" / "broker.properties", {"configManagerVersion": "v2"})
    assert_refused(gantrymq(*arguments), "configManagerVersion")


def test_several_refused_keys_are_counted_in_one_line(gantrymq: Run, tmp_path: Path) -> None:
    keys = ("--set", "enableLmq=true", "--set", "enableMultiDispatch=true")
    outcome = gantrymq("serve", "--store", tmp_path / "new", *keys, *SERVERS["serve"])
    assert_refused(outcome, "enableLmq")
    assert "(1 more: gantrymq store preflight lists all)" in outcome.err


def test_name_server_with_refused_key_does_not_start(gantrymq: Run, tmp_path: Path) -> None:
    file = conf(tmp_path / "namesrv.conf", {"listenPort": "0", "enableControllerInNamesrv": "true"})
    before = file.read_bytes()
    assert_refused(gantrymq("namesrv", "-c", file), "enableControllerInNamesrv")
    assert file.read_bytes() == before
    outcome = gantrymq("serve", "--store", tmp_path / "new", "--set", "clusterTest=true", *SERVERS["serve"])
    assert_refused(outcome, "clusterTest")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "entries", [{"authorizationEnabled": True}, {"proxyMode": "local"}, {"tlsTestModeEnable": False}]
)
def test_proxy_with_refused_key_does_not_start(gantrymq: Run, tmp_path: Path, entries: dict[str, object]) -> None:
    (tmp_path / "rmq-proxy.json").write_text(json.dumps(entries))
    outcome = gantrymq("proxy", "-n", "127.0.0.1:1", "-pc", tmp_path / "rmq-proxy.json", "--grpc-port", "0")
    (line,) = outcome.err.splitlines()
    assert (outcome.code, line.partition("=")[0]) == (3, f"gantrymq: {next(iter(entries))}")


def test_accepted_key_is_named_at_start_and_by_broker_status(tmp_path: Path) -> None:
    file = conf(tmp_path / "broker.conf", REFUSED_KEYS["copies"][0])
    accepted = (
        "--set",
        "acceptWithoutEffect=allAckInSyncStateSet,allAckInSyncState",
        "--set",
        "mappedFileSizeCommitLog=16777216",
    )
    with start("serve", "-c", file, "--store", tmp_path / "store", *accepted, *SERVERS["serve"], "--json") as child:
        assert child.stdout is not None
        ready = json.loads(child.stdout.readline())
        with AdminClient(ready["namesrv"]) as admin:
            info = admin.broker_runtime_info(ready["broker"])
        child.terminate()
        err = child.communicate(timeout=60)[1].decode()
    assert info["acceptedWithoutEffect"] == "allAckInSyncStateSet"
    assert "accepted without effect: allAckInSyncStateSet=true cannot be honoured: " in err
    assert "acceptWithoutEffect names what nothing refuses name=allAckInSyncState" in err


@pytest.mark.parametrize("command", [("recover",), ("rebuild",), ("ingest",), ("salvage",)])
def test_write_command_on_store_of_other_form_is_refused(
    gantrymq: Run, tmp_path: Path, store: Path, command: tuple[str, ...]
) -> None:
    file, lines, out = conf(tmp_path / "broker.conf", {"storeType": "defaultRocksDB"}), tmp_path / "l", tmp_path / "out"
    lines.write_text('{"topic":"t","body":"hi"}\n')
    more = {"ingest": [lines], "salvage": [out]}.get(command[0], [])
    before = tree(store)
    outcome = gantrymq("store", *command, store, *more, "-c", file)
    assert_refused(outcome, "storeType")
    assert tree(store) == before
    assert not out.exists()
    accepted = gantrymq("store", *command, store, *more, "-c", file, "--set", "acceptWithoutEffect=storeType")
    assert accepted.code == 0, accepted.err


@pytest.mark.parametrize(("name", "damage"), [("users.json", b""), ("acls.json", bytes(50)), ("users.json", b'{"us')])
def test_start_with_damaged_users_leaves_them_unchanged(gantrymq: Run, store: Path, name: str, damage: bytes) -> None:
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / name).write_bytes(damage)
    before = tree(store)
    outcome = gantrymq("serve", "--store", store, "--set", "authenticationEnabled=true", *SERVERS["serve"])
    assert (outcome.code, outcome.out) == (3, b"")
    (line,) = outcome.err.splitlines()
    assert line.startswith(f"gantrymq: {store / 'config' / name}: does not contain ")
    assert "line 1 column " in line
    assert tree(store) == before
    reasons = gantrymq("store", "preflight", store, "--set", "authenticationEnabled=true", "--json")
    assert (reasons.code, reasons.lines[0]["path"]) == (1, f"config/{name}")


def test_reading_command_accepts_every_broker_conf(gantrymq: Run, tmp_path: Path, store: Path) -> None:
    file = conf(tmp_path / "broker.conf", {"authenticationEnabled": "true", "storeType": "defaultRocksDB"})
    before = tree(store)
    for command in (("info",), ("verify",), ("dump",), ("recover", "--dry-run")):
        assert gantrymq("store", *command[:1], store, *command[1:], "-c", file).code == 0
    assert tree(store) == before
    assert gantrymq("store", "rebuild", store, "-c", file, "--set", "storeType=default").code == 0
