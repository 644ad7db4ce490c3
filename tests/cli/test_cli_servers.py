"""``serve``, ``broker`` and ``namesrv`` as processes: announced, used, stopped by a signal, and started again."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_cases import Run, start

from gantrymq import AdminClient, Message, Producer, StoreReader
from gantrymq.cli.server_options import read_server_options
from gantrymq.client.connection.blocking_client import BlockingClient
from gantrymq.client.requests.calls import cluster_info
from gantrymq.client.settings import ClientConfig
from gantrymq.config.broker_settings import BrokerConfig
from gantrymq.config.keys import fields_by_key
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import RemotingError
from gantrymq.namesrv.settings import NamesrvConfig
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.client import RemotingClient
from gantrymq.spark.option_texts import addresses

SMALL = ("--set", "mappedFileSizeCommitLog=16777216", "--set", "maxHashSlotNum=1000", "--set", "maxIndexNum=4000")
FREE = ("--listen-port", 0)


@contextmanager
def serving(*arguments: object, **options: Any) -> Iterator[tuple[dict[str, Any], subprocess.Popen[bytes]]]:
    """A server that has said that it is ready; killed at the end where it still runs."""
    with start(*arguments, "--json", **options) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        try:
            assert line, child.communicate(timeout=60)[1].decode()
            yield json.loads(line), child
        finally:
            child.kill()


def stop(child: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> tuple[int, str]:
    """Signal it, and its exit code and stderr."""
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    assert out == b""
    return child.returncode, err.decode()


def brokers(namesrv: str) -> list[str]:
    with BlockingClient(ClientConfig(namesrv)) as client:
        return sorted(client.ask_name_server(cluster_info()).broker_addr_table)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_is_ready_when_its_route_answers_and_ends_cleanly(tmp_path: Path, number: int) -> None:
    store = tmp_path / "store"
    with serving("serve", "--store", store, "--namesrv-port", 0, *FREE, *SMALL) as (ready, child):
        assert list(ready) == ["ready", "namesrv", "broker", "store"]
        assert (ready["ready"], ready["store"]) == (True, str(store))
        assert brokers(ready["namesrv"]) == ["broker-a"]
        with Producer(ready["namesrv"]) as producer:
            assert producer.send(Message("T", b"hello")).status.name == "SEND_OK"
        assert (store / "abort").exists()
        assert stop(child, number) == (0, "")
    assert not (store / "abort").exists()
    with StoreReader.open(store) as reader:
        assert sum(len(reader.get("T", queue, 0).messages) for queue in range(8)) == 1


def test_serve_after_kill_recovers_and_serves(tmp_path: Path) -> None:
    arguments = ("serve", "--store", tmp_path / "store", "--namesrv-port", 0, *FREE, *SMALL)
    for life in range(2):
        with serving(*arguments) as (ready, child), Producer(ready["namesrv"]) as producer:
            for number in range(20):
                producer.send(Message("T", f"{life} {number}".encode()))
            child.kill()
            child.wait()
    with StoreReader.open(tmp_path / "store") as reader:
        bodies = [one.body for queue in range(8) for one in reader.get("T", queue, 0, max_msgs=64).messages]
    assert sorted(bodies) == sorted(f"{life} {number}".encode() for life in range(2) for number in range(20))


def test_namesrv_and_broker_find_each_other(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    with serving("namesrv", *FREE, env=home) as (name_server, first):
        assert list(name_server) == ["ready", "namesrv"]
        broker = ("broker", "-n", name_server["namesrv"], "--store", tmp_path / "b", *FREE, "--set", "brokerName=b1")
        with serving(*broker, *SMALL) as (ready, second):
            assert ready["namesrv"] == name_server["namesrv"]
            assert brokers(name_server["namesrv"]) == ["b1"]
            assert stop(second) == (0, "")
        assert brokers(name_server["namesrv"]) == []
        assert stop(first) == (0, "")
    assert not (tmp_path / "namesrv").exists()  # there was nothing to keep


def test_setting_changed_at_runtime_is_written_to_file_of_option_c(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text("# ours\nlistenPort = 0\nenableTopicList=true\nserverWorkerThreads=2\n")

    async def update(address: str) -> int:
        client = RemotingClient()
        changed = b"enableTopicList=false\nneedWaitForService=true\nnoSuchKey=1\n"
        request = RemotingCommand.request(RequestCode.UPDATE_NAMESRV_CONFIG, changed)
        answer = await client.invoke(address, request, 10_000)
        await client.close()
        return answer.code

    with serving("namesrv", "-c", conf) as (ready, child):
        assert asyncio.run(update(ready["namesrv"])) == 0
        assert stop(child)[0] == 0
    kept = "# ours\nlistenPort = 0\nenableTopicList=false\nserverWorkerThreads=2\n"
    assert conf.read_text() == kept + "needWaitForService=true\n"


def test_broker_conf_keeps_comments_and_gets_changes(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("# ours\ndefaultTopicQueueNums = 4\nbrokerName=b2\n")
    arguments = ("serve", "-c", conf, "--store", tmp_path / "store", "--namesrv-port", 0, *FREE, *SMALL)
    with serving(*arguments) as (ready, child), AdminClient(ready["namesrv"]) as admin:
        admin.update_broker_config({"defaultTopicQueueNums": "5", "fileReservedTime": "48", "noSuchKey": "1"})
        assert stop(child)[0] == 0
    assert conf.read_text() == "# ours\ndefaultTopicQueueNums=5\nbrokerName=b2\nfileReservedTime=48\n"


def test_store_path_of_broker_conf_is_used(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"storePathRootDir={tmp_path}/here\nlistenPort=0\nbrokerName=from-conf\nnamesrvAddr=10.0.0.1:9876\n"
        "sendThreadPoolNums=4\nmappedFileSizeCommitLog=16777216\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n"
        "haListenPort=0\nproductEnvName=test\nserverWorkerThreads=4\n"
    )
    with serving("serve", "-c", conf, "--namesrv-port", 0) as (ready, child):
        assert ready["store"] == f"{tmp_path}/here"
        assert brokers(ready["namesrv"]) == ["from-conf"]
        code, err = stop(child)
    assert code == 0
    assert "namesrvAddr=10.0.0.1:9876 has no effect without --no-namesrv" in err
    assert re.search("sendThreadPoolNums is not a key of RocketMQ; nearest: .*sendMessageThreadPoolNums", err)
    lines = [line.partition("] ")[2].strip() for line in err.splitlines() if "no effect here" in line]
    assert lines == ["productEnvName has no effect here: routes of another environment are not looked up here"]


def test_servers_with_enforced_tls_connect_to_each_other(tmp_path: Path) -> None:
    keys = Path(__file__).parents[1] / "remoting" / "tls"
    said = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": keys / "server.pem",
        "tls.server.keyPath": keys / "server.key",
        "tls.enable": "true",
    }
    tls = [word for key, value in said.items() for word in ("--set", f"{key}={value}")]
    with serving("serve", "--store", tmp_path / "s", "--namesrv-port", 0, *FREE, *SMALL, *tls) as (ready, child):
        with BlockingClient(ClientConfig(ready["namesrv"], tls={"tls.enable": "true"})) as client:
            assert list(client.ask_name_server(cluster_info()).broker_addr_table) == ["broker-a"]
        with pytest.raises(RemotingError):
            brokers(ready["namesrv"])
        assert stop(child)[0] == 0


def test_failed_start_prints_one_line(process: Run, tmp_path: Path) -> None:
    with serving("serve", "--store", tmp_path / "s", "--namesrv-port", 0, *FREE, *SMALL) as (ready, child):
        port = ready["broker"].rpartition(":")[2]
        locked = process("serve", "--store", tmp_path / "s", "--namesrv-port", 0, *FREE)
        assert (locked.code, locked.out) == (3, b"")
        assert f"is open in another process, id {child.pid}; stop it first" in locked.err
        taken = process("serve", "--store", tmp_path / "t", "--namesrv-port", 0, "--listen-port", port)
        assert (taken.code, taken.out) == (3, b"")
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in taken.err
        of_ha = ("--set", f"haListenPort={port}")
        ha_taken = process("serve", "--store", tmp_path / "t", "--namesrv-port", 0, *FREE, *of_ha)
        assert (ha_taken.code, ha_taken.out) == (3, b"")
        assert f"127.0.0.1:{port}: Address already in use: set haListenPort, or haEnable=false" in ha_taken.err
        assert not (tmp_path / "t").exists()
        also = process("namesrv", "--listen-port", port)
        assert (also.code, also.err) == (3, f"gantrymq: cannot listen on 127.0.0.1:{port}: Address already in use\n")
    for outcome in (locked, taken, ha_taken):
        assert len(outcome.err.splitlines()) == 1
        assert outcome.err.startswith("gantrymq: ")


def test_set_accepts_every_key_with_effect(capsys: pytest.CaptureFixture[str]) -> None:
    keys = [one for config in (BrokerConfig, MessageStoreConfig, NamesrvConfig) for one in fields_by_key(config)]
    assert list(read_server_options(None, [f"{key}=x" for key in keys]).entries) == list(dict.fromkeys(keys))
    assert capsys.readouterr().err == ""


def test_unknown_key_is_usage_error(gantrymq: Run, tmp_path: Path) -> None:
    for command in ("serve", "broker", "namesrv"):
        outcome = gantrymq(command, "--set", "listenPrt=1")
        assert outcome.code == 2
        assert "listenPrt" in outcome.err
    assert gantrymq("serve", "--set", "orderMessageEnable=perhaps").code == 2
    assert gantrymq("serve", "--listen-port", "70000").code == 2


@pytest.mark.parametrize("bad", ["bad", "ns1:9876;bad", "ns1:99999", ":9876", "ftp://ns1:9876", "http://ns1"])
def test_malformed_address_is_usage_error(gantrymq: Run, tmp_path: Path, bad: str) -> None:
    """As in RocketMQ, whose broker does not start either."""
    store = ("--store", tmp_path / "store", "--listen-port", 0)
    for line in (("broker", "-n", bad), ("serve", "--no-namesrv", "--set", f"namesrvAddr={bad}")):
        outcome = gantrymq(*line, *store)
        said = f"gantrymq: namesrvAddr={bad!r} is not allowed: host:port, several joined by semicolons\n"
        assert (outcome.code, outcome.out, outcome.err) == (2, b"", said)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "right", ["", ";", "127.0.0.1:9876", " ns1:9876; ns2.example:9876 ;", "[::1]:9876", "[fe80::1%eth0]:9876"]
)
def test_name_server_addresses_are_split_at_semicolons(right: str) -> None:
    assert BrokerConfig(namesrv_addr=right).name_servers == [one.strip() for one in right.split(";") if one.strip()]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("http://ns1:9876", ["ns1:9876"]),
        ("http://ns1:9876/", ["ns1:9876"]),
        ("HTTPS://[::1]:9876 ", ["[::1]:9876"]),
        ("http://ns1:9876;ns2:9876", ["ns1:9876", "ns2:9876"]),
        ("ns1:9876, http://ns2:9876,", ["ns1:9876", "ns2:9876"]),
    ],
)
def test_endpoint_url_means_same_name_server_to_broker_client_and_spark(written: str, meant: list[str]) -> None:
    assert BrokerConfig(namesrv_addr=written).name_servers == meant
    assert ClientConfig(written).name_server_list == meant
    assert addresses("nameserver", written) == ";".join(meant)


def test_runtime_changes_of_broker_survive_restart_without_file(tmp_path: Path) -> None:
    """It is kept in the store, as with RocketMQ, which does not read it again."""
    live = read_server_options(None, None).broker(0, tmp_path)
    changed = {"fileReservedTime": "9", "defaultTopicQueueNums": "3"}
    live.update(changed, running=True)
    live.keep(changed)
    kept = tmp_path / "config" / "broker.properties"
    kept.write_text(
        kept.read_text() + "brokerName=other\naclEnable=true\nnobody=1\n"
    )  # of which only a start reads two
    again = read_server_options(None, ["defaultTopicQueueNums=5"]).broker(0, tmp_path)
    assert (again.store.file_reserved_time_hours, again.broker.default_topic_queue_nums) == (9, 5)
    assert (again.broker.broker_name, again.broker.acl_enable) == ("broker-a", False)
    file = tmp_path / "broker.conf"
    file.write_text("fileReservedTime=7\n")
    assert read_server_options(file, None).broker(0, tmp_path).store.file_reserved_time_hours == 7


def test_runtime_changes_of_name_server_survive_restart(tmp_path: Path) -> None:
    kept = tmp_path / "namesrv.properties"
    kept.write_text("enableTopicList=false\nlistenPort=1\nwaitSecondsForService=7\n")
    config = read_server_options(None, ["waitSecondsForService=5"]).namesrv(None, tmp_path, own_port=True)
    assert (config.enable_topic_list, config.wait_seconds_for_service, config.listen_port) == (False, 5, 9876)
    file = tmp_path / "namesrv.conf"  # in which changes are kept
    file.write_text("waitSecondsForService=6\n")
    config = read_server_options(file, None).namesrv(None, tmp_path, own_port=True)
    assert (config.enable_topic_list, config.wait_seconds_for_service) == (True, 6)
