"""``store preflight``: whether a store and a configuration can move here, and back."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_cases import Run, tree

from gantrymq import Message, MessageStore
from gantrymq.cli.preflight import preflight as command
from gantrymq.config.broker_settings import BrokerConfig
from gantrymq.config.keys import fields_by_key
from gantrymq.config.properties import read_settings
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.tools.preflight import OWN_KEYS, Direction, preflight
from golden_stores import unpack
from java_users import written_by_java

CONF = "brokerName=a\nbrokerIP1=192.0.2.1\nnamesrvAddr=192.0.2.2:9876\nfileReservedTime=1000000\n"
RULES = Path(__file__).parents[1] / "compatibility"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpack("broker-features", tmp_path) / "store"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(CONF)
    return path


def names(lines: list[dict[str, Any]], level: str = "refused") -> list[str]:
    reasons = [line for line in lines if line["kind"] == "reason" and line["level"] == level and not line["accepted"]]
    return [line.get("key") or line.get("path") or line["topic"] for line in reasons]


def test_golden_store_moves_in_both_directions_and_is_not_changed(gantrymq: Run, store: Path, conf: Path) -> None:
    before = tree(store)
    for direction in ((), ("--back",)):
        outcome = gantrymq("store", "preflight", *direction, "-c", conf, store, "--json")
        (summary,) = outcome.lines[-1:]
        assert (outcome.code, names(outcome.lines)) == (0, [])
        assert (summary["moves"], summary["refused"], summary["direction"]) == (
            True,
            0,
            "back" if direction else "here",
        )
        assert summary["broker"]["address"] == "192.0.2.1:10911"
        assert set(summary["pending"]) == {"delay", "timer", "half", "pop"}
        assert summary["disk"]["logFiles"] >= 1
    assert tree(store) == before


def test_refused_key_and_topic_are_listed_and_accepted_by_name(gantrymq: Run, store: Path, conf: Path) -> None:
    conf.write_text(f"{CONF}enableControllerMode=true\n")
    table = store / "config/topics.json"
    topics = json.loads(table.read_text())
    topic = sorted(topics["topicConfigTable"])[0]
    topics["topicConfigTable"][topic]["attributes"] = {"cleanup.policy": "COMPACTION"}
    table.write_text(json.dumps(topics))
    arguments = ("store", "preflight", "-c", conf, store, "--json")
    outcome = gantrymq(*arguments)
    assert (outcome.code, names(outcome.lines)) == (1, ["enableControllerMode", topic])
    assert all(line["text"] and line["remedy"] for line in outcome.lines[:-1])
    assert (outcome.lines[-1]["moves"], outcome.lines[-1]["refused"]) == (False, 2)
    accepted = gantrymq(*arguments, "--set", "acceptWithoutEffect=enableControllerMode,cleanup.policy")
    assert (accepted.code, names(accepted.lines), accepted.lines[-1]["accepted"]) == (0, [], 2)
    shown = gantrymq(*arguments[:-1])
    assert f"refused  topic {topic} has cleanup.policy=COMPACTION" in shown.text
    assert "cannot move to gantrymq (2 refused" in shown.text


def test_preflight_of_directory_without_store_exits_3(gantrymq: Run, tmp_path: Path) -> None:
    outcome = gantrymq("store", "preflight", tmp_path / "none")
    assert (outcome.code, outcome.out) == (3, b"")


def test_default_address_and_name_are_warnings(gantrymq: Run, store: Path) -> None:
    outcome = gantrymq("store", "preflight", store, "--json")
    assert outcome.code == 0
    assert {"brokerIP1", "brokerName"} <= {*names(outcome.lines, "warning")}


def test_store_open_in_writer_causes_warning(gantrymq: Run, store: Path, conf: Path) -> None:
    (store / "abort").touch()
    closed = gantrymq("store", "preflight", "-c", conf, store, "--json")
    assert (closed.code, closed.lines[-1]["abort"]) == (0, True)
    assert "abort" in names(closed.lines, "warning")
    with MessageStore.open(store, housekeeping=False):
        outcome = gantrymq("store", "preflight", "-c", conf, store, "--json")
    assert (outcome.code, outcome.lines[-1]["lockedBy"]) == (0, os.getpid())
    assert "lock" in names(outcome.lines, "warning")


def test_missing_log_is_refused(gantrymq: Run, store: Path, conf: Path) -> None:
    for file in (store / "commitlog").iterdir():
        file.rename(store.parent / file.name)
    outcome = gantrymq("store", "preflight", "-c", conf, store, "--json")
    assert (outcome.code, names(outcome.lines)) == (1, ["commitlog"])


def test_full_disk_is_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gantrymq.fs.real import RealFileSystem

    for used, moves in ((0.5, True), (0.8, True), (0.86, False), (0.95, False)):
        monkeypatch.setattr(RealFileSystem, "used_ratio", lambda self, path, used=used: used)
        found = preflight(store, read_settings({"fileReservedTime": "1000000"}))
        assert found.moves == moves
        assert ("commitlog" in [reason.name for reason in found.reasons]) == (used > 0.75)


def test_files_without_write_permission_are_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode, **_: Path(path).name != "checkpoint")
    found = preflight(store, read_settings({}))
    assert [reason.name for reason in found.reasons if reason.level.value == "refused"] == ["checkpoint"]
    assert not found.moves


def test_expired_files_without_key_cause_warning(store: Path) -> None:
    log = min((store / "commitlog").iterdir())
    following = log.with_name(f"{int(log.name) + log.stat().st_size:020}")
    if not following.exists():
        following.write_bytes(bytes(log.stat().st_size))
    for path in log.parent.iterdir():
        os.utime(path)
    os.utime(log, (0, 0))
    found = preflight(store, read_settings({}))
    assert found.expired_files == 1 < found.log_files
    assert "fileReservedTime" in [reason.name for reason in found.reasons]


def test_way_back_names_what_rocketmq_does_not_understand(gantrymq: Run, store: Path, conf: Path) -> None:
    conf.write_text(f"{CONF}aclEnable=true\nmaxTopics=7\nacceptWithoutEffect=aclEnable\n")
    (store / "commitlog/00000000000000000000.bak").write_bytes(b"x")
    (store / "rebuild.tmp").mkdir()
    (store / "config/deletedTopics.json").write_text('{"deletedTopics":{}}')
    outcome = gantrymq("store", "preflight", "--back", "-c", conf, store, "--json")
    assert outcome.code == 1
    assert sorted(names(outcome.lines)) == ["aclEnable", "commitlog/00000000000000000000.bak", "rebuild.tmp"]
    assert {"maxTopics", "acceptWithoutEffect", "config/deletedTopics.json"} <= {*names(outcome.lines, "warning")}
    assert preflight(store, read_settings({}), Direction.BACK).written_by == "gantrymq"


def test_keys_unknown_to_rocketmq_are_reported_as_own() -> None:
    java = json.loads((RULES / "rocketmq-5.5.0.json").read_text())
    known = {name for part in ("keys", "withoutSetter") for table in java[part].values() for name in table}
    ours = {*fields_by_key(BrokerConfig), *fields_by_key(MessageStoreConfig)}
    assert ours - known - {"grpcServerPort"} == OWN_KEYS


def settings_that_stop_a_start(tmp_path: Path) -> dict[str, str]:
    return {
        "brokerIP1": "no-such-host.invalid",
        "aclPlainFile": f"{tmp_path}/none.yml\naclEnable=true",
        "tls.server.certPath": f"{tmp_path}/none.pem",
        "flushDiskType": "SOMETIMES",
        "messageDelayLevel": "1s 2x",
        "mappedFileSizeCommitLog": "4096",
    }


@pytest.mark.parametrize("key", settings_that_stop_a_start(Path()))
def test_setting_with_which_no_broker_starts_is_refused(
    gantrymq: Run, store: Path, conf: Path, tmp_path: Path, key: str
) -> None:
    conf.write_text(f"{CONF}{key}={settings_that_stop_a_start(tmp_path)[key]}\nacceptWithoutEffect={key}\n")
    before = tree(store)
    outcome = gantrymq("store", "preflight", "-c", conf, store, "--json")
    assert (outcome.code, names(outcome.lines), outcome.lines[-1]["accepted"]) == (1, [key], 0)
    assert tree(store) == before
    started = gantrymq("broker", "-c", conf, "--store", store, "--listen-port", "0")
    assert started.code == 2
    assert key in started.err


def test_every_setting_with_which_no_broker_starts_is_listed(
    gantrymq: Run, store: Path, conf: Path, tmp_path: Path
) -> None:
    wrong = settings_that_stop_a_start(tmp_path)
    conf.write_text(CONF + "".join(f"{key}={value}\n" for key, value in wrong.items()))
    outcome = gantrymq("store", "preflight", "-c", conf, store, "--json")
    assert (outcome.code, sorted(names(outcome.lines))) == (1, sorted(wrong))
    assert all(line["remedy"] for line in outcome.lines[:-1])


def test_preflight_uses_environment_and_saved_settings_like_start(
    gantrymq: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTRYMQ_SET_enableLmq", "true")
    (store / "config/broker.properties").write_text("enableControllerMode=true\n")
    outcome = gantrymq("store", "preflight", store, "--json")
    assert (outcome.code, names(outcome.lines)) == (1, ["enableControllerMode", "enableLmq"])


def test_misspelled_key_causes_warning(gantrymq: Run, store: Path, conf: Path) -> None:
    conf.write_text(f"{CONF}flushDiskTyp=SYNC_FLUSH\n")
    outcome = gantrymq("store", "preflight", "-c", conf, store, "--json")
    assert (outcome.code, names(outcome.lines, "warning")) == (0, ["flushDiskTyp"])
    assert "nearest: flushDiskType" in outcome.lines[0]["text"]


@pytest.mark.parametrize("table", ["topics.json", "consumerOffset.json", "subscriptionGroup.json"])
def test_damaged_table_with_which_no_broker_starts_is_refused(
    gantrymq: Run, store: Path, conf: Path, table: str
) -> None:
    file = store / "config" / table
    file.write_text('{"offsetTable":')
    outcome = gantrymq("store", "preflight", "-c", conf, store, "--json")
    assert (outcome.code, names(outcome.lines)) == (1, [f"config/{table}"])
    assert "move it away" in outcome.lines[0]["remedy"]
    started = gantrymq("broker", "-c", conf, "--store", store, "--listen-port", "0")
    assert started.code == 3
    assert table in started.err
    file.unlink()
    assert gantrymq("store", "preflight", "-c", conf, store).code == 0


def test_lost_topic_table_causes_warning(gantrymq: Run, store: Path, conf: Path) -> None:
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).unlink(missing_ok=True)
    outcome = gantrymq("store", "preflight", "-c", conf, store, "--json")
    assert (outcome.code, names(outcome.lines, "warning")) == (0, ["config"])
    assert "copy the file back" in outcome.lines[0]["remedy"]


def test_wrong_accounts_file_is_refused_by_its_path(gantrymq: Run, store: Path, conf: Path) -> None:
    conf.write_text(f"{CONF}aclEnable=true\n")
    (store / "config/plain_acl.yml").write_text("accounts: [")
    outcome = gantrymq("store", "preflight", "-c", conf, store, "--json")
    assert (outcome.code, names(outcome.lines)) == (1, ["config/plain_acl.yml"])
    assert outcome.lines[0]["remedy"] == "correct the accounts, or set aclEnable=false to take every client"


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_users_of_java_that_can_be_taken_are_counted(gantrymq: Run, store: Path, conf: Path, how: str) -> None:
    pytest.importorskip("rocksdict")
    java = written_by_java(store.parent / "java", how)
    shutil.copytree(java / "config", store / "config", dirs_exist_ok=True)
    outcome = gantrymq("store", "preflight", "-c", conf, store, "--json")
    assert (outcome.code, names(outcome.lines)) == (1, ["config/users", "config/acls"])
    assert "gantrymq admin acl import" in outcome.lines[0]["remedy"]
    texts = [
        line["text"] for line in outcome.lines if line.get("path") == "config/users" and line["level"] == "warning"
    ]
    assert texts[0] == "20 users and 29 policy entries of config/users can be taken"
    assert [text.partition(":")[0] for text in texts[1:]] == ["config/users, b*d", "config/users, ns"]
    assert "pw" not in outcome.text
    assert gantrymq("admin", "acl", "import", "--from-store", store, "--to-store", store).code == 1
    for name in ("users", "acls"):
        shutil.rmtree(store / "config" / name)
    assert gantrymq("store", "preflight", "-c", conf, store).code == 0
    back = gantrymq("store", "preflight", "--back", "-c", conf, store, "--json")
    assert names(back.lines, "warning") == ["config/users.json"]


def test_accounts_that_can_become_users_are_counted(gantrymq: Run, store: Path, conf: Path) -> None:
    conf.write_text(f"{CONF}authenticationEnabled=true\n")
    accounts = (
        "accounts:\n- {accessKey: account, secretKey: secret-1, topicPerms: [T=PUB], whiteRemoteAddress: 10.0.0.1}\n"
    )
    (store / "config/plain_acl.yml").write_text(accounts)
    outcome = gantrymq("store", "preflight", "-c", conf, store, "--json")
    found = [line for line in outcome.lines if line.get("path") == "config/plain_acl.yml"]
    assert [line["text"].partition(" is")[0] for line in found] == [
        "1 user and 1 policy entry of config/plain_acl.yml can be taken",
        "config/plain_acl.yml, account: whiteRemoteAddress (10.0.0.1)",
    ]
    assert f"--to-store {store}" in found[0]["remedy"]


def test_broken_link_with_which_no_broker_starts_is_refused(gantrymq: Run, store: Path, conf: Path) -> None:
    shutil.rmtree(store / "index")
    for name in ("index", "unrelated"):
        (store / name).symlink_to("/no/such/disk")
    outcome = gantrymq("store", "preflight", "-c", conf, store, "--json")
    assert (outcome.code, names(outcome.lines)) == (1, ["index"])
    assert "mount its disk" in outcome.lines[0]["remedy"]
    started = gantrymq("broker", "-c", conf, "--store", store, "--listen-port", "0")
    assert (started.code, "broken link" in started.err) == (3, True)


def test_file_in_place_of_directory_causes_warning(gantrymq: Run, store: Path, conf: Path) -> None:
    shutil.rmtree(store / "index")
    (store / "index").write_bytes(b"")
    outcome = gantrymq("store", "preflight", "-c", conf, store, "--json")
    (line,) = (line for line in outcome.lines if line.get("path") == "index")
    assert (line["level"], line["remedy"]) == ("warning", "move it away")


def test_file_names_refused_by_start_are_refused(gantrymq: Run, store: Path, conf: Path) -> None:
    for file in (store / "commitlog").iterdir():
        file.rename(store.parent / file.name)
    outcome = gantrymq("store", "preflight", "-c", conf, store, "--set", "acceptWithoutEffect=commitlog", "--json")
    assert (outcome.code, names(outcome.lines), outcome.lines[-1]["accepted"]) == (1, ["commitlog"], 0)


@pytest.fixture
def other_user() -> Iterator[Callable[[], None]]:
    """A function that gives this process another effective user until the test ends."""
    user = os.geteuid()
    if user != 0:
        pytest.skip("only root can become another user")
    yield lambda: os.seteuid(65534)
    os.seteuid(user)


@pytest.mark.parametrize("denied", [".", "commitlog", "config", "checkpoint"])
def test_store_without_read_permission_is_refused(
    store: Path, other_user: Callable[[], None], denied: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        copy = Path(shutil.copytree(store, Path(folder, "store")))
        copy.joinpath(denied).chmod(0o700 if copy.joinpath(denied).is_dir() else 0o600)
        other_user()
        with pytest.raises(typer.Exit) as ended:
            command(copy, json=True)
        os.seteuid(0)
    *reasons, summary = map(json.loads, capsysbinary.readouterr().out.splitlines())
    assert (ended.value.exit_code, summary["moves"], summary["pending"]) == (1, False, None)
    (refused,) = (line for line in reasons if line["level"] == "refused")
    assert refused["path"] == (denied if denied != "." else str(copy))
    assert "run as the user that owns the files" in refused["remedy"]


def test_way_back_names_saved_settings_and_what_only_rocketmq_5_reads(gantrymq: Run, tmp_path: Path) -> None:
    path, long = tmp_path / "own", "L" * 130
    with MessageStore.open(path, housekeeping=False) as store:
        store.put(Message(long, b"1"))
    (path / "config").mkdir(exist_ok=True)
    (path / "config/broker.properties").write_text("fileReservedTime=720\n")
    outcome = gantrymq("store", "preflight", "--back", path, "--json")
    assert outcome.code == 0
    saved, topic = (line for line in outcome.lines[:-1])
    assert saved["path"] == "config/broker.properties"
    assert "fileReservedTime" in saved["text"]
    assert topic["topic"] == long
    assert "RocketMQ 4" in topic["text"]
