"""``gantrymq admin`` at one embedded broker: what each command prints, for programs and people, and its exit codes."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_cases import Outcome, Run, start

from gantrymq import AdminClient, ConsumeFromWhere, EmbeddedBroker, Message, Producer, PushConsumer
from gantrymq.client.requests.calls import Call, accepted
from gantrymq.format.trace import TraceRecord, TraceType, encode_traces
from gantrymq.remoting.bodies.topic import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from gantrymq.remoting.codes import version_name
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.namesrv import RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader

DOCS = Path(__file__).resolve().parents[2] / "docs"
DOCUMENTED = set(re.findall(r"\w+", "".join((DOCS / page).read_text() for page in ("admin.md", "cli.md"))))
EVIL = "\x1b[2J\x1b]0;owned\x07"
Admin = Callable[..., Outcome]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        running.create_topic("orders", 2)
        yield running


@pytest.fixture(scope="module")
def sent(broker: EmbeddedBroker) -> list[Any]:
    """Four messages in two queues; the last has escape sequences in its body and in a key."""
    with Producer(broker.namesrv, producer_group="shop") as producer:
        results = [
            producer.send(
                Message("orders", f"body{number}".encode(), tags="TagA", keys=(f"key{number}",)),
                lambda queues, at=number: sorted(queues)[at % 2],
            )
            for number in range(3)
        ]
        evil = Message("orders", f"{EVIL}x".encode(), keys=(f"key3{EVIL}",))
        results.append(producer.send(evil, lambda queues: sorted(queues)[1]))
    broker.wait_for_messages("orders", 4)
    return results


@pytest.fixture(scope="module")
def watchers(broker: EmbeddedBroker, sent: list[Any]) -> str:
    """A group that has consumed everything and has no members any more."""
    came: list[bytes] = []
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    with PushConsumer(broker.namesrv, consumer_group="watchers", consume_from_where=first) as consumer:
        consumer.subscribe("orders")
        consumer.listen(lambda messages, context: came.extend(one.body for one in messages))
        consumer.start()
        deadline = time.monotonic() + 20
        while len(came) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(came) == 4
    return "watchers"


@pytest.fixture
def admin(gantrymq: Run, broker: EmbeddedBroker) -> Admin:
    return lambda *words: gantrymq("admin", *words, "-n", broker.namesrv)


def of(outcome: Outcome, **wanted: object) -> list[dict[str, Any]]:
    """The lines that have these fields, of a command that succeeded. The documentation names all fields."""
    assert (outcome.code, outcome.err) == (0, "")
    assert {name for line in outcome.lines for name in line} <= DOCUMENTED
    return [line for line in outcome.lines if all(line[name] == value for name, value in wanted.items())]


def refused(outcome: Outcome, code: int, *texts: str) -> None:
    """The command ended with one line on stderr that has these texts."""
    assert (outcome.code, outcome.err.count("\n")) == (code, 1), outcome.err
    assert "Traceback" not in outcome.err
    assert all(text in outcome.err for text in texts), outcome.err


def test_cluster_and_broker_commands_show_broker(admin: Admin, broker: EmbeddedBroker, sent: list[Any]) -> None:
    [line] = of(admin("cluster", "--json"))
    assert (line["cluster"], line["brokerName"], line["brokerId"]) == ("DefaultCluster", "broker-a", 0)
    assert (line["address"], line["version"], line["active"]) == (broker.address, "V5_5_0", True)
    assert line["inTotalToday"] >= 4
    assert line["sendThreadPoolQueueSize"] == line["timerCongestNum"] == 0
    assert line["pageCacheLockTimeMills"] >= 0
    table = admin("cluster").text
    assert broker.address in table
    assert "V5_5_0" in table
    [status] = of(admin("broker", "status", "-b", "broker-a", "--json"))
    assert status["status"]["brokerVersionDesc"] == "V5_5_0"
    [replication] = of(admin("ha", "--json"))
    assert (replication["master"], replication["slave"]) == (True, None)
    refused(admin("cluster", "-c", "Nowhere"), 3, "there is no cluster Nowhere; known: DefaultCluster")
    refused(admin("broker", "status", "-b", "nobody"), 3, "there is no broker nobody; known: broker-a")


def test_setting_is_changed_and_read_back(admin: Admin) -> None:
    set_ = ("broker", "config", "set")
    [line] = of(admin(*set_, "fileReservedTime=48", "-b", "broker-a", "--json"))
    assert (line["key"], line["value"]) == ("fileReservedTime", "48")
    [line] = of(admin("broker", "config", "get", "fileReservedTime", "--json"))
    assert line["config"] == {"fileReservedTime": "48"}
    refused(admin(*set_, "noSuchKey=1", "-b", "broker-a", "--json"), 1, "broker-a has no setting noSuchKey")
    refused(admin(*set_, "fileReservedTime=48"), 2, "give --broker or --cluster")
    refused(admin(*set_, "fileReservedTime", "-b", "broker-a"), 2, "is not KEY=VALUE")
    refused(admin("broker", "config", "get", "nokey", "--json"), 1, "no setting nokey")
    assert of(admin("broker", "clean", "--expired-logs", "--unused-topics", "--json"))
    [wiped] = of(admin("broker", "write-perm", "wipe", "broker-a", "--json"))
    [added] = of(admin("broker", "write-perm", "add", "broker-a", "--json"))
    assert wiped["topics"] == added["topics"] > 0


def test_topic_commands_create_change_and_delete(admin: Admin) -> None:
    [made] = of(admin("topic", "create", "lives", "--queues", 3, "--attribute", "+message.type=NORMAL", "--json"))
    assert (made["readQueueNums"], made["writeQueueNums"], made["perm"], made["created"]) == (3, 3, 6, True)
    [made] = of(admin("topic", "create", "lives", "--write-queues", 5, "--json"))
    assert (made["readQueueNums"], made["writeQueueNums"], made["created"]) == (3, 5, False)
    assert made["attributes"] == {"message.type": "NORMAL"}
    [changed] = of(admin("topic", "perm", "lives", "r", "--json"))
    assert (changed["perm"], changed["permText"], changed["writeQueueNums"]) == (4, "R--", 5)
    [unit] = of(admin("topic", "create", "lives", "--unit", "--unit-sub", "--json"))
    assert unit["topicSysFlag"] == 3
    [unit] = of(admin("topic", "create", "lives", "--no-unit", "--json"))
    assert (unit["topicSysFlag"], unit["perm"]) == (2, 4)
    [route] = of(admin("topic", "route", "lives", "--json"))
    assert (route["brokerName"], route["perm"], route["readQueueNums"]) == ("broker-a", 4, 3)
    assert of(admin("topic", "list", "--json"), topic="lives") == [{"topic": "lives", "kind": "normal"}]
    assert len(of(admin("topic", "status", "lives", "--json"))) == 5
    assert of(admin("topic", "delete", "lives", "--json"))
    for again in (("delete",), ("route",), ("status",), ("perm", "RW")):
        refused(admin("topic", again[0], "lives", *again[1:]), 3, "there is no topic lives", "topic list")


def test_topic_commands_show_offsets_groups_and_shares(admin: Admin, watchers: str) -> None:
    lines = of(admin("topic", "status", "orders", "--json"))
    assert [(one["queueId"], one["minOffset"], one["maxOffset"]) for one in lines] == [(0, 0, 2), (1, 0, 2)]
    assert of(admin("topic", "consumers", "orders", "--json")) == [{"topic": "orders", "group": watchers}]
    [detail] = of(admin("topic", "list", "--detail", "--json"), topic="orders")
    assert (detail["cluster"], detail["group"]) == ("DefaultCluster", watchers)
    [traffic] = of(admin("stats", "-t", "orders", "--json"))
    assert (traffic["group"], traffic["accumulation"]) == (watchers, 0)
    shares = of(admin("topic", "allocate", "orders", "a,b", "--json"))
    assert [(one["client"], one["queueId"]) for one in shares] == [("a", 0), ("b", 1)]
    assert all(one["putTps"] >= 0 for one in lines)
    assert "orders gets " in admin("topic", "status", "orders").text


@pytest.mark.parametrize("name", ["a/b", f"x{EVIL}", "ünde", "x" * 300, " "])
def test_invalid_name_is_refused_before_request(admin: Admin, name: str) -> None:
    for words in (("topic", "create", name), ("group", "create", name)):
        outcome = admin(*words)
        refused(outcome, 2)
        assert "\x1b" not in outcome.err


def test_group_commands_create_change_and_delete(admin: Admin) -> None:
    [made] = of(admin("group", "create", "late", "--retry-max", 3, "--json"))
    assert (made["retryMaxTimes"], made["retryQueueNums"], made["consumeEnable"], made["created"]) == (3, 1, True, True)
    [made] = of(admin("group", "create", "late", "--disable", "--json"))
    assert (made["retryMaxTimes"], made["consumeEnable"], made["created"]) == (3, False, False)
    policy = '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000,"max":9000,"multiplier":3}}'
    changes = ("--retry-policy", policy, "--attribute", "+priority.factor=50", "--broker-id", 1)
    [made] = of(admin("group", "create", "late", *changes, "--json"))
    assert made["groupRetryPolicy"]["exponentialRetryPolicy"] == {"initial": 1000, "max": 9000, "multiplier": 3}
    assert (made["attributes"], made["groupBrokerId"], made["retryMaxTimes"]) == ({"priority.factor": "50"}, 1, 3)
    [made] = of(admin("group", "create", "late", "--retry-max", 4, "--json"))  # keeps the attribute
    assert (made["attributes"], made["retryMaxTimes"]) == ({"priority.factor": "50"}, 4)
    refused(admin("group", "create", "late", "--retry-policy", "{"), 2, "--retry-policy")
    [made] = of(admin("group", "create", "late", "--retry-max", 3, "--json"))
    assert of(admin("group", "list", "--json"), group="late")
    [config] = of(admin("group", "config", "late", "--json"))
    assert config["retryMaxTimes"] == 3
    members = admin("group", "members", "late", "--json")
    assert (members.code, members.out) == (0, b"")
    assert "no consumer of group late is connected" in members.err
    progress = admin("group", "progress", "late")
    assert (progress.code, progress.out) == (0, b"")
    assert "late has consumed nothing yet" in progress.err
    assert of(admin("group", "delete", "late", "--json"))
    for word in ("delete", "config", "members", "progress"):
        refused(admin("group", word, "late"), 3, "there is no group late", "group list")


def test_group_progress_follows_reset(admin: Admin, watchers: str) -> None:
    def positions() -> list[tuple[int, int, int]]:
        lines = of(admin("group", "progress", watchers, "-t", "orders", "--json"), topic="orders")
        return [(one["queueId"], one["consumerOffset"], one["diff"]) for one in lines]

    assert positions() == [(0, 2, 0), (1, 2, 0)]
    [line] = of(admin("group", "progress", "--json"), group=watchers)
    assert (line["count"], line["diffTotal"]) == (0, 0)
    assert line["consumeTps"] >= 0
    reset = ("group", "reset", watchers, "-t", "orders", "--to")
    moved = of(admin(*reset, "earliest", "--json"))
    assert [(one["queueId"], one["offset"]) for one in moved] == [(0, 0), (1, 0)]
    assert positions() == [(0, 0, 2), (1, 0, 2)]
    assert f"{watchers} is 4 behind" in admin("group", "progress", watchers).text
    behind = of(admin("broker", "consume-stats", "--behind", 1, "--json"), topic="orders")
    assert [(one["diff"], one["diffTotal"]) for one in behind] == [(2, 4), (2, 4)]
    assert "all groups of broker-a are 4 behind" in admin("broker", "consume-stats").text
    assert [one["offset"] for one in of(admin(*reset, 1, "--json"))] == [1, 1]
    assert positions() == [(0, 1, 1), (1, 1, 1)]
    assert [one["offset"] for one in of(admin(*reset, 0, "-q", 1, "--json"))] == [0]
    assert positions() == [(0, 1, 1), (1, 0, 2)]
    assert [one["offset"] for one in of(admin(*reset, 99, "-b", "broker-a", "--json"))] == [2, 2]  # not behind the end
    assert [one["offset"] for one in of(admin(*reset, 2_000_000_000_000, "-q", 0, "--json"))] == [2]
    assert of(admin(*reset, "2999-01-01", "--json"))
    assert positions() == [(0, 2, 0), (1, 2, 0)]
    assert of(admin("group", "clone", watchers, "copied", "-t", "orders", "--offline", "--json"))
    refused(admin(*reset, 99, "-q", 0), 2, "offset 99 is not within 0 to 2 of queue 0")
    refused(admin(*reset, "earliest", "-q", 9), 3, "orders has no queue 9", "topic status")
    refused(admin(*reset, 1, "--only-back"), 2, "--only-back needs a time")
    refused(admin(*reset, "sometime"), 2, "'sometime' is not milliseconds")
    refused(admin("group", "reset", "misspelt", "-t", "orders", "--to", "latest"), 3, "there is no group misspelt")
    refused(admin("group", "reset", watchers, "-t", "nowhere", "--to", "latest"), 3, "there is no topic nowhere")


def test_message_is_found_by_id_key_and_offset(admin: Admin, sent: list[Any]) -> None:
    first = sent[0]
    for words in (
        ("by-id", "orders", first.msg_id),
        ("by-id", "orders", first.offset_msg_id),
        ("by-unique-key", "orders", first.msg_id),
        ("by-offset", "orders", 0, 0),
        ("by-key", "orders", "key0"),
    ):
        [line] = of(admin("message", *words, "--json"))
        assert (line["topic"], line["queueId"], line["queueOffset"], line["body"]) == ("orders", 0, 0, "body0")
        assert (line["msgId"], line["offsetMsgId"]) == (first.msg_id, first.offset_msg_id)
        assert b"body0" in admin("message", *words).out
    for words, text in (
        (("by-id", "orders", "0" * 32), "no message"),
        (("by-unique-key", "orders", "nothing"), "has the id nothing"),
        (("by-key", "orders", "nokey"), "has the key nokey"),
        (("by-offset", "orders", 0, 99), "the queue has 0 to 2"),
    ):
        refused(admin("message", *words), 1, text)
    refused(admin("message", "by-offset", "orders", 9, 0), 3, "no readable queue 9")
    lines = of(admin("message", "print", "orders", "--json"))
    assert [(one["queueId"], one["queueOffset"]) for one in lines] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len(of(admin("message", "print", "orders", "--tag", "TagA", "-q", 1, "--max", 5, "--json"))) == 1
    units = of(admin("message", "units", "orders", 0, 0, "--json"))
    assert [(one["queueOffset"], one["minOffset"], one["maxOffset"]) for one in units] == [(0, 0, 2), (1, 0, 2)]
    assert of(admin("message", "print", "orders", "--count-tags", "--json")) == [
        {"topic": "orders", "tags": "TagA", "count": 3}, {"topic": "orders", "tags": None, "count": 1},
    ]  # fmt: skip
    tagged = of(admin("message", "by-key", "orders", "TagA", "--key-type", "T", "--json"))
    assert [line["body"] for line in tagged] == ["body0", "body1", "body2"]
    hour_ms = tagged[0]["storeTimestamp"] // 3_600_000 * 3_600_000
    assert tagged[0]["indexKey"] == f"{hour_ms}@orders@T@TagA@{first.msg_id}@{tagged[0]['phyOffset']}"
    refused(admin("message", "by-key", "orders", "TagB", "--key-type", "T"), 1, "has the tag TagB")


def test_message_track_shows_state_of_groups(
    admin: Admin, broker: EmbeddedBroker, sent: list[Any], watchers: str
) -> None:
    track = ("message", "track", "orders", sent[0].msg_id, "--json")
    [line] = of(admin(*track), group=watchers)
    assert (line["state"], line["queueOffset"], line["consumerOffset"], line["consumed"]) == ("NOT_ONLINE", 0, 2, True)
    with PushConsumer(broker.namesrv, consumer_group=watchers) as consumer:
        consumer.subscribe("orders", "TagB")
        consumer.listen(lambda messages, context: None)
        consumer.start()
        outcome = admin(*track)  # stderr also has the warnings of the consumer, which is in the same process
        [line] = [one for one in outcome.lines if one["group"] == watchers]
        assert (outcome.code, line["state"]) == (0, "CONSUMED_BUT_FILTERED")
        [shown] = admin("message", "by-id", "orders", sent[0].msg_id, "--tracks", "--json").lines
        assert (watchers, "CONSUMED_BUT_FILTERED") in [(one["group"], one["state"]) for one in shown["tracks"]]
        [state] = admin("group", "state", watchers, "--json").lines
        assert (state["sameSubscription"], state["problems"]) == (True, [])
        assert state["version"].startswith("V5")
        assert f"the consumers of {watchers} have the same subscription" in admin("group", "state", watchers).text
        [line] = [one for one in admin("monitor", "--json").lines if one["topic"] == "orders"]
        assert (line["group"], line["undone"], line["delayMs"], line["problems"]) == (watchers, 0, 0, [])
    refused(admin("message", "track", "orders", "0" * 32), 3, "no message")


def test_message_trace_is_shown(admin: Admin, broker: EmbeddedBroker) -> None:
    broker.create_topic("traces", 1)
    one, other = "AC110001" * 4, "AC110002" * 4
    records = [
        TraceRecord(
            TraceType.SUB_AFTER, 3000, group="readers", msg_id=one, request_id="r", cost_ms=7, is_success=False
        ),
        TraceRecord(TraceType.PUB, 1000, group="shop", topic="orders", msg_id=one, cost_ms=5),
        TraceRecord(TraceType.PUB, 1000, group="shop", topic="orders", msg_id=other),
    ]
    with Producer(broker.namesrv) as producer:
        producer.send(Message("traces", encode_traces(records).encode(), keys=(one, other)))
        producer.send(Message("traces", b"Pub\x01odd\x1b[2J\x02", keys=("broken",)))
    broker.wait_for_messages("traces", 2)
    lines = of(admin("message", "trace", one, "--trace-topic", "traces", "--json"))
    assert [(line["type"], line["group"], line["clientHost"], line["costMs"], line["success"]) for line in lines] == [
        ("Pub", "shop", "127.0.0.1", 5, True),
        ("SubAfter", "readers", "127.0.0.1", 7, False),
    ]
    assert "readers" in admin("message", "trace", one, "--trace-topic", "traces").text
    outcome = admin("message", "trace", "broken", "--trace-topic", "traces")
    assert outcome.code == 1
    assert "a part that is no record" in outcome.err
    assert "has no record of message broken" in outcome.err
    assert "\x1b" not in outcome.err


def test_escape_sequences_in_messages_do_not_reach_terminal(admin: Admin, sent: list[Any]) -> None:
    for words in (("print", "orders"), ("by-id", "orders", sent[3].msg_id)):
        outcome = admin("message", *words)
        assert (outcome.code, outcome.err) == (0, "")
        assert b"\x1b" not in outcome.out
        assert b"\x07" not in outcome.out
    [line] = of(admin("message", "by-id", "orders", sent[3].msg_id, "--json"))
    assert line["properties"]["KEYS"] == f"key3{EVIL}"
    refused(admin("message", "by-key", "orders", EVIL), 1, "·[2J")


def test_message_is_sent_and_clients_are_listed(admin: Admin, broker: EmbeddedBroker) -> None:
    broker.create_topic("sends", 2)
    words = ("message", "send", "sends", "hello", "-k", "k1", "--tag", "T", "-b", "broker-a", "-q", 1)
    [line] = of(admin(*words, "--json"))
    assert (line["queueId"], line["queueOffset"], line["status"]) == (1, 0, "SEND_OK")
    [found] = of(admin("message", "by-key", "sends", "k1", "--json"))
    assert (found["body"], found["properties"]["TAGS"]) == ("hello", "T")
    [again] = of(admin("message", "resend", "sends", line["msgId"], "--json"))
    assert (again["msgId"], again["status"]) == (line["msgId"], "SEND_OK")
    [_, copy] = of(admin("message", "by-key", "sends", "k1", "--json"))
    assert (copy["msgId"], copy["body"], copy["properties"]["TAGS"]) == (again["newMsgId"], "hello", "T")
    assert copy["msgId"] != line["msgId"]
    refused(admin("message", "resend", "sends", "0" * 32), 3, "no message")
    with Producer(broker.namesrv, producer_group="listed") as producer:
        producer.send(Message("sends", b"x"))
        deadline = time.monotonic() + 60
        while not (lines := admin("producer", "list", "--json").lines) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [(one["group"], one["language"]) for one in lines] == [("listed", "PYTHON")]
        [one] = of(admin("connection", "producers", "listed", "-t", "sends", "--json"))
        assert one["version"] == "V5_5_0"
    refused(admin("connection", "producers", "nobody", "-t", "sends"), 3, "nobody", "producer list")


def test_report_commands_write_files_of_mqadmin(admin: Admin, sent: list[Any], tmp_path: Path) -> None:
    for what, name in (("configs", "configs"), ("metrics", "metrics"), ("metadata", "metadata")):
        assert of(admin("report", what, tmp_path / "new", "--json")) == [
            {"out": str(tmp_path / "new" / f"{name}.json")}
        ]
    configs, metrics, metadata = (
        json.loads((tmp_path / "new" / f"{name}.json").read_text()) for name in ("configs", "metrics", "metadata")
    )
    assert configs["clusterScale"] == {"namesrvSize": 1, "masterBrokerSize": 1, "slaveBrokerSize": 0}
    assert configs["brokerConfigs"]["broker-a"]["flushDiskType"] == "ASYNC_FLUSH"
    quota = metrics["evaluateReport"]["broker-a"]["runtimeQuota"]
    assert metrics["totalData"]["totalTps"].keys() == {
        "totalNormalInTps", "totalNormalOutTps", "totalTransInTps", "totalScheduleInTps",
    }  # fmt: skip
    assert (quota["topicSize"], quota["groupSize"]) == (
        len(metadata["topicConfigTable"]), len(metadata["subscriptionGroupTable"]),
    )  # fmt: skip
    assert metadata["topicConfigTable"]["orders"]["writeQueueNums"] == 2
    assert not any(name.startswith(("%RETRY%", "TBW102")) for name in metadata["topicConfigTable"])
    of(admin("report", "metadata", tmp_path, "--topics", "--json"))
    assert json.loads((tmp_path / "topic.json").read_text()).keys() == {"exportTime", "topicConfigTable"}
    refused(admin("report", "configs", tmp_path / "topic.json" / "x"), 2, "Not a directory")


def test_kv_commands_read_and_write_name_servers(admin: Admin) -> None:
    assert of(admin("kv", "put", "space", "key", "a value", "--json"))
    for words in (("get", "space", "key"), ("list", "space")):
        assert of(admin("kv", *words, "--json")) == [{"namespace": "space", "key": "key", "value": "a value"}]
    assert of(admin("kv", "delete", "space", "key", "--json"))
    refused(admin("kv", "get", "space", "key"), 1, "there is no key key in space")
    [line] = of(admin("namesrv", "set", "orderMessageEnable=true", "--json"))
    assert line["value"] == "true"
    assert of(admin("namesrv", "get", "orderMessageEnable", "--json"))[0]["config"] == {"orderMessageEnable": "true"}


@contextmanager
def half_away(broker: EmbeddedBroker, topic: str) -> Iterator[None]:
    """A broker-z in the cluster that has the topic too, and does not answer."""
    identity = {
        "broker_name": "broker-z",
        "broker_addr": "127.0.0.1:1",
        "cluster_name": "DefaultCluster",
        "broker_id": 0,
    }
    table = {
        name: TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1) for name in (topic, "%RETRY%watchers")
    }
    said = TopicConfigAndMappingSerializeWrapper(topic_config_table=table, data_version=DataVersion(counter=1))
    body = RegisterBrokerBody(topic_config_serialize_wrapper=said).encode()
    with AdminClient(broker.namesrv) as admin:

        def tell(request: Callable[[], RemotingCommand]) -> None:
            admin._client.call(broker.namesrv, Call(request, accepted))

        tell(lambda: RemotingCommand.request(RegisterBrokerRequestHeader(**identity, ha_server_addr=""), body))
        try:
            yield
        finally:
            tell(lambda: RemotingCommand.request(UnRegisterBrokerRequestHeader(**identity)))


def test_partly_missing_cluster_names_missing_broker(
    admin: Admin, broker: EmbeddedBroker, watchers: str, tmp_path: Path
) -> None:
    """What is there is shown, what does not answer is named, and the exit code is 1."""
    broker.create_topic("halved", 1)
    with half_away(broker, "halved"):
        for words, count in (
            (("cluster",), 2),
            (("broker", "status"), 1),
            (("broker", "config", "get", "fileReservedTime"), 1),
            (("topic", "status", "halved"), 1),
            (("group", "progress", watchers), 2),
            (("producer", "list"), 0),
            (("ha",), 1),
            (("message", "print", "halved"), 0),
            (("topic", "create", "halved", "--queues", 2), 1),
            (("broker", "cold-data", "get"), 1),
            (("broker", "timer-engine", "F"), 1),
            (("report", "configs", tmp_path), 1),
            (("report", "metrics", tmp_path), 1),
            (("report", "metadata", tmp_path), 1),
        ):
            outcome = admin(*words, "--json")
            assert (words, outcome.code, len(outcome.lines)) == (words, 1, count)
            named = [line for line in outcome.err.splitlines() if "warning" not in line]
            assert named
            assert all("broker-z" in line and "127.0.0.1:1" in line for line in named), outcome.err
        [_, away] = admin("cluster", "--json").lines
        assert (away["brokerName"], away["version"], away["active"]) == ("broker-z", None, None)
        refused(admin("broker", "status", "-b", "broker-z"), 3, "is that broker running")


def test_topic_with_special_characters_is_administered(admin: Admin, broker: EmbeddedBroker) -> None:
    odd = f"odd {EVIL}/ü\u202e"
    with half_away(broker, odd):
        assert of(admin("topic", "list", "--json"), topic=odd)
        shown = admin("topic", "list")
        assert (shown.code, shown.err) == (0, "")
        assert "odd ·[2J·]0;owned·/ü·" in shown.text
        [route] = of(admin("topic", "route", odd, "--json"))
        assert route["brokerName"] == "broker-z"
        refused(admin("topic", "status", odd), 3, "127.0.0.1:1", "is that broker running")
    refused(admin("topic", "status", odd), 3, "there is no topic odd ·[2J")


def test_concurrent_change_of_topic_is_detected(
    admin: Admin, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("contested", 1)
    ours = AdminClient.put_topic_config

    def both(client: AdminClient, config: TopicConfig, **where: Any) -> None:
        ours(client, config, **where)
        client.create_topic("contested", read_queue_nums=9, write_queue_nums=9, perm=6)

    monkeypatch.setattr(AdminClient, "put_topic_config", both)
    monkeypatch.setattr(AdminClient, "create_topic", lambda client, topic, **given: ours(
        client, TopicConfig(topic_name=topic, read_queue_nums=9, write_queue_nums=9)))  # fmt: skip
    outcome = admin("topic", "create", "contested", "--queues", 4, "--json")
    refused(outcome, 1, "contested is not as requested", "another operator")
    assert [line["readQueueNums"] for line in outcome.lines] == [9]


def test_missing_permission_and_missing_cluster_are_errors(gantrymq: Run, tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("accounts:\n- accessKey: operator\n  secretKey: secret-1\n  admin: true\n")
    with EmbeddedBroker(settings={"aclEnable": True, "aclPlainFile": str(accounts)}) as broker:
        named = ("-n", broker.namesrv)
        refused(gantrymq("admin", "broker", "status", *named), 3, "--access-key and --secret-key")
        keys = ("--access-key", "operator", "--secret-key", "secret-1")
        assert of(gantrymq("admin", "broker", "status", *named, *keys, "--json"))
        wrong = ("--access-key", "operator", "--secret-key", "wrong")
        refused(gantrymq("admin", "broker", "status", *named, *wrong), 3, "--secret-key")
        assert of(gantrymq("admin", "cluster", *named, *keys, "--tls", "--json"))
        refused(gantrymq("admin", "cluster", *named, "--tls-trust", accounts), 2, "tls.client.trustCertPath")
    refused(
        gantrymq("admin", "cluster", "-n", "127.0.0.1:1"), 3, "no name server answers", "is -n (NAMESRV_ADDR) right"
    )


def test_admin_connects_by_option_environment_or_profile(
    gantrymq: Run, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for produce and consume, whose tests have all cases."""
    for name in ("NAMESRV_ADDR", "GANTRYMQ_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    refused(gantrymq("admin", "cluster"), 2, "no name server: give -n HOST:PORT, set NAMESRV_ADDR")
    monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv)
    assert of(gantrymq("admin", "cluster", "--json"))
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    assert gantrymq("admin", "cluster").code == 3
    (tmp_path / "gantrymq").mkdir()
    (tmp_path / "gantrymq" / "profile.toml").write_text(f'[profile.test]\nnamesrv = "{broker.namesrv}"\n')
    assert of(gantrymq("admin", "cluster", "--profile", "test", "--json"))
    assert of(gantrymq("admin", "cluster", "--profile", "test", "-X", "mqClientApiTimeout=9000", "--json"))
    refused(gantrymq("admin", "cluster", "--profile", "test", "-X", "noSuchKey=1"), 2, "noSuchKey")


