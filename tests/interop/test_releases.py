"""RocketMQ 5.5.1 beside 5.5.0: what each answers where they differ, and that ours answers as the newer one.

What differs between the releases on disk is played in the other tests, with GANTRYMQ_ROCKETMQ=5.5.1.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gantrymq import AdminClient, PullClient
from gantrymq.client.requests.records import decode_records
from gantrymq.errors import MQClientError
from gantrymq.model import fastjson
from gantrymq.model.host import Host
from gantrymq.model.message import message_id, parse_message_id
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.codes import VERSION_5_5_0, VERSION_5_5_1, RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.client import RemotingClient

from .java import NEW_RELEASE, OLD_RELEASE, Setting
from .java_cluster import JavaCluster
from .our_broker import OurBroker

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]

OURS = "ours"
MAX_BODY_BYTES = 4096
SETTINGS: dict[str, Setting] = {
    "timerWheelEnable": True,
    "maxMessageSize": MAX_BODY_BYTES,
    "enablePropertyFilter": True,
}
Answer = tuple[int, str]
SUCCESS = int(ResponseCode.SUCCESS)
UNKNOWN, WRONG = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), int(ResponseCode.INVALID_PARAMETER)
MISMATCH = (int(ResponseCode.NO_PERMISSION), "The topic does not match the message")


class Side:
    """One of the three brokers, with its own name server and store."""

    def __init__(self, broker: str, namesrv: str, store: Path) -> None:
        self.broker, self.namesrv, self.store = broker, namesrv, store

    def ask(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> RemotingCommand:
        """The answer to one request."""
        texts = {name: str(value) for name, value in (fields or {}).items()}

        async def once() -> RemotingCommand:
            client = RemotingClient()
            try:
                return await client.invoke(self.broker, RemotingCommand(code, ext_fields=texts, body=body), 20_000)
            finally:
                await client.close()

        return asyncio.run(once())

    def answer(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> Answer:
        """Code and remark of the answer."""
        said = self.ask(code, fields, body)
        return said.code, (said.remark or "").strip()

    def send(self, topic: str, body: bytes = b"m", *, sys_flag: int = 0, **properties: str) -> int:
        """Send a message to queue 0, and return its physical offset."""
        values = ("P", topic, "TBW102", 4, 0, sys_flag, time.time_ns() // 1_000_000, 0)
        fields = dict(zip("abcdefgh", values, strict=True)) | {"j": 0, "k": "false", "m": "false"}
        fields["i"] = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        sent = self.ask(RequestCode.SEND_MESSAGE_V2, fields, body)
        assert sent.code == SUCCESS, sent.remark
        return parse_message_id(sent.ext_fields["msgId"])[1]

    def create_group(self, group: str) -> None:
        body = json.dumps({"groupName": group}).encode()
        assert self.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == SUCCESS

    def commit(self, group: str, topic: str) -> None:
        fields = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 1}
        assert self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == SUCCESS

    def offsets(self) -> dict[str, Any]:
        """GET_ALL_CONSUMER_OFFSET."""
        found: dict[str, Any] = fastjson.loads(self.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body.decode())
        return found


@pytest.fixture(scope="module")
def sides(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Side]]:
    folder = tmp_path_factory.mktemp("releases")
    with ExitStack() as stack:
        found = {}
        for release in (OLD_RELEASE, NEW_RELEASE):
            store = folder / release
            cluster = stack.enter_context(JavaCluster(store, SETTINGS, of=release))
            found[release] = Side(cluster.broker, cluster.namesrv, store)
        namesrv = stack.enter_context(JavaCluster(None, broker=False)).namesrv
        broker = stack.enter_context(OurBroker(folder / OURS, SETTINGS, namesrv=namesrv))
        found[OURS] = Side(broker.address, namesrv, folder / OURS)
        yield found


def everywhere(old: object, new: object) -> dict[str, object]:
    """What is expected: the old release's, and that of the new one and ours."""
    return {OLD_RELEASE: old, NEW_RELEASE: new, OURS: new}


