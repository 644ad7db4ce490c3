"""``gantrymq admin`` and the real mqadmin 5.5.0 tell the same of the real cluster, and of ours.

Each fact is read from what mqadmin prints in a cluster, and from the JSON of the command in the same cluster. A change
that one makes is looked at with the other.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gantrymq import EmbeddedBroker, Message, Producer
from gantrymq.cli.admin.mqadmin import SUBCOMMANDS, UNSUPPORTED
from gantrymq.format.trace import TraceRecord, TraceType, encode_traces

from .client_cases import SETTINGS
from .java import OLD_RELEASE, release, run_java
from .java_cluster import JavaCluster
from .test_mqadmin import members

pytestmark = pytest.mark.slow

POLICY = '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000,"max":9000,"multiplier":3}}'
LINES = {
    "clusterList": "clusterList",
    "topicRoute": "topicRoute -t orders",
    "topicStatus": "topicStatus -t orders",
    "progress": "consumerProgress -g watchers -t orders",
    "all progress": "consumerProgress",
    "connection": "consumerConnection -g watchers",
    "by key": "queryMsgByKey -t orders -k key1",
    "by id": "queryMsgById -t orders -i FIRST",
    "by offset": "queryMsgByOffset -t orders -b broker-a -i 1 -o 1",
    "status": "brokerStatus -b BROKER",
    "timer files": "switchTimerEngine -b BROKER -e F",  # it changes a setting
    "timer RocksDB": "switchTimerEngine -b BROKER -e R",
    "config": "getBrokerConfig -b BROKER",
    "producer": "producer -b BROKER",
    "producer connection": "producerConnection -g shop -t orders",
    "group config": "getConsumerConfig -g audits",
    "policy": "getConsumerConfig -g polished",
    "unit": "topicRoute -t unit",
    "by key with index": "queryMsgByKey -t orders -k key1",
    "by tag": "queryMsgByKey -t orders -k TagA -p T",
    "no tag": "queryMsgByKey -t orders -k TagZ -p T",
    "units": "queryCq -t orders -q 0 -i 0 -c 2 -b BROKER -g watchers",
    "tags": "printMsgByQueue -t orders -a broker-a -i 0 -f true",
    "allocation": "allocateMQ -t orders -i a,b,c",
    "consume stats": "brokerConsumeStats -b BROKER",
    "state": "consumerStatus -g watchers",
    "ha": "haStatus -b BROKER",
    "cold": "getColdDataFlowCtrInfo -b BROKER",
    "flush offset": "resetMasterFlushOffset -b BROKER -o 0",
    "epoch": "getBrokerEpoch -b broker-a",
    "configs": "exportConfigs -c DefaultCluster -f FOLDER",
    "metrics": "exportMetrics -c DefaultCluster -f FOLDER",
    "metadata": "exportMetadata -c DefaultCluster -f FOLDER",
    "topics and groups": "topicList -c",
    "stats": "statsAll -t orders",  # late: the counts are of the last minute
    "topicList": "topicList",  # the last: a query makes a topic for the retries of its own group
}
BEFORE = [
    "updateTopic -b BROKER -t orders -r 2 -w 2",
    "updateSubGroup -b BROKER -g audits -r 3 -q 2 -d true",
    "updateTopic -c DefaultCluster -t madeByJava -r 3 -w 5 -p 4 -a +message.type=FIFO",
    "updateTopic -c DefaultCluster -t unit -r 1 -w 1 -u true -s true",
    f"updateSubGroup -b BROKER -g polished -p {POLICY} -i 1 --attributes +priority.factor=50",
]


class Cluster(NamedTuple):
    """A cluster with a producer and a consumer, what mqadmin printed of it, and both ways to ask it."""

    namesrv: str
    printed: dict[str, str]
    mqadmin: Callable[[str], str]
    ours: Callable[..., list[dict[str, Any]]]
    folder: Path  # mqadmin has exported its files to it


@pytest.fixture(scope="module", params=["the real cluster", "our broker"])
def cluster(request: pytest.FixtureRequest, java: None) -> Iterator[Cluster]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gantrymq-admin-")))
        if request.param == "our broker":
            running: Any = stack.enter_context(EmbeddedBroker(settings=SETTINGS))
            broker = running.address
        else:
            running = stack.enter_context(JavaCluster(folder / "store", SETTINGS))
            broker = running.broker

        def mqadmin(*lines: str) -> list[str]:
            file = folder / "lines.txt"
            file.write_text("".join(line.replace("BROKER", broker) + "\n" for line in lines))
            found = run_java("mqadmin", None, str(file), namesrv=running.namesrv, timeout=600, cwd=folder)
            return ["\n".join(one for one in line["printed"].splitlines() if " WARN " not in one) for line in found]

        def ours(*words: str) -> list[dict[str, Any]]:
            command = [sys.executable, "-m", "gantrymq", *words, "-n", running.namesrv, "--json"]
            ended = subprocess.run(command, capture_output=True, check=False, timeout=60)
            assert (ended.returncode, ended.stderr.decode()) == (0, ""), words
            return [json.loads(line) for line in ended.stdout.splitlines()]

        mqadmin(*BEFORE)
        words = stack.enter_context(members(running.namesrv))
        deadline = time.monotonic() + 60  # until the consumer has said how far it is
        while any(one["diff"] for one in ours("admin", "group", "progress", "watchers", "-t", "orders")):
            assert time.monotonic() < deadline
        words = {"FIRST": words["FIRST"], "FOLDER": str(folder)}
        lines = [re.sub("|".join(words), lambda word: words[word.group()], line) for line in LINES.values()]
        printed = dict(zip(LINES, mqadmin(*lines), strict=False))
        yield Cluster(running.namesrv, printed, lambda line: mqadmin(line)[0], ours, folder)


def table(printed: str, *, columns: int) -> list[list[str]]:
    """The rows below the headings, each with its first columns."""
    lines = printed.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("#"))
    rows = []
    for line in lines[begin + 1 :]:
        if not line.strip() or line.startswith("#"):
            break
        rows.append(line.split()[:columns])
    return sorted(rows)


def fields(printed: str, separator: str) -> dict[str, str]:
    pairs = [line.partition(separator) for line in printed.splitlines() if separator in line]
    return {name.strip(): value.strip() for name, _, value in pairs}


def json_in(printed: str) -> dict[str, Any]:
    """The JSON object among what mqadmin printed."""
    assert "{" in printed, printed
    found: dict[str, Any] = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
    return found


def texts(lines: list[dict[str, Any]], *names: str) -> list[list[str]]:
    return sorted([str(line[name]) for name in names] for line in lines)


def test_topic_and_cluster_commands_equal_mqadmin(cluster: Cluster) -> None:
    assert sorted(cluster.printed["topicList"].split()) == sorted(
        line["topic"] for line in cluster.ours("admin", "topic", "list")
    )
    shown = cluster.ours("admin", "cluster")
    assert table(cluster.printed["clusterList"], columns=5) == texts(
        shown, "cluster", "brokerName", "brokerId", "address", "version"
    )
    [row] = cluster.printed["clusterList"].splitlines()[-1:]
    assert [line["active"] for line in shown] == [row.split()[-1] == "true"]
    route = json.loads(re.sub(r"(\d+):\"", r'"\1":"', cluster.printed["topicRoute"]))
    names = ("brokerName", "readQueueNums", "writeQueueNums", "perm", "topicSysFlag")
    found = cluster.ours("admin", "topic", "route", "orders")
    assert [[one[name] for name in names] for one in found] == [
        [one[name] for name in names] for one in route["queueDatas"]
    ]
    assert [one["addresses"] for one in found] == [one["brokerAddrs"] for one in route["brokerDatas"]]


def test_topic_status_commands_equal_mqadmin(cluster: Cluster) -> None:
    status = cluster.ours("admin", "topic", "status", "orders")
    assert table(cluster.printed["topicStatus"], columns=4) == texts(
        status, "brokerName", "queueId", "minOffset", "maxOffset"
    )
    [row] = table(cluster.printed["stats"], columns=7)
    [line] = cluster.ours("admin", "stats", "-t", "orders")
    names = ("topic", "group", "accumulation", "inMsg24Hour", "outMsg24Hour")
    assert [row[at] for at in (0, 1, 2, 5, 6)] == [str(line[name]) for name in names]


def test_group_and_client_commands_equal_mqadmin(cluster: Cluster) -> None:
    progress = cluster.ours("admin", "group", "progress", "watchers", "-t", "orders")
    names = ("topic", "brokerName", "queueId", "brokerOffset", "consumerOffset", "diff", "inflight")
    assert table(cluster.printed["progress"], columns=7) == texts(progress, *names)
    [row] = [row for row in table(cluster.printed["all progress"], columns=7) if row[0] == "watchers"]
    [line] = [one for one in cluster.ours("admin", "group", "progress") if one["group"] == "watchers"]
    assert [row[at] for at in (0, 1, 2, 4, 6)] == [
        str(line[name]) for name in ("group", "count", "version", "messageModel", "diffTotal")
    ]
    assert row[3] == line["type"] == "PUSH"
    assert line["consumeType"] == "CONSUME_PASSIVELY"
    [member] = cluster.ours("admin", "group", "members", "watchers")
    assert table(cluster.printed["connection"], columns=4) == texts(
        [member], "clientId", "address", "language", "version"
    )
    said = fields(cluster.printed["connection"], ": ")
    assert [member[name] for name in ("consumeType", "messageModel", "consumeFromWhere")] == [
        said[name] for name in ("ConsumeType", "MessageModel", "ConsumeFromWhere")
    ]
    below = cluster.printed["connection"].partition("#SubExpression")[2].partition("ConsumeType")[0]
    assert member["subscriptions"] == dict(line.split() for line in below.splitlines() if line.strip())
    [shop] = [one for one in cluster.ours("admin", "producer", "list") if one["group"] == "shop"]
    for name, text in (("clientId", shop["clientId"]), ("remoteIP", shop["remoteAddress"])):
        assert f"{name}={text}" in cluster.printed["producer"]
    [connected] = cluster.ours("admin", "connection", "producers", "shop", "-t", "orders")
    assert cluster.printed["producer connection"].split()[1:] == [
        connected[name] for name in ("clientId", "address", "language", "version")
    ]
    config = fields(cluster.printed["group config"], "=")
    [group] = cluster.ours("admin", "group", "config", "audits")
    for name in ("consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable", "retryQueueNums", "retryMaxTimes",
                 "whichBrokerWhenConsumeSlowly", "groupSysFlag", "consumeTimeoutMinute"):  # fmt: skip
        assert config[name] == str(group[name]).lower()


def test_message_commands_equal_mqadmin(cluster: Cluster) -> None:
    found = cluster.ours("admin", "message", "by-key", "orders", "key1")
    assert table(cluster.printed["by key"], columns=3) == texts(found, "msgId", "queueId", "queueOffset")
    said = fields(cluster.printed["by id"], ":")
    [shown] = cluster.ours("admin", "message", "by-id", "orders", said["OffsetID"])
    for name, ours in (
        ("OffsetID", "offsetMsgId"), ("Topic", "topic"), ("Queue ID", "queueId"), ("Queue Offset", "queueOffset"),
        ("CommitLog Offset", "phyOffset"), ("Reconsume Times", "reconsumeTimes"), ("Born Host", "bornHost"),
        ("Store Host", "storeHost"), ("System Flag", "sysFlag"),
    ):  # fmt: skip
        assert said[name] == str(shown[ours]), name
    assert set(said["Properties"].strip("{}").split(", ")) == {
        f"{key}={value}" for key, value in shown["properties"].items()
    }
    tracked = cluster.ours("admin", "message", "track", "orders", shown["msgId"])
    printed = re.findall(r"MessageTrack \[consumerGroup=(\S+), trackType=(\w+),", cluster.printed["by id"])
    assert [(one["group"], one["state"]) for one in tracked] == printed == [("watchers", "CONSUMED")]
    said = fields(cluster.printed["by offset"], ":")
    [shown] = cluster.ours("admin", "message", "by-offset", "orders", "1", "1", "-b", "broker-a")
    assert said["OffsetID"] == shown["offsetMsgId"]


def test_message_queries_by_tag_and_index_equal_mqadmin(cluster: Cluster) -> None:
    for printed, words in (
        ("by key with index", ("by-key", "orders", "key1")),
        ("by tag", ("by-key", "orders", "TagA", "--key-type", "T")),
    ):
        found = cluster.ours("admin", "message", *words)
        assert table(cluster.printed[printed], columns=4) == texts(found, "msgId", "queueId", "queueOffset", "indexKey")
    assert len(found) == 4
    assert "#Message ID" not in cluster.printed["no tag"]
    counted = re.findall(r"^Tag: (\S+) +Count: (\d+)", cluster.printed["tags"], re.M)
    words = ("message", "print", "orders", "-q", "0", "-b", "broker-a", "--count-tags")
    assert [list(one) for one in counted] == texts(cluster.ours("admin", *words), "tags", "count")
    units = cluster.ours("admin", "message", "units", "orders", "0", "0", "--count", "2", "-g", "watchers")
    printed = re.findall(
        r"physicOffset=(\d+), physicSize=(\d+), tagsCode=(-?\d+).*eval=(\w+)", cluster.printed["units"]
    )
    assert [list(one) for one in printed] == [
        [str(one[name]).lower() for name in ("phyOffset", "size", "tagsCode", "passesFilter")] for one in units
    ]
    assert f"max: {units[0]['maxOffset']}, min: {units[0]['minOffset']}" in cluster.printed["units"]
    assert f'"subString":"{units[0]["subscription"]}"' in cluster.printed["units"]


def test_group_and_topic_with_every_setting_equal_mqadmin(cluster: Cluster) -> None:
    said = fields(cluster.printed["policy"], "=")
    [group] = cluster.ours("admin", "group", "config", "polished")
    assert "initial=1000, max=9000, multiplier=3" in said["groupRetryPolicy"]
    assert group["groupRetryPolicy"]["exponentialRetryPolicy"] == {"initial": 1000, "max": 9000, "multiplier": 3}
    assert (said["brokerId"], said["attributes"]) == ("1", "{priority.factor=50}")
    assert (group["groupBrokerId"], group["attributes"]) == (1, {"priority.factor": "50"})
    words = ("-p", POLICY, "-i", "1", "--attributes", "+priority.factor=50")
    [made] = cluster.ours("mqadmin", "updateSubGroup", "-b", "broker-a", "-g", "polishedByUs", *words)
    assert {**made, "group": "", "created": ""} == {**group, "group": "", "created": ""}
    [unit] = cluster.ours("admin", "topic", "route", "unit")
    assert '"topicSysFlag":3' in cluster.printed["unit"]
    assert unit["topicSysFlag"] == 3
    words = ("-t", "unitByUs", "-r", "1", "-w", "1", "-u", "true", "-s", "true")
    assert cluster.ours("mqadmin", "updateTopic", "-c", "DefaultCluster", *words)[0]["topicSysFlag"] == 3


def test_broker_consume_stats_equal_mqadmin(cluster: Cluster) -> None:
    names = ("topic", "group", "brokerName", "queueId", "brokerOffset", "consumerOffset", "diff")
    found = [one for one in cluster.ours("admin", "broker", "consume-stats", "-b", "broker-a") if one["lastTimestamp"]]
    rows = table(cluster.printed["consume stats"], columns=7)
    assert (
        [row for row in rows if row[1] == "watchers"]
        == [row for row in texts(found, *names) if row[1] == "watchers"]
        != []
    )
    [state] = cluster.ours("admin", "group", "state", "watchers")
    assert table(cluster.printed["state"], columns=3) == [["1", state["clientId"], state["version"]]]
    assert ("Same subscription" in cluster.printed["state"]) == state["sameSubscription"] is True
    assert ("Rebalance OK" in cluster.printed["state"]) == state["rebalanceOk"] is True
    assert state["problems"] == []
    progress = cluster.ours("admin", "group", "progress", "watchers", "-t", "orders")
    said = fields(cluster.printed["progress"], ": ")
    assert said["Consume Diff Total"] == str(sum(one["diff"] for one in progress))
    assert said["Consume Inflight Total"] == str(sum(one["inflight"] for one in progress))
    allocated = cluster.ours("admin", "topic", "allocate", "orders", "a,b,c")
    shares = json.loads(cluster.printed["allocation"])["result"]
    assert {one["client"]: [one["queueId"]] for one in allocated} == {
        client: [queue["queueId"] for queue in queues] for client, queues in shares.items() if queues
    }
    rows = [line.split() for line in cluster.printed["topics and groups"].splitlines() if "orders" in line]
    assert rows == texts(
        [one for one in cluster.ours("admin", "topic", "list", "--detail") if one["topic"] == "orders"],
        "cluster", "topic", "group",
    )  # fmt: skip


def test_commands_for_features_of_real_broker_equal_mqadmin(cluster: Cluster) -> None:
    [ha] = cluster.ours("admin", "ha", "-b", "broker-a")
    said = fields(cluster.printed["ha"], "\t")
    assert (said["#MasterAddr"], said["#SlaveNum"], said["#InSyncSlaveNum"]) == (
        ha["address"], str(ha["slaves"]), str(ha["inSyncSlaves"]),
    )  # fmt: skip
    [cold] = cluster.ours("admin", "broker", "cold-data", "get", "-b", "broker-a")
    assert json_in(cluster.printed["cold"]) == cold["coldData"]
    assert "success" in cluster.printed["flush offset"]
    assert cluster.ours("admin", "broker", "flush-offset", "0", "-b", "broker-a")
    assert "success" in cluster.printed["timer files"]
    assert cluster.ours("admin", "broker", "timer-engine", "F", "-b", "broker-a")
    for name, words in (("timer RocksDB", ("timer-engine", "R")), ("epoch", ("epoch",))):
        [reason] = re.findall(r"DESC: (.*\S)", cluster.printed[name])
        command = [sys.executable, "-m", "gantrymq", "admin", "broker", *words, "-b", "broker-a", "-n", cluster.namesrv]
        ended = subprocess.run(command, capture_output=True, check=False, timeout=60, text=True)
        assert ended.returncode == 3
        assert reason in ended.stderr


def test_exported_files_equal_those_of_mqadmin(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("exportConfigs", "exportMetrics", "exportMetadata"):
        cluster.ours("mqadmin", name, "-c", "DefaultCluster", "-f", str(tmp_path))
    theirs, ours = (
        [json.loads((folder / f"{name}.json").read_text()) for name in ("configs", "metrics", "metadata")]
        for folder in (cluster.folder, tmp_path)
    )
    assert theirs[0] == ours[0]
    assert _shape(theirs[1]) == _shape(ours[1])
    for one in ("topicSize", "groupSize"):
        quotas = [found[1]["evaluateReport"]["broker-a"]["runtimeQuota"][one] for found in (theirs, ours)]
        assert quotas[0] <= quotas[1]  # other tests make some
    for kind in ("topicConfigTable", "subscriptionGroupTable"):
        assert theirs[2][kind].keys() <= ours[2][kind].keys()
        for name, config in theirs[2][kind].items():
            if name not in ("watchers", "TOOLS_CONSUMER"):
                assert config.items() <= ours[2][kind][name].items(), name


def _shape(value: Any) -> Any:
    """The names of a JSON object, and the texts in it that do not move."""
    if isinstance(value, dict):
        return {name: _shape(one) for name, one in value.items()}
    return value if isinstance(value, list) else None


@pytest.mark.parametrize("cluster", ["the real cluster"], indirect=True)  # our broker has none of these
def test_cold_data_lite_and_rocksdb_commands_work_at_real_broker(cluster: Cluster) -> None:
    where = ("-b", "broker-a")
    cluster.ours("mqadmin", "updateColdDataFlowCtrGroupConfig", *where, "-g", "watchers", "-v", "1000000")
    said = cluster.mqadmin("getColdDataFlowCtrInfo -b BROKER")
    assert json_in(said)["configTable"] == {"watchers": 1_000_000}
    [cold] = cluster.ours("mqadmin", "getColdDataFlowCtrInfo", *where)
    assert cold["coldData"]["configTable"] == {"watchers": 1_000_000}
    cluster.ours("mqadmin", "removeColdDataFlowCtrGroupConfig", *where, "-g", "watchers")
    assert cluster.ours("mqadmin", "getColdDataFlowCtrInfo", *where)[0]["coldData"]["configTable"] == {}
    [mode] = cluster.ours("mqadmin", "setCommitLogReadAheadMode", *where, "-m", "1")
    assert mode["done"] == "set commitlog readahead mode success, mode: 1"
    cluster.ours("mqadmin", "setCommitLogReadAheadMode", *where, "-m", "0")
    cluster.ours("mqadmin", "exportPopRecord", *where)
    cluster.ours("mqadmin", "rocksDBConfigToJson", *where, "-t", "topics")
    row = cluster.mqadmin("getBrokerLiteInfo -b BROKER").splitlines()[-1].split()
    [lite] = cluster.ours("mqadmin", "getBrokerLiteInfo", *where)
    names = ("address", "storeType", "maxLmqNum", "currentLmqNum", "liteSubscriptionCount", "orderInfoCount")
    assert row[:6] == [str(lite[name]) for name in names]


@pytest.fixture(scope="module")
def guarded(java: None) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """gantrymq as the administrator of a real cluster with users and policies, and ``mqadmin`` of it."""
    package = "org.apache.rocketmq.auth"
    auth = {
        "authenticationEnabled": "true", "authorizationEnabled": "true",
        "authenticationProvider": f"{package}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{package}.authentication.provider.LocalAuthenticationMetadataProvider",
        "authorizationProvider": f"{package}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{package}.authorization.provider.LocalAuthorizationMetadataProvider",
        "initAuthenticationUser": '{"username":"alice","password":"secret12"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"alice","secretKey":"secret12"}',
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="gantrymq-auth-") as folder:
        home = Path(folder) / "home" / "conf"
        home.mkdir(parents=True)
        (home / "tools.yml").write_text("accessKey: alice\nsecretKey: secret12\n")
        with JavaCluster(Path(folder) / "store", auth=auth) as running:

            def ours(*words: str, code: int = 0) -> list[dict[str, Any]]:
                command = [sys.executable, "-m", "gantrymq", "mqadmin", *words, "-n", running.namesrv, "--json"]
                environment = {**os.environ, "ROCKETMQ_HOME": str(home.parent)}
                ended = subprocess.run(command, capture_output=True, check=False, timeout=60, env=environment)
                assert ended.returncode == code, ended.stderr.decode()
                return [json.loads(line) for line in ended.stdout.splitlines()]

            yield ours


@pytest.mark.skipif(release() != OLD_RELEASE, reason="Maven has no auth of 5.5.1")
def test_user_and_policy_commands_work_at_real_broker(guarded: Callable[..., list[dict[str, Any]]]) -> None:
    where = ("-b", "broker-a")
    assert [one["username"] for one in guarded("listUser", *where)] == ["alice"]
    guarded("createUser", "-c", "DefaultCluster", "-u", "bob", "-p", "bobpass12", "-t", "Normal")
    guarded("updateUser", *where, "-u", "bob", "-s", "disable")
    [bob] = guarded("getUser", *where, "-u", "bob")
    assert [bob[name] for name in ("username", "userType", "userStatus")] == ["bob", "Normal", "disable"]
    assert "password" not in bob
    assert [one["username"] for one in guarded("listUser", *where, "-f", "bo")] == ["bob"]
    guarded("getUser", *where, "-u", "carol", code=3)
    policy = ("-s", "User:bob", "-a", "Pub,Sub", "-i", "192.168.0.0/16")
    guarded("createAcl", *where, *policy, "-r", "Topic:orders,Group:*", "-d", "Allow")
    found = {one["resource"]: one for one in guarded("getAcl", *where, "-s", "User:bob")}
    assert found.keys() == {"Topic:orders", "Group:*"}
    assert (found["Group:*"]["actions"], found["Group:*"]["sourceIps"]) == (["Pub", "Sub"], ["192.168.0.0/16"])
    guarded("updateAcl", *where, "-s", "User:bob", "-r", "Topic:orders", "-a", "Sub", "-d", "Deny")
    [one] = guarded("listAcl", *where, "-s", "bob", "-r", "orders")
    assert (one["actions"], one["decision"]) == (["Sub"], "Deny")
    assert [one["subject"] for one in guarded("copyUser", "-f", "broker-a", "-t", "broker-a", "-u", "bob")] == ["bob"]
    assert guarded("copyAcl", "-f", "broker-a", "-t", "broker-a")
    guarded("deleteAcl", *where, "-s", "User:bob", "-r", "Topic:orders")
    assert [one["resource"] for one in guarded("listAcl", *where)] == ["Group:*"]
    guarded("deleteUser", *where, "-u", "bob")
    assert [one["username"] for one in guarded("listUser", *where)] == ["alice"]


def test_trace_command_equals_mqadmin(cluster: Cluster) -> None:
    msg_id = "AC110001" * 4
    records = [
        TraceRecord(TraceType.PUB, 1000, group="shop", topic="orders", msg_id=msg_id, cost_ms=5, store_host="a:5"),
        TraceRecord(TraceType.SUB_BEFORE, 2000, group="readers", msg_id=msg_id, request_id="r"),
        TraceRecord(TraceType.SUB_AFTER, 3000, group="readers", msg_id=msg_id, request_id="r", cost_ms=7),
    ]
    cluster.ours("admin", "topic", "create", "traces", "--queues", "1")
    cluster.ours("admin", "message", "send", "traces", encode_traces(records), "-k", msg_id)
    time.sleep(1)  # the real broker indexes after it has acknowledged
    printed = cluster.mqadmin(f"queryMsgTraceById -i {msg_id} -t traces")
    rows = re.findall(r"^(Pub|Sub) +(\S+) +(\S+) +\S+ \S+ +(\d+)ms +(\w+)", printed, re.M)
    found = [one for one in cluster.ours("admin", "message", "trace", msg_id, "--trace-topic", "traces")
             if one["type"] != "SubBefore"]  # fmt: skip
    status = {True: "success", False: "failed"}
    assert rows == [
        (one["type"][:3], one["group"], one["clientHost"], str(one["costMs"]), status[one["success"]]) for one in found
    ]
    assert [row[0] for row in rows] == ["Pub", "Sub"]


# What changes between two questions, or with the first of a kind.
MOVING = re.compile(
    "(?i)remainHowMany|tps|time|latency|capacity|distri|runtime|total|today|wait|size|ratio|disk|offset|count|average|timestamp|queue"
)


def test_broker_commands_equal_mqadmin(cluster: Cluster) -> None:
    printed = fields(cluster.printed["status"], ":")
    [shown] = cluster.ours("admin", "broker", "status", "-b", "broker-a")
    assert printed.keys() == shown["status"].keys()
    same = [name for name in printed if not MOVING.search(name)]
    assert "brokerVersionDesc" in same
    assert {name: printed[name] for name in same} == {name: shown["status"][name].strip() for name in same}
    printed = fields(cluster.printed["config"], " =  ")
    [shown] = cluster.ours("admin", "broker", "config", "get", "-b", "broker-a")
    assert len(printed) > 100
    assert {name: value.strip() for name, value in shown["config"].items()} == printed


def test_changes_are_seen_by_both_tools(cluster: Cluster) -> None:
    made = "-r 3 -w 5 -p 4 -a +message.type=FIFO".split()
    [line] = cluster.ours("mqadmin", "updateTopic", "-c", "DefaultCluster", "-t", "madeByUs", *made)
    assert line["created"]
    exported = {one["topicName"]: one for one in map(json.loads, _exported(cluster)) if one["kind"] == "topic"}
    assert exported["madeByUs"] | {"topicName": ""} == exported["madeByJava"] | {"topicName": ""}
    cluster.ours("admin", "group", "reset", "watchers", "-t", "orders", "--to", "0", "-q", "0", "-b", "broker-a")
    cluster.ours("admin", "broker", "config", "set", "fileReservedTime=47", "-b", "broker-a")
    assert fields(cluster.mqadmin("getBrokerConfig -b BROKER"), " =  ")["fileReservedTime"] == "47"
    cluster.ours("admin", "topic", "perm", "madeByUs", "RW")
    route = cluster.mqadmin("topicRoute -t madeByUs")
    assert '"perm":6' in route
    cluster.ours("admin", "topic", "delete", "madeByUs")
    assert "madeByUs" not in cluster.mqadmin("topicList").split()


def test_dlq_resend_delivers_letter_to_its_group(cluster: Cluster) -> None:
    cluster.ours("admin", "topic", "create", "%DLQ%watchers", "--queues", "1")
    with Producer(cluster.namesrv) as producer:
        letter = Message("%DLQ%watchers", b"dead", keys=("k",), tags="T", properties={"RETRY_TOPIC": "orders"})
        sent = producer.send(letter)
    deadline = time.monotonic() + 60
    while not cluster.ours("admin", "dlq", "list")[0]["messages"]:
        assert time.monotonic() < deadline
    [line] = cluster.ours("admin", "dlq", "resend", "watchers", "--id", sent.msg_id)
    assert (line["status"], line["originTopic"]) == ("SEND_OK", "orders")
    while not (found := cluster.ours("admin", "group", "progress", "watchers", "-t", "%RETRY%watchers")) or any(
        one["consumerOffset"] == 0 for one in found
    ):
        assert time.monotonic() < deadline, "the consumer of the group has not got it"
    [again] = cluster.ours("admin", "message", "print", "%RETRY%watchers")
    assert (again["body"], again["properties"]["RETRY_TOPIC"]) == ("dead", "orders")


def _exported(cluster: Cluster) -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.jsonl"
        cluster.ours("admin", "export", str(file))
        return file.read_bytes().splitlines()


def test_names_and_option_letters_equal_those_of_mqadmin(java: None, tmp_path: Path) -> None:
    names = sorted([*SUBCOMMANDS, *UNSUPPORTED])
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"help {name}\n" for name in names))
    found = run_java("mqadmin", None, str(file), namesrv="127.0.0.1:1", timeout=600, cwd=tmp_path)
    assert [name for name, line in zip(names, found, strict=True) if "not exist" in line["printed"]] == []
    unlike = {}
    for name, line in zip(names, found, strict=True):
        real = set(re.findall(r"^ *-(\w+),", line["printed"], re.M)) - {"h", "n"}
        ours = {one.partition("/")[0] for one in SUBCOMMANDS[name].options.split()} if name in SUBCOMMANDS else real
        if real != ours - {""}:
            unlike[name] = real ^ (ours - {""})
    assert unlike == {}
