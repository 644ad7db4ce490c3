"""RocketMQ's mqadmin prints of our servers what it prints of the real ones: the lines of mqadmin_lines.txt in turn."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from gantrymq import ConsumeFromWhere, EmbeddedBroker, Message, Producer, PushConsumer

from .client_cases import SETTINGS
from .java import as_by_old_release, run_java
from .java_cluster import JavaCluster

LINES = Path(__file__).with_name("mqadmin_lines.txt").read_text().splitlines()
BEFORE = [
    "updateTopic -b BROKER -t orders -r 2 -w 2",
    "updateTopic -c DefaultCluster -t other -r 1 -w 1 -p 6",
    "updateSubGroup -b BROKER -g audits -r 3 -q 2",
    "updateSubGroup -c DefaultCluster -g late",
]
COUNTED = (
    "brokerStatus",
    "clusterList",
    "statsAll",
    "checkMsgSendRT",
    "wipeWritePerm",
    "addWritePerm",
    "consumerProgress",
)
TIMERS = ("rmq_sys_wheel_timer", "timer")  # on at the real broker, which deletes no topic otherwise
# In order: what stands first hides what follows.
HIDDEN = [
    (r"[ \t]+", " "),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(,\d{3})?", "DATE"),
    (r"\b[0-9A-F]{32,}\b", "ID"),
    (r"\b\d{13}\b", "MS"),
    (r"\d+\.\d+\.\d+\.\d+@\d+#\d+", "CLIENT"),
    (r"(/tmp|/home|/root)/[\w./-]*", "PATH"),
    (r"\d+\.\d+\.\d+\.\d+(:\d+)?", "HOST"),
    (r"\d+\.\d+", "N.N"),
    (r"rt=\d+ms", "rt"),
    (r"listenPort = \d+", "listenPort"),
]
NOISE = re.compile(r"\d\d:\d\d:\d\d\.\d{3} |\tat |\t\.\.\. \d+ more|.*(Distribut|Tps|Time(Max)? |Ratio_|runtime)")


def plain(command: str, printed: str) -> list[str]:
    """The lines, without what differs from run to run, sorted: tables come in the order of a hash."""
    lines = [line for line in as_by_old_release(printed).splitlines() if line.strip() and not NOISE.match(line)]
    for pattern, name in [*HIDDEN, *([(r"\d+", "N")] if command.split(maxsplit=1)[0] in COUNTED else [])]:
        lines = [re.sub(pattern, name, line) for line in lines]
    return sorted(line.strip() for line in lines if not any(word in line for word in TIMERS))


@contextmanager
def members(namesrv: str) -> Iterator[dict[str, str]]:
    """A producer that sent, and a consumer that has all of it and has said so; what to put into the lines."""
    came: list[bytes] = []
    config = {
        "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        "persist_consumer_offset_interval_ms": 200,
    }
    with Producer(namesrv, producer_group="shop") as producer:
        sent = [
            producer.send(
                Message("orders", b"body%d" % number, tags="TagA", keys=(f"key{number}",)),
                lambda queues, at=number: sorted(queues)[at % 2],
            )
            for number in range(4)
        ]
        with PushConsumer(namesrv, consumer_group="watchers", **config) as consumer:
            consumer.subscribe("orders")
            consumer.listen(lambda messages, context: came.extend(one.body for one in messages))
            consumer.start()
            yield {"FIRST": str(sent[0].offset_msg_id), "UNIQUE": str(sent[0].msg_id)}
    assert set(came) >= {b"body%d" % number for number in range(4)}


def mqadmin(namesrv: str, lines: list[str], folder: Path) -> list[str]:
    file = folder / "lines.txt"
    file.write_text("".join(line + "\n" for line in lines))
    found = run_java("mqadmin", None, str(file), namesrv=namesrv, timeout=600, cwd=folder)
    return [line["printed"] for line in found]


def play(namesrv: str, broker: str, folder: Path) -> list[list[str]]:
    """What each line prints, plainly."""
    folder.mkdir()
    topics = [{"topicName": f"listed{number}", "readQueueNums": number, "writeQueueNums": number} for number in (1, 2)]
    (folder / "topics.json").write_text(json.dumps(topics))
    (folder / "groups.json").write_text(json.dumps([{"groupName": "listed1"}, {"groupName": "listed2"}]))
    mqadmin(namesrv, [line.replace("BROKER", broker) for line in BEFORE], folder)
    with members(namesrv) as words:
        words |= {"BROKER": broker, "FOLDER": str(folder)}
        lines = [re.sub("|".join(words), lambda word: words[word.group()], line) for line in LINES]
        return [plain(line, printed) for line, printed in zip(LINES, mqadmin(namesrv, lines, folder), strict=True)]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, list[str], list[str]]]:
    """Each line with what it prints of the real servers and of ours."""
    folder = tmp_path_factory.mktemp("mqadmin")
    with (
        ThreadPoolExecutor(2) as pool,  # a command may wait three seconds for a thread of its own to end
        JavaCluster(folder / "store", SETTINGS) as cluster,
        EmbeddedBroker(settings=SETTINGS) as broker,
    ):
        at_real = pool.submit(play, cluster.namesrv, cluster.broker, folder / "real")
        at_ours = pool.submit(play, broker.namesrv, broker.address, folder / "ours")
        real, ours = at_real.result(), at_ours.result()
    return list(zip(LINES, real, ours, strict=True))


@pytest.mark.slow
def test_mqadmin_prints_the_same(both: list[tuple[str, list[str], list[str]]]) -> None:
    unlike = [(line, sorted(set(real) ^ set(ours))) for line, real, ours in both if real != ours]
    assert unlike == []
    assert sum(bool(real) for _, real, _ in both) > len(LINES) * 3 // 4