def body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_topic_list_is_refused_or_deleted_as_by_new_release(sides: dict[str, Side]) -> None:
    blank, unknown = "The specified topic is blank.", "request type 5002 not supported"
    cases = {
        b"": (WRONG, "The specified topic list is blank."),
        body(): (WRONG, "The specified topic list is blank."),
        body(topicList=[]): (WRONG, "The specified topic list is blank."),
        body(topicList=["A", " "]): (WRONG, blank),
        body(topicList=["A", None]): (WRONG, blank),
        body(topicList=["A", "TBW102"]): (WRONG, "The topic[TBW102] is conflict with system topic."),
        body(topicList=["A", "Unknown", "B", "A"]): (SUCCESS, ""),
    }
    for side in sides.values():
        side.create_group("G")
        for topic in ("A", "B", "Stays"):
            side.send(topic)
            side.commit("G", topic)
    for asked, expected in cases.items():
        found = {name: side.answer(RequestCode.DELETE_TOPIC_IN_BROKER_LIST, body=asked) for name, side in sides.items()}
        assert found == everywhere((UNKNOWN, unknown), expected), asked
        if expected[0] != SUCCESS:
            assert all("A" in topics_of(side) for side in sides.values()), asked
    found = {name: topics_of(side) & {"A", "B", "Stays"} for name, side in sides.items()}
    assert found == everywhere({"A", "B", "Stays"}, {"Stays"})
    kept = {name: {key for key in side.offsets()["offsetTable"] if key.endswith("@G")} for name, side in sides.items()}
    assert kept == everywhere({"A@G", "B@G", "Stays@G"}, {"Stays@G"})


def topics_of(side: Side) -> set[str]:
    table = fastjson.loads(side.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body.decode())["topicConfigTable"]
    return set(table)


def groups_of(side: Side) -> set[str]:
    answer = side.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return set(fastjson.loads(answer.body.decode())["subscriptionGroupTable"])


@pytest.mark.parametrize("with_offsets", [False, True])
def test_group_list_is_refused_or_deleted_as_by_new_release(sides: dict[str, Side], with_offsets: bool) -> None:
    groups = {f"{name}-{with_offsets}" for name in ("G1", "G2", "Kept")}
    gone = sorted(group for group in groups if "Kept" not in group)
    cases = {
        b"": (WRONG, "The specified group name list is blank."),
        body(groupNameList=[]): (WRONG, "The specified group name list is blank."),
        body(groupNameList=[*gone, ""]): (WRONG, "The specified group name is blank."),
        body(groupNameList=[*gone, None]): (WRONG, "The specified group name is blank."),
        body(groupNameList=[*gone, *gone, "Unknown"], cleanOffset=with_offsets): (SUCCESS, ""),
    }
    for side in sides.values():
        side.send("OfGroups")
        for group in groups:
            side.create_group(group)
            side.commit(group, "OfGroups")
    for asked, expected in cases.items():
        code = RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST
        found = {name: side.answer(code, body=asked) for name, side in sides.items()}
        assert found == everywhere((UNKNOWN, "request type 5003 not supported"), expected), asked
    kept = {f"Kept-{with_offsets}"}
    assert {name: groups_of(side) & groups for name, side in sides.items()} == everywhere(groups, kept)
    offsets = {
        name: {key.partition("@")[2] for key in side.offsets()["offsetTable"]} & groups for name, side in sides.items()
    }
    assert offsets == everywhere(groups, kept if with_offsets else groups)


