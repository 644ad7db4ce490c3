"""`gantrymq produce` and `gantrymq consume` at the real broker."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gantrymq.client.pull.pull_client import PullClient
from gantrymq.model.message_queue import MessageQueue

from .java import Setting
from .java_cluster import JavaCluster, await_ends, max_offset

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def filtering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    """A broker with SQL92 filters and timers."""
    settings: dict[str, Setting] = {"enablePropertyFilter": True, "timerWheelEnable": True}
    with JavaCluster(tmp_path_factory.mktemp("filtering") / "store", settings) as running:
        yield running


def run(cluster: JavaCluster, *arguments: object, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "gantrymq", *map(str, arguments), "-n", cluster.namesrv]
    return subprocess.run(command, input=given, capture_output=True, timeout=120, check=False)


def produce(cluster: JavaCluster, topic: str, given: bytes, *options: object) -> list[dict[str, Any]]:
    """The results of a produce that acknowledged all, once its messages can be read."""
    done = run(cluster, "produce", topic, "--results", "-X", "sendMsgTimeout=20000", *options, given=given)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(result["status"] == "SEND_OK" for result in results)
    queues = [(MessageQueue(topic, one["brokerName"], one["queueId"]), one["queueOffset"] + 1) for one in results]
    await_ends(cluster.namesrv, queues)
    return results


def rows(done: subprocess.CompletedProcess[bytes]) -> list[bytes]:
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.splitlines()


def test_batches_are_consumed_whole_at_reported_offsets(filtering: JavaCluster) -> None:
    results = produce(filtering, "KcatBatches", b"".join(b"%d\n" % number for number in range(3000)))
    lines = [json.loads(line) for line in rows(run(filtering, "consume", "KcatBatches", "-e", "--json"))]
    assert sorted(int(line["body"]) for line in lines) == list(range(3000))
    stored = {line["properties"]["UNIQ_KEY"]: line for line in lines}
    for result in results:
        line = stored[result["msgId"]]
        assert (int(line["body"]), line["queueId"], line["queueOffset"], line["offsetMsgId"]) == (
            *(result["line"] - 1, result["queueId"], result["queueOffset"], result["offsetMsgId"]),
        )


def test_consume_filters_by_tag_position_and_group(filtering: JavaCluster) -> None:
    lines = [
        {"body": f"{number}", "tags": "abc"[number % 3], "keys": [f"k{number}"], "properties": {"n": str(number)}}
        for number in range(60)
    ]
    given = b"\n".join(json.dumps(one).encode() for one in lines)
    produce(filtering, "KcatChosen", given, "--json", "--in-order", "--batch", 1)

    def numbers(*options: object) -> list[int]:
        return sorted(int(row) for row in rows(run(filtering, "consume", "KcatChosen", "-e", *options)))

    assert numbers() == list(range(60))
    assert numbers("--tag", "c") == list(range(2, 60, 3))
    assert numbers("--sql", "n > 55 AND TAGS <> 'a'") == [56, 58, 59]
    assert len(numbers("-o", "-2")) == 8
    assert numbers("-o", "end") == numbers("-o", "@2100-01-01") == numbers("-o", "e@0") == []
    assert numbers("-G", "kcat-group") == list(range(60))
    assert numbers("-G", "kcat-group") == []
    assert numbers("-G", "kcat-filtered", "--sql", "n < 5") == [0, 1, 2, 3, 4]


def test_compressed_and_delayed_messages_are_consumed(filtering: JavaCluster) -> None:
    body = b"long " * 4000
    for codec in ("zlib", "lz4", "zstd"):
        produce(filtering, "KcatPacked", body + codec.encode(), "-z", codec)
    printed = rows(run(filtering, "consume", "KcatPacked", "-e"))
    assert sorted(printed) == sorted(body + codec for codec in (b"zlib", b"lz4", b"zstd"))
    done = run(filtering, "produce", "KcatDelayed", "--delay", "2s", "-E", given=b"later")
    assert done.returncode == 0
    queue_ends, deadline = [0], time.monotonic() + 60
    with PullClient(filtering.namesrv) as client:
        while not sum(queue_ends):
            assert time.monotonic() < deadline
            time.sleep(0.1)
            queue_ends = [
                max(max_offset(client, MessageQueue("KcatDelayed", "broker-a", number)), 0) for number in range(4)
            ]
    assert rows(run(filtering, "consume", "KcatDelayed", "-e")) == [b"later"]
