"""A mirror of a real master: the whole log byte for byte, through kills, and never a vote."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gantrymq import AdminClient, Message, Producer
from gantrymq.client.requests.send_result import SendResult, SendStatus

from .java_cluster import JavaCluster

FILE_BYTES = 1 << 20


@contextmanager
def mirror(cluster: JavaCluster, store: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """``gantrymq mirror`` as a process, which is killed at the end if it still runs."""
    words = ["mirror", "-n", cluster.namesrv, "--broker", "broker-a", "--store", str(store), "--json", *options]
    process = subprocess.Popen([sys.executable, "-m", "gantrymq", *words], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def until(process: subprocess.Popen[str], end_offset: int) -> dict[str, Any]:
    """Return the first line that says that the mirror is in sync at ``end_offset`` or behind it."""
    assert process.stdout is not None
    for line in process.stdout:
        told: dict[str, Any] = json.loads(line)
        if told["state"] == "in sync" and told["maxOffset"] >= end_offset:
            return told
    raise AssertionError(f"the mirror ended with {process.wait()}")


def log_end(cluster: JavaCluster) -> int:
    with AdminClient(cluster.namesrv) as admin:
        return int(admin.broker_runtime_info(cluster.broker)["commitLogMaxOffset"])


def some(count: int, topic: str = "T") -> list[dict[str, Any]]:
    return [{"topic": topic, "body": "x" * 3000, "keys": f"key-{number}"} for number in range(count)]


def tool(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gantrymq", *words], capture_output=True, text=True, check=False, timeout=120
    )


def same_log(master: Path, copy: Path, end_offset: int) -> bool:
    """Whether both logs have the same bytes from 0 to ``end_offset``."""
    whole = [
        b"".join(file.read_bytes() for file in sorted((store / "commitlog").iterdir())) for store in (master, copy)
    ]
    return len(whole[1]) >= end_offset and whole[0][:end_offset] == whole[1][:end_offset]


def test_mirror_of_a_real_master_has_its_whole_log_and_survives_kills(tmp_path: Path) -> None:
    master, copy = tmp_path / "master", tmp_path / "copy"
    with JavaCluster(master, {"mappedFileSizeCommitLog": FILE_BYTES}) as cluster:
        cluster.send(some(1000))
        with mirror(cluster, copy) as process:
            told = until(process, log_end(cluster))
            assert (told["history"], told["minOffset"], told["lag"]["bytes"]) == ("whole", 0, 0)
            cluster.send(some(100, "Later"))
            process.kill()
        with mirror(cluster, copy) as process:
            end = log_end(cluster)
            until(process, end)
            found = tool("store", "query", str(copy), "Later", "key-99", "--json")
            assert json.loads(found.stdout.splitlines()[0])["topic"] == "Later"
            assert tool("store", "verify", str(copy)).returncode == 0
            process.send_signal(signal.SIGTERM)
            assert process.stdout is not None
            assert json.loads(list(process.stdout)[-1])["kind"] == "summary"
            assert process.wait() == 0
        assert same_log(master, copy, end)
        assert end > 3 * FILE_BYTES
    assert tool("store", "verify", str(copy)).returncode == 0
    topics = json.loads((copy / "config" / "topics.json").read_text())
    assert {"T", "Later"} <= topics["topicConfigTable"].keys()


def send(producer: Producer, count: int) -> list[SendStatus]:
    results: list[SendResult] = [producer.send(Message("T", b"%05d" % number)) for number in range(count)]
    return [result.status for result in results]


@pytest.mark.slow
def test_mirror_is_no_vote_for_a_master_that_waits_for_a_slave(tmp_path: Path) -> None:
    waits = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "totalReplicas": 2, "slaveTimeout": 1500}
    timeout, copy = SendStatus.FLUSH_SLAVE_TIMEOUT, tmp_path / "copy"
    with JavaCluster(tmp_path / "master", waits) as cluster, Producer(cluster.namesrv) as producer:
        send(producer, 1)
        with mirror(cluster, copy) as process:
            until(process, log_end(cluster))
            assert send(producer, 3) == [timeout] * 3
            with AdminClient(cluster.namesrv) as admin:
                (shown,) = admin.ha_status(cluster.broker).ha_connection_info
            assert shown.slave_ack_offset == 0
            process.kill()
        for _ in range(2):  # started again while puts wait: the request for the end must not answer them
            with mirror(cluster, copy):
                assert send(producer, 3) == [timeout] * 3
        # A slave that acknowledges is a vote, so that the test can fail.
        with AdminClient(cluster.namesrv) as admin:
            host, _, port = admin.ha_address(cluster.broker).rpartition(":")
        with socket.create_connection((host, int(port))) as slave:
            slave.sendall((log_end(cluster) + (1 << 20)).to_bytes(8, "big"))
            assert send(producer, 1) == [SendStatus.SEND_OK]
