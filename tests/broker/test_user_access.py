"""Users and policies at a broker: who is let in, what each request needs, and what a change does at once.

Texts and codes are those of RocketMQ 5.5.0, as tests/interop/test_user_matrix.py sees them there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from broker_cases import TIMEOUT_MS, BrokerCase, StartBroker
from structlog.testing import capture_logs

from gantrymq.auth.audit import MAX_DIFFERENT, RefusalLog
from gantrymq.broker.sessions.consumers import build_subscription
from gantrymq.clock import ManualClock
from gantrymq.errors import ConfigError, DiskFullError, StoreError
from gantrymq.remoting.acl import SessionCredentials, calculate_signature
from gantrymq.remoting.bodies.client import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    QueryAssignmentRequestBody,
)
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand

INIT = json.dumps({"username": "root", "password": "rootpw"})
ROOT, ALICE, BOB = (SessionCredentials(name, f"{name}pw") for name in ("root", "alice", "bob"))
NO, OK = int(ResponseCode.NO_PERMISSION), int(ResponseCode.SUCCESS)
DONE = "not set any response code"
Ask = Callable[..., Awaitable[tuple[int, str | None, Any]]]


class Guarded:
    """A broker with users, and what tests ask of it."""

    def __init__(self, case: BrokerCase) -> None:
        self.case = case

    async def ask(
        self,
        code: int,
        by: SessionCredentials | None = ROOT,
        body: Any = b"",
        version: int | None = None,
        **fields: str,
    ) -> tuple[int, str | None, Any]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = RemotingCommand(code, ext_fields=dict(fields), body=raw)
        if by is not None:
            by.sign(request)
        answer = await self.case.client.invoke(self.case.server.address, request, TIMEOUT_MS)
        shown = answer.body
        with_json = shown[:1] in (b"{", b"[")
        return answer.code, answer.remark, json.loads(shown) if with_json else shown

    async def create(self, name: str, *entries: dict[str, Any], **fields: str) -> None:
        made = await self.ask(3001, body={"username": name, "password": f"{name}pw", **fields}, username=name)
        assert made == (OK, DONE, b"")
        if entries:
            subject = f"User:{name}"
            body = {"subject": subject, "policies": [{"policyType": "Custom", "entries": list(entries)}]}
            assert await self.ask(3006, body=body, subject=subject) == (OK, DONE, b"")

    async def send(self, topic: str, by: SessionCredentials | None) -> tuple[int, str | None]:
        names, texts = "acdefghijkm", ("P", "TBW102", "4", "0", "0", "1700000000000", "0", "", "0", "false", "false")
        fields = dict(zip(names, texts, strict=True), b=topic)
        return (await self.ask(RequestCode.SEND_MESSAGE_V2, by, b"body", **fields))[:2]


def allow(resource: str, *actions: str, **more: Any) -> dict[str, Any]:
    return {"resource": resource, "actions": list(actions), "decision": "Allow", **more}


@pytest_asyncio.fixture
async def start_guarded(start_broker: StartBroker) -> AsyncIterator[Callable[..., Awaitable[Guarded]]]:
    async def start(*path: Path, **settings: Any) -> Guarded:
        given = {"authentication_enabled": True, "authorization_enabled": True, "init_authentication_user": INIT}
        return Guarded(await start_broker(*path, **given | settings))

    yield start


@pytest_asyncio.fixture
async def guarded(start_guarded: Callable[..., Awaitable[Guarded]]) -> Guarded:
    return await start_guarded()


# Who is let in


@pytest.mark.asyncio
async def test_request_without_valid_signature_is_refused(guarded: Guarded) -> None:
    await guarded.create("alice")
    await guarded.create("bob", userStatus="enable")
    assert (await guarded.ask(3002, body={"userStatus": "disable"}, username="bob"))[0] == OK
    for code in (RequestCode.HEART_BEAT, RequestCode.SEND_MESSAGE_V2, 9999, 3001):
        assert (await guarded.ask(code, None))[:2] == (NO, "username cannot be null.")
        assert (await guarded.ask(code, SessionCredentials("nobody", "pw")))[:2] == (NO, "User:nobody is not found.")
        assert (await guarded.ask(code, SessionCredentials("alice", "pw")))[:2] == (NO, "check signature failed.")
        assert (await guarded.ask(code, BOB))[:2] == (NO, "User:bob is disabled.")
    assert (await guarded.ask(9999, ALICE))[:2] == (3, " request type 9999 not supported")
    unsigned = RemotingCommand(RequestCode.HEART_BEAT, ext_fields={"AccessKey": "alice"})
    answer = await guarded.case.client.invoke(guarded.case.server.address, unsigned, TIMEOUT_MS)
    assert (answer.code, answer.remark) == (NO, "check signature failed.")


@pytest.mark.asyncio
async def test_altered_request_is_refused(guarded: Guarded) -> None:
    for change in ("field", "body", "added"):
        request = RemotingCommand(3004, ext_fields={"username": "root"}, body=b"body")
        ROOT.sign(request)
        if change == "body":
            request.body = b"other"
        else:
            request.ext_fields["username" if change == "field" else "zz"] = "alice"
        answer = await guarded.case.client.invoke(guarded.case.server.address, request, TIMEOUT_MS)
        assert (answer.code, answer.remark) == (NO, "check signature failed."), change


@pytest.mark.asyncio
@pytest.mark.parametrize(("version", "is_signed"), [(399, False), (0, False), (400, True), (513, True)])
async def test_old_client_leaves_flag_of_query_out_of_signature(
    guarded: Guarded, version: int, is_signed: bool
) -> None:
    fields = {"topic": "T", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}
    flag = {"_UNIQUE_KEY_QUERY": "true"}
    for signs_flag in (False, True):
        signed = {**fields, "AccessKey": "root", **(flag if signs_flag else {})}
        signature = calculate_signature(signed, b"", "rootpw")
        request = RemotingCommand(RequestCode.QUERY_MESSAGE, ext_fields=signed | flag | {"Signature": signature})
        request.version = version
        answer = await guarded.case.client.invoke(guarded.case.server.address, request, TIMEOUT_MS)
        assert (answer.code == ResponseCode.QUERY_NOT_FOUND) is (signs_flag is is_signed), answer.remark


@pytest.mark.asyncio
async def test_white_listed_code_needs_no_signature(start_guarded: Callable[..., Awaitable[Guarded]]) -> None:
    guarded = await start_guarded(authentication_whitelist="30, 34,*", authorization_whitelist="31")
    await guarded.create("alice")
    beat = HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name="P")]).encode()
    assert (await guarded.ask(34, None, beat))[0] == OK
    assert (await guarded.ask(31, None, topic="T", queueId="0"))[1] == "username cannot be null."
    assert (await guarded.ask(31, ALICE, topic="T", queueId="0"))[0] == OK
    text = "Authorization failed. Please verify your access rights and try again."
    # A name without its signature has no permissions, not even those of root.
    for by in (None, SessionCredentials("root", "wrong"), SessionCredentials("nobody", "pw")):
        assert (await guarded.ask(30, by, topic="T", queueId="0"))[:2] == (NO, text)
    assert (await guarded.ask(30, ROOT, topic="T", queueId="0"))[0] == OK


@pytest.mark.asyncio
async def test_every_user_may_do_everything_without_authorization(
    start_guarded: Callable[..., Awaitable[Guarded]],
) -> None:
    guarded = await start_guarded(authorization_enabled=False)
    await guarded.create("alice")
    assert (await guarded.send("T", ALICE))[0] == OK
    assert (await guarded.send("T", None))[1] == "username cannot be null."
    made = await guarded.ask(3001, ALICE, {"password": "p", "userType": "Super"}, username="eve")
    assert made[:2] == (1, "The super user can only be create by super user")


# What each request needs

FREE = {RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.CHECK_CLIENT_CONFIG}
FREE |= {RequestCode.BATCH_ACK_MESSAGE}  # without a group, or without a body, nothing is asked for
FIELDS = dict.fromkeys(
    (
        *("topic", "queueId", "consumerGroup", "group", "compareGroup", "producerGroup", "offset", "delayLevel"),
        *("clientID", "clientId", "key", "maxNum", "beginTimestamp", "endTimestamp", "timestamp", "commitOffset"),
        *("queueOffset", "maxMsgNums", "sysFlag", "suspendTimeoutMillis", "subVersion", "defaultTopic", "flag"),
        *("defaultTopicQueueNums", "bornTimestamp", "extraInfo", "invisibleTime", "msgId", "commitLogOffset"),
        *("tranStateTableOffset", "commitOrRollback", "recallHandle", "groupName", "srcGroup", "destGroup", "offline"),
        *("readable", "isForce", "masterFlushOffset", "readQueueNums", "writeQueueNums", "perm", "order", "count"),
        *("index", "statsName", "statsKey", "topicFilterType", "namespace", "initMode", "expType", *"abcdefgh"),
    ),
    "1",
) | {"isForce": "true", "readable": "true", "order": "false", "offline": "false"}


@pytest.mark.asyncio
async def test_user_without_policies_may_do_nothing_with_any_code(guarded: Guarded) -> None:
    await guarded.create("alice")
    bodies = {
        RequestCode.QUERY_ASSIGNMENT: QueryAssignmentRequestBody(
            topic="1", consumer_group="1", client_id="1", strategy_name="AVG", message_model="CLUSTERING"
        ).encode(),
        RequestCode.LOCK_BATCH_MQ: b'{"consumerGroup":"1","clientId":"1","mqSet":[]}',
        RequestCode.UNLOCK_BATCH_MQ: b'{"consumerGroup":"1","clientId":"1","mqSet":[]}',
    }
    assert RequestCode.AUTH_CREATE_USER in guarded.case.server.routes
    for code in RequestCode:
        if code in FREE:
            continue
        answer = await guarded.ask(code, ALICE, bodies.get(code, b"{}"), **FIELDS)
        assert answer[0] == NO, (code.name, answer)
        wanted = "User:alice has no permission to access ", ", no matched policies."
        assert str(answer[1]).startswith(wanted[0]), (code.name, answer)
        assert str(answer[1]).endswith(wanted[1]), (code.name, answer)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("code", "resources"),
    [
        (RequestCode.GET_MAX_OFFSET, {"Topic:1": "Get"}),
        (RequestCode.PULL_MESSAGE, {"Topic:1": "Sub", "Group:1": "Sub"}),
        (RequestCode.LITE_PULL_MESSAGE, {"Topic:1": "Sub", "Group:1": "Sub"}),
        (RequestCode.QUERY_CONSUMER_OFFSET, {"Topic:1": "Get", "Group:1": "Sub"}),
        (RequestCode.UPDATE_CONSUMER_OFFSET, {"Topic:1": "Update", "Group:1": "Sub"}),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, {"Topic:1": "Create"}),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"Topic:1": "Delete"}),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"Group:1": "Delete"}),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"Group:1": "Update", "Topic:1": "Update"}),
        (RequestCode.POLLING_INFO, {"Group:1": "Get", "Topic:1": "Get"}),
        (RequestCode.GET_BROKER_CONFIG, {"Cluster:DefaultCluster": "Get"}),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"Cluster:DefaultCluster": "Update"}),
        (RequestCode.AUTH_LIST_USER, {"Cluster:DefaultCluster": "Get"}),
        (RequestCode.AUTH_CREATE_USER, {"Cluster:DefaultCluster": "Update"}),
        (RequestCode.QUERY_ASSIGNMENT, {"Group:1": "Sub", "Topic:1": "Sub"}),
    ],
)
async def test_code_needs_exactly_these_actions(guarded: Guarded, code: RequestCode, resources: dict[str, str]) -> None:
    await guarded.create("alice")
    body = b'{"topic":"1","consumerGroup":"1","clientId":"1","strategyName":"AVG","messageModel":"CLUSTERING"}'
    body = body if code == RequestCode.QUERY_ASSIGNMENT else b""
    given: list[dict[str, Any]] = []
    for resource, action in resources.items():
        refused = await guarded.ask(code, ALICE, body, **FIELDS)
        assert refused[:2] == (
            NO,
            f"User:alice has no permission to access {resource} from 127.0.0.1, no matched policies.",
        )
        others = [name for name in ("Pub", "Create", "Delete", "List") if name != action]
        for actions in (others, [action]):
            entry = allow(resource, *actions)
            acl = {"policies": [{"entries": [*given, entry]}]}
            assert (await guarded.ask(3007, body=acl, subject="User:alice"))[0] == OK
            if actions == others:
                refused = await guarded.ask(code, ALICE, body, **FIELDS)
                assert refused[0] == NO
                assert resource in str(refused[1])
        given.append(entry)
    allowed = await guarded.ask(code, ALICE, body, **FIELDS)
    assert "has no permission" not in str(allowed[1])


@pytest.mark.asyncio
async def test_consumer_of_other_group_or_topic_is_refused(guarded: Guarded) -> None:
    await guarded.create("alice", allow("Topic:T*", "Sub"), allow("Group:G", "Sub"))

    def beat(group: str, *topics: str) -> bytes:
        subscriptions = [build_subscription(topic, "*", "TAG", 1) for topic in topics]
        consumer = ConsumerData(
            group_name=group, consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET", subscription_data_set=subscriptions,
        )  # fmt: skip
        return HeartbeatData(client_id="c", consumer_data_set=[consumer]).encode()

    assert (await guarded.ask(34, ALICE, beat("G", "T1", "%RETRY%G")))[0] == OK
    assert "access Group:H" in str((await guarded.ask(34, ALICE, beat("H", "T1")))[1])
    assert "access Topic:U" in str((await guarded.ask(34, ALICE, beat("G", "T1", "U")))[1])
    # RocketMQ lets every group read the retries of others.
    assert "access Group:H" in str((await guarded.ask(34, ALICE, beat("G", "T1", "%RETRY%H")))[1])
    assert (await guarded.ask(34, ALICE, b"{"))[:2] == (NO, "parse authorization context error.")


@pytest.mark.asyncio
async def test_entry_for_other_address_does_not_decide(guarded: Guarded) -> None:
    deny = {"resource": "Topic:T", "actions": ["All"], "decision": "Deny", "sourceIps": ["10.0.0.0/8"]}
    await guarded.create("alice", deny, allow("Topic:*", "Pub"))
    assert (await guarded.send("T", ALICE))[0] == OK
    acl = {"policies": [{"entries": [{**deny, "sourceIps": ["127.0.0.0/8"]}]}]}
    assert (await guarded.ask(3007, body=acl, subject="User:alice"))[0] == OK
    refused = await guarded.send("T", ALICE)
    assert refused == (NO, "User:alice has no permission to access Topic:T from 127.0.0.1, the decision is deny.")


# Administration


@pytest.mark.asyncio
async def test_users_are_administered_as_by_rocketmq(guarded: Guarded) -> None:
    ask = guarded.ask
    body = {"username": "other", "password": "alicepw", "userType": "Robot"}
    assert await ask(3001, body=body, username="alice") == (OK, DONE, b"")
    assert await ask(3001, body=body, username="alice") == (NO, "The user is existed", b"")
    assert (await ask(3001, body={"username": "x"}, username="x"))[:2] == (NO, "password can not be blank")
    assert (await ask(3001, body=body))[:2] == (29, "The username is blank")
    alice = {"userStatus": "enable", "userType": "Normal", "username": "alice"}
    root = {"userStatus": "enable", "userType": "Super", "username": "root"}
    assert await ask(3004, username="alice") == (OK, DONE, alice)
    assert await ask(3004, username="nobody") == (OK, DONE, b"")
    assert await ask(3005) == (OK, DONE, [alice, root])
    assert await ask(3005, filter="oo") == (OK, DONE, [root])
    assert await ask(3005, filter="nobody") == (OK, DONE, b"")
    assert (await ask(3002, body={"userStatus": "disable"}, username="nobody"))[:2] == (NO, "The user is not exist")
    assert (await ask(3002, body={"password": "new"}, username="alice"))[0] == OK
    assert (await guarded.send("T", ALICE))[1] == "check signature failed."
    assert "has no permission" in str((await guarded.send("T", SessionCredentials("alice", "new")))[1])
    assert await ask(3003, username="nobody") == (OK, DONE, b"")
    assert await ask(3003, username="alice") == (OK, DONE, b"")
    assert await ask(3005) == (OK, DONE, [root])


@pytest.mark.asyncio
async def test_policies_are_administered_as_by_rocketmq(guarded: Guarded) -> None:
    ask = guarded.ask
    await guarded.create("alice")
    subject = {"subject": "User:alice"}
    assert await ask(3009, **subject) == (OK, DONE, b"")
    first = allow("Topic:T*", "Pub", sourceIps=["10.0.0.0/8"])
    second = {"resource": "Group:*", "actions": ["Sub", "Fly", "Get"], "decision": "deny"}
    acl = {"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": [first, second]}]}
    assert await ask(3006, body=acl, **subject) == (OK, DONE, b"")
    shown_second = {"resource": "Group:*", "actions": ["Sub", "Get"], "decision": "Deny"}
    shown = {"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": [first, shown_second]}]}
    assert await ask(3009, **subject) == (OK, DONE, shown)
    replaced = allow("Topic:T*", "Sub")
    more = {"policies": [{"policyType": "default", "entries": [shown_second]}, {"entries": [replaced]}]}
    assert await ask(3006, body=more, **subject) == (OK, DONE, b"")
    custom = {"policyType": "Custom", "entries": [replaced, shown_second]}
    default = {"policyType": "Default", "entries": [shown_second]}
    assert await ask(3009, **subject) == (OK, DONE, {"subject": "User:alice", "policies": [custom, default]})
    only = {"subject": "User:alice", "policies": [{**custom, "entries": [replaced]}]}
    assert await ask(3010, subjectFilter="lic", resourceFilter="T*") == (OK, DONE, [only])
    assert await ask(3010, subjectFilter="bob") == (OK, DONE, b"")
    assert await ask(3008, resource="Group:*", policyType="Default", **subject) == (OK, DONE, b"")
    assert await ask(3009, **subject) == (OK, DONE, {"subject": "User:alice", "policies": [custom]})
    assert (await ask(3008, resource="Robot:*", **subject))[:2] == (NO, "The resource is null.")
    assert await ask(3008, **subject) == (OK, DONE, b"")
    assert await ask(3008, **subject) == (NO, "The acl is not exist.", b"")
    assert (await ask(3009, subject="User:ghost"))[:2] == (NO, "The subject is not exist.")
    assert (await ask(3006, body=acl | {"subject": "User:ghost"}, **subject))[:2] == (
        NO, "The subject of User:ghost is not exist.",
    )  # fmt: skip
    robot = await ask(3006, body=acl | {"subject": "Robot:x"}, subject="Robot:x")
    assert robot[:2] == (1, "An system error occurred, please try again later.")
    assert (await ask(3006, body={}, **subject))[0] == 1


@pytest.mark.asyncio
async def test_only_super_user_touches_super_users(guarded: Guarded) -> None:
    await guarded.create("alice", allow("Cluster:*", "Update", "Get"))
    assert (await guarded.ask(3001, ALICE, {"password": "p"}, username="bob"))[0] == OK
    made = await guarded.ask(3001, ALICE, {"password": "p", "userType": "Super"}, username="eve")
    assert made[:2] == (1, "The super user can only be create by super user")
    risen = await guarded.ask(3002, ALICE, {"userType": "Super"}, username="alice")
    assert risen[:2] == (1, "The super user can only be update by super user")
    for code, body in ((3002, {"password": "p"}), (3003, {})):
        refused = await guarded.ask(code, ALICE, body, username="root")
        assert refused[:2] == (NO, "The super user can only be update by super user")


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["a*", "a\nb", "a\rb", "a" * 100_000, " "])
async def test_name_or_password_that_is_not_accepted_is_refused(guarded: Guarded, name: str) -> None:
    assert (await guarded.ask(3001, body={"password": "p"}, username=name))[0] == NO
    assert (await guarded.ask(3001, body={"password": "p" * 900_000}, username="eve"))[0] == NO
    acl = {"policies": [{"entries": [allow(f"Topic:{name}x" if name != " " else "Topic:", "Pub")]}]}
    assert (await guarded.ask(3006, body=acl, subject="User:root"))[0] == NO
    assert [user["username"] for user in (await guarded.ask(3005))[2]] == ["root"]


@pytest.mark.asyncio
async def test_passwords_are_in_no_answer_and_no_log(
    start_guarded: Callable[..., Awaitable[Guarded]], caplog: pytest.LogCaptureFixture
) -> None:
    inner = json.dumps({"accessKey": "inner", "secretKey": "innerpw"})
    with capture_logs() as logs:
        guarded = await start_guarded(inner_client_credentials=inner)
        await guarded.create("alice")
        answers = [
            await guarded.ask(code, username="root", subject="User:root") for code in (26, 3004, 3005, 3009, 3010)
        ]
        await guarded.ask(3002, body={"password": "newpw", "userStatus": "disable"}, username="alice")
        for name in ("initAuthenticationUser", "innerClientAuthenticationCredentials", "authorizationEnabled"):
            answers.append(await guarded.ask(25, body=f'{name}={{"password":"newpw"}}\n'.encode()))
            assert answers[-1][0] == NO
        await guarded.ask(3001, ALICE, {"password": "newpw"}, username="x")
    text = repr(answers) + repr(logs) + caplog.text
    assert [word for word in ("rootpw", "innerpw", "alicepw", "newpw") if word in text] == []
    assert "initAuthenticationUser=******" in text


# At once, and for ever


@pytest.mark.asyncio
@pytest.mark.parametrize("change", ["delete", "disable", "password", "policy"])
async def test_waiting_pull_is_refused_after_change_of_its_user(guarded: Guarded, change: str) -> None:
    await guarded.create("alice", allow("Topic:T", "Sub"), allow("Group:G", "Sub"))
    assert (await guarded.send("T", ROOT))[0] == OK
    fields = {
        "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "1", "maxMsgNums": "1", "sysFlag": "6",
        "commitOffset": "0", "suspendTimeoutMillis": "20000", "subVersion": "0", "subscription": "*",
    }  # fmt: skip
    await guarded.case.dispatched(1)  # a pull from beyond the end of the queue is answered at once
    waiting = asyncio.ensure_future(guarded.ask(RequestCode.PULL_MESSAGE, ALICE, **fields))
    while not len(guarded.case.server.sessions.holds) and not waiting.done():
        await asyncio.sleep(0.001)
    if change == "delete":
        assert (await guarded.ask(3003, username="alice"))[0] == OK
    elif change == "policy":
        assert (await guarded.ask(3008, subject="User:alice", resource="Topic:T"))[0] == OK
    else:
        body = {"userStatus": "disable"} if change == "disable" else {"password": "other"}
        assert (await guarded.ask(3002, body=body, username="alice"))[0] == OK
    assert not waiting.done()
    assert (await guarded.send("T", ROOT))[0] == OK
    wanted = {
        "delete": "User:alice is not found.",
        "disable": "User:alice is disabled.",
        "password": "check signature failed.",
        "policy": "User:alice has no permission to access Topic:T from 127.0.0.1, no matched policies.",
    }[change]
    assert (await waiting)[:2] == (NO, wanted)
    assert (await guarded.ask(RequestCode.PULL_MESSAGE, ALICE, **fields | {"suspendTimeoutMillis": "0"}))[1] == wanted


@pytest.mark.asyncio
async def test_acknowledged_change_survives_kill(start_broker: StartBroker, tmp_path: Path) -> None:
    settings = {"authentication_enabled": True, "authorization_enabled": True, "init_authentication_user": INIT}
    guarded = Guarded(await start_broker(**settings))
    await guarded.create("alice", allow("Topic:T", "Pub"))
    await guarded.case.server.abandon()
    for name in ("users.json", "acls.json"):
        assert (tmp_path / "store/config" / name).stat().st_mode & 0o777 == 0o600
    other = json.dumps({"username": "root", "password": "changed"})  # of a user that exists: without effect
    guarded = Guarded(await start_broker(**settings | {"init_authentication_user": other}))
    assert (await guarded.send("T", ALICE))[0] == OK
    assert (await guarded.ask(3005))[0] == OK
    assert (await guarded.ask(3005, SessionCredentials("root", "changed")))[1] == "check signature failed."


@pytest.mark.asyncio
async def test_change_that_cannot_be_written_is_not_in_force(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    await guarded.create("alice", allow("Topic:T", "Pub"))
    files = guarded.case.server._users._files

    def full(*of: object) -> None:
        raise DiskFullError("users.json", 0)

    monkeypatch.setattr(files, "_write", full)
    for code in (3003, 3002):
        refused = await guarded.ask(code, body={"userStatus": "disable"}, username="alice")
        assert refused[0] == ResponseCode.SYSTEM_ERROR
        assert (await guarded.send("T", ALICE))[0] == OK
    monkeypatch.undo()
    assert (await guarded.ask(3003, username="alice"))[0] == OK
    assert files.load() == guarded.case.server._users.directory


@pytest.mark.asyncio
async def test_changes_at_the_same_time_are_all_made(guarded: Guarded) -> None:
    await guarded.create("alice")

    async def add(number: int) -> None:
        acl = {"policies": [{"entries": [allow(f"Topic:T{number}", "Pub")]}]}
        assert (await guarded.ask(3006, body=acl, subject="User:alice"))[0] == OK

    await asyncio.gather(*map(add, range(20)))
    shown = (await guarded.ask(3009, subject="User:alice"))[2]
    assert {entry["resource"] for entry in shown["policies"][0]["entries"]} == {f"Topic:T{n}" for n in range(20)}


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["users.json", "acls.json"])
async def test_broker_does_not_start_with_damaged_file(start_broker: StartBroker, tmp_path: Path, name: str) -> None:
    (tmp_path / "store/config").mkdir(parents=True)
    (tmp_path / "store/config" / name).write_bytes(bytes(100))
    with pytest.raises(StoreError, match=rf"{name}: .*line 1 column 1"):
        await start_broker(authentication_enabled=True)
    assert (tmp_path / "store/config" / name).read_bytes() == bytes(100)


@pytest.mark.asyncio
async def test_broker_does_not_start_with_initial_user_that_is_not_accepted(start_broker: StartBroker) -> None:
    wrong = json.dumps({"username": "ro*t", "password": "s3cret"})
    with pytest.raises(ConfigError, match=r"holds a \*") as refused:
        await start_broker(authentication_enabled=True, init_authentication_user=wrong)
    assert "s3cret" not in str(refused.value)


@pytest.mark.asyncio
async def test_users_are_refused_where_authentication_is_off(broker: BrokerCase) -> None:
    answer = await Guarded(broker).ask(3005, None)
    assert (answer[0], "set authenticationEnabled=true" in str(answer[1])) == (1, True)


# The audit log


@pytest.mark.asyncio
async def test_refusals_are_logged_in_words_of_rocketmq(guarded: Guarded) -> None:
    await guarded.create("alice")
    with capture_logs() as logs:
        for _ in range(50):
            await guarded.send("TT", ALICE)
            await guarded.send("TT", SessionCredentials("eve\n[FORGED]", "pw"))
    texts = [entry["event"] for entry in logs]
    assert len(texts) == 2
    assert texts[0] == (
        "[AUTHORIZATION] Subject = User:alice is Deny Action = Pub from sourceIp = 127.0.0.1 on resource = Topic:TT "
        "for request = 310."
    )
    assert texts[1].startswith("[AUTHENTICATION] User:'eve\\n[FORGED]' is authenticated failed")


def test_repeated_refusal_is_logged_once_a_minute_with_its_count() -> None:
    clock = ManualClock()
    refusals = RefusalLog(clock)
    with capture_logs() as logs:
        for _ in range(10):
            refusals.note("a")
        clock.advance(59_000)
        refusals.flush()
        assert [(entry["event"], entry["times"]) for entry in logs] == [("a", 1)]
        clock.advance(1_000)
        refusals.flush()
        refusals.flush()
        assert [(entry["event"], entry["times"]) for entry in logs] == [("a", 1), ("a", 9)]
        clock.advance(60_000)
        refusals.flush()
        refusals.note("a")
        assert len(logs) == 3
        for number in range(2 * MAX_DIFFERENT):
            refusals.note(f"stranger {number}")
        assert len(logs) == 3 + MAX_DIFFERENT
