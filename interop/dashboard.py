"""RocketMQ's dashboard at the real cluster and at ours: the same requests, and where the answers are not of one shape.

    git clone https://github.com/apache/rocketmq-dashboard dashboard && cd dashboard
    mvn -DskipTests compiler:compile resources:resources dependency:copy-dependencies -DoutputDirectory=target/lib
    .venv/bin/python interop/dashboard.py dashboard/target

The dashboard is not in any package registry, so no test runs it; this is for whoever has built it. The order is that of
a person at work: look around, make a topic and a group, send, find the message again, reset offsets, delete.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.race.process import JavaSide, serve_ours, serving

UP_WITHIN_S = 120
SETTLED_S = 1.0
MINUTES_MS = 600_000
TOPIC, GROUP = "DashTopic", "DashGroup"


class Dashboard:
    """A running dashboard; ``answers`` by the names of the requests."""

    def __init__(self, target: Path, namesrv: str, data: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        options = {"server.port": port, "rocketmq.config.namesrvAddrs[0]": namesrv, "rocketmq.config.dataPath": data}
        options |= {"rocketmq.config.isVIPChannel": "false", "rocketmq.config.loginRequired": "false"}
        words = ["java", "-cp", f"{target}/classes:{target}/lib/*", "org.apache.rocketmq.dashboard.App"]
        words += [f"--{name}={value}" for name, value in options.items()]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=data)
        self._open = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar())).open
        self._base, self._token = f"http://127.0.0.1:{port}", ""
        self.answers: dict[str, Any] = {}

    def __enter__(self) -> Dashboard:
        deadline = time.monotonic() + UP_WITHIN_S
        while not self._token:
            try:
                self._token = self._read("/rocketmq-dashboard/csrf-token", None)["data"]["token"]
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, name: str, path: str, body: object = None, **query: object) -> Any:
        """One request, kept under its name; what it brings in ``data``."""
        try:
            found = self._read(f"{path}?{urlencode(query)}", body)
        except urllib.error.HTTPError as error:
            found = {"status": error.code, "data": None}
        self.answers[name] = found
        return found["data"]

    def _read(self, path: str, body: object) -> Any:
        headers = {"Content-Type": "application/json", "X-XSRF-TOKEN": self._token}
        raw = None if body is None else json.dumps(body).encode()
        return json.loads(self._open(urllib.request.Request(self._base + path, raw, headers), timeout=30).read())


def visit(dashboard: Dashboard) -> None:
    """All requests, in order."""
    ask, now_ms = dashboard.ask, int(time.time() * 1000)
    cluster = ask("cluster", "/cluster/list.query")["clusterInfo"]
    cluster_name, brokers = next(iter(cluster["clusterAddrTable"].items()))
    broker = brokers[0]
    address = cluster["brokerAddrTable"][broker]["brokerAddrs"]["0"]
    where = {"clusterNameList": [cluster_name], "brokerNameList": [broker]}
    span = {"begin": now_ms - MINUTES_MS, "end": now_ms + MINUTES_MS}
    ask("configuration", "/cluster/brokerConfig.query", brokerAddr=address)
    queues = {"writeQueueNums": 4, "readQueueNums": 4, "perm": 6, "order": False, "messageType": "NORMAL"}
    ask("make topic", "/topic/createOrUpdate.do", {**where, "topicName": TOPIC, **queues})
    group = {"groupName": GROUP, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0}
    ask("make group", "/consumer/createOrUpdate.do", {**where, "subscriptionGroupConfig": group})
    time.sleep(SETTLED_S)
    ask("topics", "/topic/list.query", skipSysProcess="false", skipRetryAndDlq="false")
    for name in ("examineTopicConfig", "route"):
        ask(name, f"/topic/{name}.query", topic=TOPIC)
    sent = ask(
        "send",
        "/topic/sendTopicMessage.do",
        {"topic": TOPIC, "tag": "t", "key": "k", "messageBody": "hello", "traceEnabled": False},
    )
    time.sleep(SETTLED_S)
    for name in ("stats", "queryConsumerByTopic", "queryTopicConsumerInfo"):
        ask(name, f"/topic/{name}.query", topic=TOPIC)
    ask("by id", "/message/viewMessage.query", msgId=sent["msgId"], topic=TOPIC)
    ask("by key", "/message/queryMessageByTopicAndKey.query", topic=TOPIC, key="k")
    ask("by time", "/message/queryMessageByTopic.query", topic=TOPIC, **span)
    ask("trace", "/messageTrace/viewMessageTraceDetail.query", msgId=sent["msgId"])
    ask("groups", "/consumer/groupList.query", skipSysGroup="false")
    offsets = {"consumerGroupList": [GROUP], "topic": TOPIC, "resetTime": -1, "force": True}
    ask("reset", "/consumer/resetOffset.do", offsets)
    ask("skip", "/consumer/skipAccumulate.do", offsets)
    for name in ("group", "examineSubscriptionGroupConfig", "fetchBrokerNameList"):
        ask(name, f"/consumer/{name}.query", consumerGroup=GROUP)
    for name in ("queryTopicByConsumer", "consumerConnection"):
        ask(name, f"/consumer/{name}.query", consumerGroup=GROUP)
    ask("producer", "/producer/producerConnection.query", producerGroup="nobody", topic=TOPIC)
    page = {"topic": f"%DLQ%{GROUP}", **span, "pageNum": 1, "pageSize": 20}
    ask("dead letters", "/dlqMessage/queryDlqMessageByConsumerGroup.query", page)
    ask("today", "/dashboard/broker.query", date=time.strftime("%F"))
    for name in ("homePage", "rocketMqStatus"):
        ask(name, f"/ops/{name}.query")
    ask("delete group", "/consumer/deleteSubGroup.do", {"groupName": GROUP, "brokerNameList": [broker]})
    ask("delete topic", "/topic/deleteTopic.do", {}, topic=TOPIC, clusterName=cluster_name)


def differences(theirs: Any, ours: Any, place: str = "") -> Iterator[str]:
    """Where two answers have not the same keys, kinds and statuses; values are their own."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in sorted(theirs.keys() | ours.keys()):
            if (name in theirs) != (name in ours):
                yield f"{place}.{name}: only {'theirs' if name in theirs else 'ours'}"
            else:
                yield from differences(theirs[name], ours[name], f"{place}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list):
        for pair in zip(theirs, ours, strict=False):
            yield from differences(*pair, f"{place}[]")
    elif type(theirs) is not type(ours) or (place.endswith(".status") and theirs != ours):
        yield f"{place}: {theirs!r}, ours {ours!r}"


def main(target: Path) -> None:
    """Visit both and print what differs."""
    java = JavaSide.find(None)
    if java is None:
        raise SystemExit("make interop first")
    found = {}
    for side in ("theirs", "ours"):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dashboard-")))
            store = folder / "store"
            words: Sequence[str] = serve_ours(store, {}) if side == "ours" else java.cluster(store, {})
            namesrv = stack.enter_context(serving(words))["namesrv"]
            dashboard = stack.enter_context(Dashboard(target, namesrv, folder))
            visit(dashboard)
            found[side] = dashboard.answers
    for name, theirs in found["theirs"].items():
        told = list(differences(theirs, found["ours"][name]))
        print(f"{name}: {'the same' if not told else f'{len(told)} differences'}")
        for line in told[:10]:
            print(f"    {line[:160]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