def test_ctrl_c_ends_watch_cleanly(broker: EmbeddedBroker) -> None:
    import signal

    with start("admin", "topic", "status", "orders", "-n", broker.namesrv, "--watch", "0.1", "--json") as child:
        assert child.stdout is not None
        seen = [child.stdout.readline() for _ in range(6)]  # three times two queues
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert all(b'"topic":"orders"' in line for line in seen)
    assert (child.returncode, err) == (0, b"")


def test_watch_ends_with_its_reader_while_cluster_is_missing() -> None:
    with start("admin", "cluster", "-n", "127.0.0.1:1", "--watch", "0.1") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert b"no name server answers" in child.stderr.readline()
        child.stdout.close()
        assert child.wait(timeout=60) == 141


def test_watch_survives_missing_cluster(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gantrymq.cli.main import exit_code

    naps, sleep = iter(range(3)), time.sleep

    def nap(interval_s: float) -> None:
        if threading.current_thread() is not threading.main_thread():
            sleep(interval_s)  # a thread of the broker beside it
        elif next(naps) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", nap)
    assert exit_code(["admin", "cluster", "-n", "127.0.0.1:1", "--watch", "1"]) == 0
    assert capsys.readouterr().err.count("no name server answers") == 3


def test_version_numbers_are_shown_as_names() -> None:
    """By MQVersion's ordinals."""
    known = {513: "V5_5_0", 512: "V5_5_0_SNAPSHOT", 401: "V4_9_4", 196: "V3_9_2_SNAPSHOT", 611: "V5_9_9"}
    assert {number: version_name(number) for number in known} == known
    assert (version_name(612), version_name(9999), version_name(5)) == ("HIGHER_VERSION", "HIGHER_VERSION", "version 5")


def test_dead_letters_are_listed_exported_and_sent_again_to_their_group_alone(
    admin: Admin, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    refused(admin("dlq", "list", "mourners"), 3, "mourners has no dead letters")
    with AdminClient(broker.namesrv) as client:
        client.create_subscription_group("mourners")
        for topic in ("%DLQ%mourners", "%RETRY%mourners"):
            client.create_topic(topic, read_queue_nums=1, write_queue_nums=1)
    with Producer(broker.namesrv) as producer:
        letters = [
            producer.send(
                Message(
                    "%DLQ%mourners", f"dead{number}".encode(), tags="T", keys=("k",), properties={**origin, "own": "x"}
                )
            )
            for number, origin in enumerate(({"RETRY_TOPIC": "orders"}, {"RETRY_TOPIC": "orders"}, {}))
        ]
    broker.wait_for_messages("%DLQ%mourners", 3)
    [count] = of(admin("dlq", "list", "--json"), group="mourners")
    assert count["messages"] == 3
    assert [one["body"] for one in of(admin("dlq", "list", "mourners", "--json"))] == ["dead0", "dead1", "dead2"]
    file = tmp_path / "dead.jsonl"
    assert of(admin("dlq", "export", "mourners", file, "--json"))[0]["messages"] == 3
    assert file.read_bytes() == admin("dlq", "export", "mourners", "-").out
    refused(admin("dlq", "export", "mourners", file), 2, "exists already")
    refused(admin("dlq", "resend", "mourners"), 2, "say which dead letters")
    [dry] = of(admin("dlq", "resend", "mourners", "--id", letters[0].msg_id, "--dry-run", "--json"))
    assert (dry["status"], dry["topic"], dry["originTopic"]) == ("DRY_RUN", "%RETRY%mourners", "orders")
    [one] = of(admin("dlq", "resend", "mourners", "--id", letters[0].msg_id, "--json"))
    assert one["status"] == "SEND_OK"
    [again] = broker.wait_for_messages("%RETRY%mourners", 1)
    assert (again.body, again.tags, again.keys, again.properties["own"]) == (b"dead0", "T", ["k"], "x")
    assert (again.properties["RETRY_TOPIC"], again.properties["UNIQ_KEY"]) == ("orders", one["newMsgId"])
    outcome = admin("dlq", "resend", "mourners", "--all", "--json")
    refused(outcome, 1, "does not say of which topic it was; give --topic")
    assert [line["status"] for line in outcome.lines] == ["SEND_OK", "SEND_OK", "FAILED"]
    refused(admin("dlq", "resend", "mourners", "--id", "unknown", "--json"), 1, "has the id unknown")


def test_exported_topics_and_groups_are_imported_by_another_cluster(
    admin: Admin, gantrymq: Run, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    assert of(admin("topic", "create", "moved", "--queues", 3, "--attribute", "+message.type=FIFO", "--json"))
    assert of(admin("group", "create", "movers", "--retry-max", 2, "--json"))
    file = tmp_path / "cluster.jsonl"
    [written] = of(admin("export", file, "--json"))
    assert written["topics"] > 0
    exported = admin("export", "-").out
    assert file.read_bytes() == exported
    assert b"TBW102" not in exported
    assert b"TBW102" in admin("export", "-", "--all").out
    assert b'"kind":"topic"' not in admin("export", "-", "--groups").out
    with EmbeddedBroker() as other:

        def put(*words: object) -> Outcome:
            return gantrymq("admin", "import", *words, "-n", other.namesrv, "--json")

        for dry in ("--dry-run",), ():
            statuses = {line["name"]: line["status"] for line in of(put(file, *dry))}
            assert (statuses["moved"], statuses["movers"]) == ("created", "created")
        assert {line["status"] for line in of(put(file))} == {"same"}
        [route] = of(gantrymq("admin", "topic", "route", "moved", "-n", other.namesrv, "--json"))
        assert route["readQueueNums"] == 3
        with AdminClient(other.namesrv) as client:
            assert client.topic_config("moved", other.address).attributes == {"message.type": "FIFO"}
            assert client.subscription_groups(other.address)["movers"].retry_max_times == 2
        file.write_bytes(exported.replace(b'"readQueueNums":3', b'"readQueueNums":4'))
        outcome = put(file)
        assert outcome.code == 1
        assert "moved has other settings at broker-a; --replace changes them" in outcome.err
        assert [line["status"] for line in of(put(file, "--replace"), name="moved")] == ["changed"]
        file.write_text(
            '{"topicConfigTable":{"t1":{"topicName":"t1"}},"subscriptionGroupTable":{"g1":{"groupName":"g1"}}}'
        )
        refused_once = put(file)
        assert refused_once.code == 1
        assert "give --broker or --cluster" in refused_once.err
        assert [line["status"] for line in of(put(file, "-c", "DefaultCluster"))] == ["created", "created"]
        file.write_text('[{"topicName":"a/b"},{"topicName":"t2"},7]')
        outcome = put(file, "-b", "broker-a")
        assert (outcome.code, [line["name"] for line in outcome.lines]) == (1, ["t2"])
        assert "entry 1: The specified topic: a/b" in outcome.err
        assert "entry 3: this is no object with" in outcome.err
        refused(put(tmp_path / "nothing"), 2, "No such file")