def test_only_old_release_shows_message_under_other_topic(sides: dict[str, Side]) -> None:
    for side in sides.values():
        side.create_group("G")
    sent = {
        name: {
            "plain": side.send("Seen"),
            "half": side.send("Seen", sys_flag=4, TRAN_MSG="true", PGROUP="P"),
            "delayed": side.send("Seen", DELAY="18"),
            "timed": side.send("Seen", TIMER_DELAY_SEC="600"),
            "retry": side.send("%RETRY%G", RETRY_TOPIC="Seen"),
        }
        for name, side in sides.items()
    }

    def codes(kind: str, fields: dict[str, Any]) -> dict[str, object]:
        return {
            name: side.answer(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": sent[name][kind], **fields})
            for name, side in sides.items()
        }

    shown = (SUCCESS, "")
    for kind in ("plain", "half", "delayed", "timed"):
        for fields in ({"topic": "Seen"}, {"topic": " "}, {}):
            assert codes(kind, fields) == everywhere(shown, shown), (kind, fields)
        assert codes(kind, {"topic": "Other"}) == everywhere(shown, MISMATCH), kind
    assert codes("delayed", {"topic": "SCHEDULE_TOPIC_XXXX"}) == everywhere(shown, MISMATCH)
    assert codes("retry", {"topic": "%RETRY%G"}) == everywhere(shown, shown)
    assert codes("retry", {"topic": "Seen"}) == everywhere(shown, MISMATCH)


def test_our_admin_client_shows_retry_under_its_topic_at_each_release(sides: dict[str, Side]) -> None:
    for side in sides.values():
        side.create_group("G")
        sent = side.send("%RETRY%G", b"again", RETRY_TOPIC="Retried")
        msg_id = message_id(Host.parse(side.broker), sent)
        with AdminClient(side.namesrv) as admin:
            assert admin.view_message("Retried", msg_id).body == b"again"
            side.send("Other")
            with pytest.raises(MQClientError, match="no message"):
                admin.view_message("Other", msg_id)


def test_only_old_release_sends_table_of_pull_offsets(sides: dict[str, Side]) -> None:
    """Its slaves cannot read their master's offsets once a client has pulled."""
    for side in sides.values():
        side.send("Pulled")
        with PullClient(side.namesrv) as client:
            queue = client.queues("Pulled")[0]
            while client.max_offset(MessageQueue("Pulled", queue.broker_name, 0)) < 1:
                time.sleep(0.01)
            client.pull(MessageQueue("Pulled", queue.broker_name, 0), 0)
    found = {name: "pullOffsetTable" in side.offsets() for name, side in sides.items()}
    assert found == everywhere(old=True, new=False)


def test_only_old_release_loses_timer_message_above_limit_plus_100_bytes(
    sides: dict[str, Side],
) -> None:
    """5.5.0 reads a timer message into a buffer of maxMessageSize + 100 bytes, and drops one that does not fit."""
    for side in sides.values():
        side.send("Timed", b"s" * 100, TIMER_DELAY_MS="1000", note="short")
        side.send("Timed", b"l" * (MAX_BODY_BYTES - 10), TIMER_DELAY_MS="1000", note="n" * 500)
        side.send("Timed", b"e" * 50, TIMER_DELAY_MS="3000", note="last")
    found = {}
    for name, side in sides.items():
        bodies = set[bytes]()
        deadline = time.monotonic() + 60
        with PullClient(side.namesrv) as client:
            queue = client.queues("Timed")[0]
            while b"e" not in bodies and time.monotonic() < deadline:
                pulled = client.pull(MessageQueue("Timed", queue.broker_name, 0), 0)
                bodies = {bytes(one.body[:1]) for one in decode_records(pulled.records)}
                time.sleep(0.1)
        found[name] = bodies
    assert found == everywhere({b"s", b"e"}, {b"s", b"l", b"e"})


def heart_beat(topic: str) -> bytes:
    """Of a consumer of the group F that filters ``topic`` by SQL92."""
    subscription = {"topic": topic, "subString": "a = 1", "expressionType": "SQL92", "subVersion": 1, "tagsSet": []}
    consumer = {
        **{"groupName": "F", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False},
        **{"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription | {"codeSet": []}]},
    }
    return body(clientID="c", consumerDataSet=[consumer], producerDataSet=[])


def test_new_release_compiles_filter_of_later_topic_at_next_heartbeat(
    sides: dict[str, Side],
) -> None:
    """5.5.1 does not keep the filter of a topic that it does not have; the client's next heart beat brings it."""

    async def play(side: Side) -> list[int]:
        client, codes = RemotingClient(), list[int]()
        pull = {
            **{"consumerGroup": "F", "topic": "Later", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 0},
            **{"commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 1, "expressionType": "SQL92"},
        }
        fields = {name: str(value) for name, value in pull.items()}
        try:
            for step in range(2):
                beat = RemotingCommand(RequestCode.HEART_BEAT, body=heart_beat("Later"))
                assert (await client.invoke(side.broker, beat, 20_000)).code == SUCCESS
                if step == 0:
                    await asyncio.to_thread(side.send, "Later", a="1")
                    await asyncio.to_thread(end_of, side, "Later")
                asked = RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=fields)
                codes.append((await client.invoke(side.broker, asked, 20_000)).code)
        finally:
            await client.close()
        return codes

    for side in sides.values():
        side.create_group("F")
    found = {name: asyncio.run(play(side)) for name, side in sides.items()}
    missing = int(ResponseCode.FILTER_DATA_NOT_EXIST)
    assert found == {OLD_RELEASE: [SUCCESS] * 2, NEW_RELEASE: [missing, SUCCESS], OURS: [SUCCESS] * 2}


def end_of(side: Side, topic: str) -> None:
    """Wait until the first message of queue 0 can be read."""
    while int(side.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0}).ext_fields["offset"]) < 1:
        time.sleep(0.01)


def test_each_release_announces_its_version(sides: dict[str, Side]) -> None:
    found = {name: side.ask(RequestCode.GET_BROKER_RUNTIME_INFO).version for name, side in sides.items()}
    assert found == {OLD_RELEASE: VERSION_5_5_0, NEW_RELEASE: VERSION_5_5_1, OURS: VERSION_5_5_0}
    shown = {}
    for name, side in sides.items():
        with AdminClient(side.namesrv) as admin:
            shown[name] = admin.broker_runtime_info(side.broker)["brokerVersionDesc"]
    assert shown == {OLD_RELEASE: "V5_5_0", NEW_RELEASE: "V5_5_1", OURS: "V5_5_0"}
