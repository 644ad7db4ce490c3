"""Users and policies at the real broker 5.5.0 and at ours: the same users, policies and requests, answer by answer.

A difference in what is refused is either in ``STRICTER``, with its number in docs/COMPATIBILITY.md, or a failure.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gantrymq import EmbeddedBroker
from gantrymq.broker.sessions.consumers import build_subscription
from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.client import RemotingClient

from .client_cases import SETTINGS
from .java import OLD_RELEASE, release, run_java
from .java_cluster import JavaCluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(release() != OLD_RELEASE, reason="Maven has no auth of 5.5.1"),
]
PACKAGE = "org.apache.rocketmq.auth"
AUTH = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationProvider": f"{PACKAGE}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{PACKAGE}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationProvider": f"{PACKAGE}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{PACKAGE}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": '{"username":"root","password":"rootpw"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"root","secretKey":"rootpw"}',
}
ROOT = SessionCredentials("root", "rootpw")
Entry = dict[str, Any]


def allow(resource: str, *actions: str, ips: tuple[str, ...] = (), decision: str = "Allow") -> Entry:
    entry: Entry = {"resource": resource, "actions": list(actions), "decision": decision}
    return entry | ({"sourceIps": list(ips)} if ips else {})


def deny(resource: str, *actions: str, ips: tuple[str, ...] = ()) -> Entry:
    return allow(resource, *actions, ips=ips, decision="Deny")


# The policies of each user, by type.
USERS: Mapping[str, Mapping[str, list[Entry]]] = {
    "nothing": {},
    "producer": {"Custom": [allow("Topic:TT", "Pub")]},
    "consumer": {"Custom": [allow("Topic:TT", "Sub"), allow("Group:G1", "Sub")]},
    "group": {"Custom": [allow("Group:*", "All")]},
    "reader": {"Custom": [allow("Topic:*", "Get"), allow("Group:*", "Get")]},
    "everything": {"Custom": [allow("*", "All")]},
    "cluster": {"Custom": [allow("Cluster:*", "Get", "Update")]},
    "literal": {"Custom": [allow("Topic:TT", "All"), deny("Topic:T*", "All"), deny("*", "All")]},
    "prefix": {"Custom": [deny("Topic:T*", "Pub"), allow("Topic:TT*", "Pub"), allow("Topic:*", "All")]},
    "longest": {"Custom": [allow("Topic:T*", "All"), deny("Topic:TT*", "All"), allow("Group:G*", "All")]},
    "denied": {"Custom": [deny("Topic:*", "Sub"), allow("*", "All")]},
    "away": {"Custom": [allow("*", "All", ips=("10.0.0.0/8", "192.168.1.1"))]},
    "home": {
        "Custom": [allow("*", "All", ips=("10.0.0.0/8", "127.0.0.0/8")), deny("Topic:TT", "Pub", ips=("10.1.1.1",))]
    },
    "version6": {"Custom": [allow("*", "All", ips=("::/0",)), deny("Group:G1", "Sub", ips=("::1",))]},
    "default": {"Default": [allow("Topic:TT", "Pub", "Sub")]},
    "both": {"Custom": [deny("Topic:TT", "Pub")], "Default": [allow("*", "All")]},
    "cases": {"Custom": [allow("topic:TT", "pub", "SUB"), allow("GROUP:G1", "All")]},
}


class Request(NamedTuple):
    """A request by its code, fields and body."""

    code: int
    fields: dict[str, str]
    body: bytes = b""


def beat(*groups: str, topics: tuple[str, ...] = (), producer: bool = False) -> bytes:
    consumers = [
        ConsumerData(
            group_name=group, consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=[build_subscription(topic, "*", "TAG", 1) for topic in topics],
        )
        for group in groups
    ]  # fmt: skip
    producers = [ProducerData(group_name="P")] if producer else []
    return HeartbeatData(client_id="c", consumer_data_set=consumers, producer_data_set=producers).encode()


def send_fields(topic: str) -> dict[str, str]:
    texts = ("P", topic, "TBW102", "4", "0", "0", "1700000000000", "0", "", "0", "false", "false")
    return dict(zip("abcdefghijkm", texts, strict=True))


QUEUE_OF_TT = {"topic": "TT", "brokerName": "broker-a", "queueId": 0}
QUEUE = {"queueId": "0", "timestamp": "0", "bname": "broker-a"}
PULL = {
    "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0",
    "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*",
}  # fmt: skip
OFFSET = {"queueId": "0", "commitOffset": "0"}
TOPIC = {
    "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "order": "false",
}  # fmt: skip
ASSIGNMENT = {
    "topic": "TT", "consumerGroup": "G1", "clientId": "c", "strategyName": "AVG", "messageModel": "CLUSTERING",
}  # fmt: skip
REQUESTS = (
    *(Request(310, send_fields(topic), b"body") for topic in ("TT", "TU", "OTHER", "%RETRY%G1", "%RETRY%G2")),
    *(Request(11, {"consumerGroup": group, "topic": "TT", **PULL}) for group in ("G1", "G2")),
    Request(11, {"consumerGroup": "G1", "topic": "OTHER", **PULL}),
    Request(11, {"consumerGroup": "G1", "topic": "%RETRY%G1", **PULL}),
    *(Request(code, {"topic": topic, **QUEUE}) for code in (29, 30, 31, 32) for topic in ("TT", "OTHER", "%RETRY%G1")),
    *(Request(14, {"consumerGroup": group, "topic": "TT", "queueId": "0"}) for group in ("G1", "G2")),
    *(Request(15, {"consumerGroup": group, "topic": "TT", **OFFSET}) for group in ("G1", "G2")),
    Request(34, {}, beat("G1", topics=("TT", "%RETRY%G1"))),
    Request(34, {}, beat("G1", topics=("OTHER",))),  # of several topics a HashSet of Java names any first
    Request(34, {}, beat("G2", topics=("TT",))),
    Request(34, {}, beat(producer=True)),
    Request(35, {"clientID": "c", "producerGroup": "P"}),
    Request(35, {"clientID": "c", "consumerGroup": "G1"}),
    Request(38, {"consumerGroup": "G1"}),
    Request(
        41, {}, b'{"consumerGroup":"G1","clientId":"c","mqSet":[{"topic":"TT","brokerName":"broker-a","queueId":0}]}'
    ),
    Request(42, {}, b'{"consumerGroup":"G2","clientId":"c","mqSet":[]}'),
    Request(12, {"topic": "TT", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}),
    Request(202, {"topic": "TT"}),
    Request(351, {"topic": "TT"}),
    Request(352, {"group": "G1"}),
    Request(203, {"consumerGroup": "G1"}),
    Request(204, {"producerGroup": "P"}),
    Request(208, {"consumerGroup": "G1", "topic": "TT"}),
    Request(300, {"topic": "TT"}),
    Request(303, {"topic": "TT", "group": "G1"}),
    Request(307, {"consumerGroup": "G1", "clientId": "nobody", "jstackEnable": "false"}),
    Request(343, {"group": "G1"}),
    Request(345, {"group": "G1", "topic": "TT"}),
    Request(17, {"topic": "TT", **TOPIC}),
    Request(17, {"topic": "NEW", **TOPIC}),
    Request(215, {"topic": "ABSENT"}),
    Request(207, {"groupName": "ABSENT", "cleanOffset": "false"}),
    Request(353, {"group": "G1", "topic": "TT"}),
    Request(317, {"isOrder": "false"}),
    Request(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "TT"}),
    Request(328, {}),
    Request(906, {}),
    Request(200055, {"consumerGroup": "G1", "topic": "TT", "queueId": "0"}),
    Request(200052, {"consumerGroup": "G1", "topic": "TT", "queueId": "0", "maxMsgNums": "1"}),
    Request(3004, {"username": "root"}),
    Request(3005, {}),
    Request(3009, {"subject": "User:root"}),
    Request(3010, {}),
    Request(9999, {}),
    # Where RocketMQ asks for nothing.
    *(Request(code, {}) for code in (21, 26, 28, 43, 45, 201, 305, 402, 907)),
    Request(361, {"consumerGroup": "G1", "topic": "TT", **PULL}),
    Request(
        400, {}, b'{"topic":"TT","consumerGroup":"G1","clientId":"c","strategyName":"AVG","messageModel":"CLUSTERING"}'
    ),
)
# Refused here alone, with the reason in docs/COMPATIBILITY.md.
STRICTER = dict.fromkeys((21, 26, 28, 43, 45, 201, 305, 361, 400, 402, 907), "U1")
CREDENTIALS: Mapping[str, SessionCredentials | None] = {
    "unsigned": None,
    "unknown": SessionCredentials("ghost", "pw"),
    "forged": SessionCredentials("root", "wrong"),
    "root": ROOT,
    **{name: SessionCredentials(name, f"{name}pw") for name in USERS},
}


class Server:
    """A broker, and what was asked of it."""

    def __init__(self, address: str, namesrv: str) -> None:
        self.address, self.namesrv = address, namesrv

    def ask(self, requests: list[tuple[SessionCredentials | None, Request]]) -> list[tuple[int, str | None, bytes]]:
        async def each() -> list[tuple[int, str | None, bytes]]:
            client, answers = RemotingClient(), []
            try:
                for by, request in requests:
                    command = RemotingCommand(request.code, ext_fields=dict(request.fields), body=request.body)
                    if by is not None:
                        by.sign(command)
                    answer = await client.invoke(self.address, command, 60_000)
                    answers.append((answer.code, answer.remark, answer.body))
            finally:
                await client.close()
            return answers

        return asyncio.run(each())

    def prepare(self) -> None:
        requests: list[tuple[SessionCredentials | None, Request]] = [(ROOT, Request(310, send_fields("TT"), b"body"))]
        for name, policies in USERS.items():
            body = json.dumps({"username": name, "password": f"{name}pw", "userType": "Normal"}).encode()
            requests.append((ROOT, Request(3001, {"username": name}, body)))
            subject = f"User:{name}"
            typed = [{"policyType": kind, "entries": entries} for kind, entries in policies.items()]
            acl = json.dumps({"subject": subject, "policies": typed}).encode()
            if typed:
                requests.append((ROOT, Request(3006, {"subject": subject}, acl)))
        assert [answer for answer in self.ask(requests) if answer[0] != 0] == []


@pytest.fixture(scope="module")
def theirs(java: None) -> Iterator[Server]:
    with (
        tempfile.TemporaryDirectory(prefix="gantrymq-users-") as folder,
        JavaCluster(Path(folder) / "store", auth=AUTH) as running,
    ):
        server = Server(running.broker, running.namesrv)
        server.prepare()
        yield server


@pytest.fixture(scope="module")
def ours() -> Iterator[Server]:
    with EmbeddedBroker(settings={**SETTINGS, **AUTH}) as broker:
        server = Server(broker.address, broker.namesrv)
        server.prepare()
        yield server


def is_refused_by_users(answer: tuple[int, str | None, bytes]) -> bool:
    texts = ("has no permission to access", "is not found.", "is disabled.", "check signature failed", "be null.")
    return answer[0] == 16 and any(text in str(answer[1]) for text in texts)


@pytest.mark.parametrize("name", CREDENTIALS)
def test_every_request_of_user_is_decided_as_at_real_broker(theirs: Server, ours: Server, name: str) -> None:
    requests = [(CREDENTIALS[name], request) for request in REQUESTS]
    wrong = []
    for request, at_theirs, at_ours in zip(REQUESTS, theirs.ask(requests), ours.ask(requests), strict=True):
        if is_refused_by_users(at_theirs):
            if at_ours[:2] != at_theirs[:2]:
                wrong.append((request, at_theirs, at_ours))
        elif is_refused_by_users(at_ours) and request.code not in STRICTER:
            wrong.append((request, at_theirs, at_ours))
    assert wrong == []


NEW = {"subject": "User:new"}
ADMINISTRATION: list[Request] = [
    Request(3001, {"username": "new"}, b'{"username":"other","password":"newpw","userType":"Robot"}'),
    Request(3001, {"username": "new"}, b'{"username":"new","password":"newpw"}'),
    Request(3001, {"username": "blank"}, b'{"username":"blank"}'),
    Request(3001, {}, b'{"username":"blank","password":"p"}'),
    Request(3002, {"username": "new"}, b'{"userStatus":"disable"}'),
    Request(3002, {"username": "ghost"}, b'{"userStatus":"disable"}'),
    Request(3004, {"username": "new"}),
    Request(3004, {"username": "ghost"}),
    Request(3005, {"filter": "ne"}),
    Request(3005, {"filter": "ghost"}),
    Request(3009, {"subject": "User:new"}),
    Request(3009, {"subject": "User:ghost"}),
    *(
        Request(3006, NEW, json.dumps({**NEW, "policies": [{"entries": [entry]}]}).encode())
        for entry in (
            allow("Topic:T*", "Pub", "Fly", ips=("10.0.0.0/8",)),
            allow("Topic:T*", "Sub"),
            deny("Group:G", "All", ips=("::1", "10.0.0.1")),
            allow("*", "Any"),
            allow("*", "Fly"),
            allow("*", "Pub", ips=("10.0.0.0/33",)),
            allow("*", "Pub", ips=("10.1",)),
            allow("*", "Pub", ips=(" ",)),
            allow("Robot:x", "Pub"),
            allow("*", "Pub", decision="Maybe"),
        )
    ),
    Request(3007, {"subject": "User:ghost"}, json.dumps({"policies": [{"entries": [allow("*", "Pub")]}]}).encode()),
    Request(3007, {"subject": "Robot:x"}, json.dumps({"policies": [{"entries": [allow("*", "Pub")]}]}).encode()),
    Request(3007, {"subject": "User:new"}, json.dumps({"policies": [{"entries": []}]}).encode()),
    Request(
        3006, {"subject": "User:new"},
        json.dumps({"policies": [{"policyType": "default", "entries": [allow("Cluster:*", "Get")]}]}).encode(),
    ),
    Request(3009, {"subject": "User:new"}),
    Request(3010, {"subjectFilter": "new"}),
    Request(3010, {"subjectFilter": "new", "resourceFilter": "Group"}),
    Request(3010, {"subjectFilter": "ghost"}),
    Request(3008, {"subject": "User:new", "resource": "Topic:ABSENT"}),
    Request(3008, {"subject": "User:new", "resource": "Topic:T*"}),
    Request(3008, {"subject": "User:new", "resource": "Cluster:*", "policyType": "Default"}),
    Request(3009, {"subject": "User:new"}),
    Request(3008, {"subject": "User:new"}),
    Request(3008, {"subject": "User:new"}),
    Request(3008, {"subject": "User:ghost"}),
    Request(3003, {"username": "new"}),
    Request(3003, {"username": "new"}),
    Request(3003, {"username": " "}),
]  # fmt: skip


def without_password(body: bytes) -> Any:
    shown = json.loads(body) if body else None
    for user in shown if isinstance(shown, list) else [shown]:
        if isinstance(user, dict):
            user.pop("password", None)
    return shown


def test_administration_is_answered_as_by_real_broker(theirs: Server, ours: Server) -> None:
    requests = [(ROOT, request) for request in ADMINISTRATION]
    wrong = []
    for request, at_theirs, at_ours in zip(ADMINISTRATION, theirs.ask(requests), ours.ask(requests), strict=True):
        assert b"password" not in at_ours[2]
        same = at_ours[:2] == at_theirs[:2] and without_password(at_ours[2]) == without_password(at_theirs[2])
        if not same:
            wrong.append((request, at_theirs, at_ours))
    assert wrong == []


@pytest.mark.usefixtures("java")
def test_real_mqadmin_administers_users_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "tools.yml").write_text("accessKey: root\nsecretKey: rootpw\n")
    monkeypatch.setenv("ROCKETMQ_HOME", str(conf.parent))
    with EmbeddedBroker(settings={**SETTINGS, **AUTH}) as broker:
        where = f"-b {broker.address}"
        lines = [
            f"createUser {where} -u ann -p annpw1 -t Normal",
            f"createUser {where} -u eve -p evepw1",
            f"updateUser {where} -u eve -s disable",
            f"createAcl {where} -s User:ann -r Topic:TT,Group:* -a Pub,Sub -i 127.0.0.1,10.0.0.0/8 -d Allow",
            f"updateAcl {where} -s User:ann -r Topic:TT -a Sub -d Deny",
            f"getUser {where} -u ann",
            f"listUser {where}",
            f"getAcl {where} -s User:ann",
            f"listAcl {where}",
            f"deleteAcl {where} -s User:ann -r Topic:TT",
            f"deleteUser {where} -u eve",
        ]
        file = tmp_path / "lines"
        file.write_text("".join(f"{line}\n" for line in lines))
        printed = run_java("mqadmin", None, str(file), namesrv=broker.namesrv, timeout=600, cwd=tmp_path)
        text = "".join(line["printed"] for line in printed)
        assert "annpw1" not in text
        assert all(word in text for word in ("ann", "disable", "Topic:TT", "Deny", "10.0.0.0/8"))
        users = json.loads((broker.store_path / "config/users.json").read_text())["users"]
        assert set(users) == {"root", "ann"}
        acls = json.loads((broker.store_path / "config/acls.json").read_text())["acls"]
        assert [one["resource"] for one in acls["User:ann"]["policies"][0]["entries"]] == ["Group:*"]
