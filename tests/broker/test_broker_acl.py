"""Access control: signatures, permissions, addresses. What is not allowed is denied; a new file is in force at once."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from broker_cases import TIMEOUT_MS, BrokerCase, StartBroker, messages_of
from structlog.testing import capture_logs

from gantrymq.broker import names
from gantrymq.broker.acl.access_control import AccessControl
from gantrymq.broker.acl.accounts import PUB, SUB, address_rule, parse_accounts
from gantrymq.broker.acl.permissions import ANY_ACCOUNT, Need
from gantrymq.broker.answers import DispatchCatchUp
from gantrymq.broker.processors.route import Route
from gantrymq.broker.reads.stored_records import StoredRecords
from gantrymq.broker.sessions.consumers import build_subscription
from gantrymq.errors import ConfigError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.bodies.client import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    ProducerData,
    QueryAssignmentRequestBody,
    UnlockBatchRequestBody,
)
from gantrymq.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from gantrymq.remoting.codes import PullSysFlag, RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.header import CommandHeader
from gantrymq.remoting.headers.pop import AckMessageRequestHeader
from gantrymq.remoting.headers.pull import PullMessageRequestHeader, QueryMessageRequestHeader
from gantrymq.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.client import RemotingClient
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

ACL = """
accounts:
  - accessKey: ordersKey
    secretKey: ordersSecret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [orders=PUB, bills=SUB]
    groupPerms: [billing=SUB]
  - accessKey: adminKey
    secretKey: adminSecret
    admin: true
"""
ORDERS, ADMIN = SessionCredentials("ordersKey", "ordersSecret"), SessionCredentials("adminKey", "adminSecret")


@pytest.mark.parametrize(
    ("pattern", "fits", "not_"),
    [
        ("*", ["1.2.3.4", "::1"], []),
        ("10.1.2.3", ["10.1.2.3"], ["10.1.2.4", "110.1.2.3"]),
        ("10.1.*", ["10.1.2.3", "10.1.9.9"], ["10.2.2.3"]),
        ("10.1.2.1-9", ["10.1.2.1", "10.1.2.9"], ["10.1.2.10"]),
        ("10.1.2.{3,5}", ["10.1.2.3", "10.1.2.5"], ["10.1.2.4"]),
        ("10.1.0.0/16", ["10.1.255.1"], ["10.2.0.1"]),
        ("10.1-5.*.*", ["10.1.2.3", "10.5.9.9"], ["10.6.0.1", "9.1.1.1"]),
        ("10.1.2.3,10.1.2.5", ["10.1.2.3", "10.1.2.5"], ["10.1.2.4"]),
        ("10.1.2.3, 10.9.9.{1,2},,2001:*", ["10.1.2.3", "10.9.9.2", "2001::1"], ["10.9.9.3"]),
        ("*:*:*:*:*:*:*:*", ["1.2.3.4", "::1"], []),
        ("2001::1", ["2001::1", "2001:0:0:0:0:0:0:1"], ["2001::2", "1.2.3.4"]),
        ("2001:*", ["2001::1", "2001:db8:1:2:3:4:5:6"], ["2002::1", "1.2.3.4"]),
        ("1050::5:600:300c:*", ["1050::5:600:300c:1", "1050::5:600:300C:FFFF"], ["1050::5:600:3001:1"]),
        ("1050::5:600:300c:1-200", ["1050::5:600:300c:1", "1050::5:600:300c:200"], ["1050::5:600:300c:201"]),
        ("1050::5:600:300c:1-20:*", ["1050::5:600:300c:20:7"], ["1050::5:600:300c:21:7"]),
        ("2001::{1,a}", ["2001::1", "2001::A"], ["2001::2"]),
        ("::/0", ["::1"], ["1.2.3.4", "no address"]),
        ("", [], ["1.2.3.4"]),
    ],
)
def test_address_pattern_matches_its_addresses_only(pattern: str, fits: list[str], not_: list[str]) -> None:
    rule = address_rule([pattern])
    assert [rule(one) for one in fits] == [True] * len(fits)
    assert [rule(one) for one in not_] == [False] * len(not_)


@pytest.mark.parametrize(
    "pattern",
    [
        *("10.1.2", "10.1.2.3.4", "10.1.2.256", "10.1.2.9-1", "10.1.2.1-256", "10.1.2.-1", "10.1.2.{3", "10.1.2.3,4}"),
        *("10.1-2", "{10.1.2.3}", "10.1.2.{}", "2001:1", "2001::g-h", "2001::1::*", "1:2:3:4:5:6:7::8-9", "::10000-2"),
    ],
)
def test_invalid_address_pattern_raises(pattern: str) -> None:
    with pytest.raises(ConfigError):
        address_rule([pattern])


def test_missing_yaml_package_names_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match=r"pip install 'gantrymq\[acl\]'"):
        parse_accounts(b"accounts: []", "plain_acl.yml")


@pytest.mark.parametrize(
    "text",
    [
        "accounts: 3",
        "accounts: [{accessKey: short, secretKey: longEnough}]",
        "accounts: [{accessKey: longEnough, secretKey: longEnough, defaultTopicPerm: MAYBE}]",
        "accounts: [{accessKey: longEnough, secretKey: longEnough, topicPerms: [orders]}]",
        "accounts: [{accessKey: longEnough, secretKey: longEnough, whiteRemoteAddress: here}]",
        "a: [",
        "a: 2001-99-99",
    ],
)
def test_account_file_of_other_shape_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_accounts(text.encode(), "plain_acl.yml")


def test_permission_without_grant_is_denied() -> None:
    account = parse_accounts(ACL.encode(), "plain_acl.yml").by_key["ordersKey"]
    assert account.may("orders", PUB, group=False)
    assert not account.may("orders", SUB, group=False)
    assert not account.may("other", PUB, group=False)
    assert account.may("billing", SUB, group=True)
    assert not account.may("other", SUB, group=True)
    assert "ordersSecret" not in repr(account)


@pytest.mark.asyncio
async def test_request_for_group_needs_permission_of_group(start_with_accounts: StartBroker) -> None:
    broker = await start_with_accounts()
    about_other: list[tuple[int, dict[str, str], bytes]] = [
        (RequestCode.LOCK_BATCH_MQ, {}, LockBatchRequestBody(consumer_group="other", client_id="c").encode()),
        (RequestCode.UNLOCK_BATCH_MQ, {}, UnlockBatchRequestBody(consumer_group="other", client_id="c").encode()),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "other", "clientId": "c"}, b""),
        (RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": "bills", "group": "other"}, b""),
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "other"}, b""),
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "other"}, b""),
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "other"}, b""),
        (RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "other"}, b""),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "bills", "group": "other"}, b""),
        (RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"topic": "bills", "group": "other"}, b""),
        (RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "other"}, b""),
        (RequestCode.GET_MAX_OFFSET, {"topic": "%RETRY%other", "queueId": "0"}, b""),
        (RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "other"}, b""),
        (RequestCode.CHECK_CLIENT_CONFIG, {}, CheckClientRequestBody(client_id="c", group="other").encode()),
        (RequestCode.ACK_MESSAGE, {"consumerGroup": "other", "topic": "bills", "queueId": "0", "extraInfo": "x",
                                   "offset": "0"}, b""),
    ]  # fmt: skip
    routes = routes_of(broker)
    for code, fields, body in about_other:
        request = RemotingCommand.request(code, body)
        request.ext_fields.update(fields)
        needs = routes[code].permission.needs
        assert needs is not None
        assert Need("other", SUB, is_group=True) in list(needs(request)), RequestCode(code)
        refused = await ask(broker, code, ORDERS, body, **fields)
        assert (refused.code, refused.remark) == (
            ResponseCode.NO_PERMISSION, "No default permission for other (a group)",
        ), RequestCode(code)  # fmt: skip


def routes_of(broker: BrokerCase) -> dict[int, Route]:
    """The table of a broker that runs."""
    return broker.server.routes


@pytest.mark.asyncio
async def test_unlisted_request_code_needs_administrator(start_with_accounts: StartBroker) -> None:
    """Access control fails closed: an account that may read and write everything gets no further with it."""
    broker = await start_with_accounts(ACL.replace("DENY", "PUB|SUB"))
    listed = routes_of(broker)
    unlisted = [code for code in RequestCode if int(code) not in listed]
    assert {RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, RequestCode.ADD_BROKER} <= set(unlisted)
    for code in [*unlisted, 0, -1, 9_999, 31_000, 1 << 30]:
        refused = await ask(broker, code, ORDERS, topic="orders", consumerGroup="billing")
        assert (refused.code, "Need admin permission" in str(refused.remark)) == (ResponseCode.NO_PERMISSION, True)
        asked = await ask(broker, code, ADMIN, topic="orders", consumerGroup="billing")
        assert asked.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("topic", "is_allowed"),
    [
        ("bills", True),
        ("%RETRY%billing_bills", True),
        ("%RETRY%billing+bills", True),
        ("%RETRY%billing_orders", False),
        ("%RETRY%other_bills", False),
        ("orders", False),
    ],
)
async def test_popped_message_needs_permission_of_topic_and_group(
    start_with_accounts: StartBroker, topic: str, is_allowed: bool
) -> None:
    broker = await start_with_accounts()
    header = AckMessageRequestHeader(consumer_group="billing", topic=topic, queue_id=0, extra_info="", offset=0)
    answer = await ask(broker, header, ORDERS)
    assert (answer.code != ResponseCode.NO_PERMISSION) is is_allowed
    bodies = BatchAckMessageRequestBody(acks=[BatchAck(consumer_group="billing", topic=topic)]).encode()
    if not topic.startswith("%"):
        answer = await ask(broker, RequestCode.BATCH_ACK_MESSAGE, ORDERS, bodies)
        assert (answer.code != ResponseCode.NO_PERMISSION) is is_allowed


@pytest.mark.asyncio
async def test_every_registered_code_has_permission(start_with_accounts: StartBroker) -> None:
    """An account without any gets nothing but what is the same for every account."""
    broker = await start_with_accounts(ACL.replace("[orders=PUB, bills=SUB]", "[]").replace("[billing=SUB]", "[]"))
    permissions = {code: route.permission for code, route in routes_of(broker).items()}
    assert set(permissions) == set(broker.server.dispatcher._processors)
    assert [code for code, one in permissions.items() if one is ANY_ACCOUNT] == [
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
    ]
    fields = dict.fromkeys(FIELDS, "1")
    queues = [MessageQueue("1", "broker-a", 0)]
    bodies: dict[int, bytes] = {
        RequestCode.HEART_BEAT: heart_beat("1", "1"),
        RequestCode.CHECK_CLIENT_CONFIG: CheckClientRequestBody(group="1").encode(),
        RequestCode.QUERY_ASSIGNMENT: QueryAssignmentRequestBody(
            topic="1", consumer_group="1", client_id="1", strategy_name="AVG", message_model="CLUSTERING"
        ).encode(),
        RequestCode.BATCH_ACK_MESSAGE: BatchAckMessageRequestBody(
            acks=[BatchAck(consumer_group="1", topic="1")]
        ).encode(),
        RequestCode.LOCK_BATCH_MQ: LockBatchRequestBody(consumer_group="1", client_id="c", mq_set=queues).encode(),
        RequestCode.UNLOCK_BATCH_MQ: UnlockBatchRequestBody(consumer_group="1", client_id="c", mq_set=queues).encode(),
    }
    for code, permission in permissions.items():
        refused = await ask(broker, code, ORDERS, bodies.get(code, b""), **fields)
        wanted = ResponseCode.NO_PERMISSION if permission is not ANY_ACCOUNT else ResponseCode.SUCCESS
        assert refused.code == wanted, (code, refused.remark)
        if permission is not ANY_ACCOUNT:
            assert str(refused.remark).startswith(("No default permission for 1", "Need admin permission"))


# Every field that a header of these requests has to have.
FIELDS = (
    *("topic", "queueId", "consumerGroup", "group", "compareGroup", "producerGroup", "offset", "delayLevel"),
    *("clientID", "clientId", "key", "maxNum", "beginTimestamp", "endTimestamp", "timestamp", "commitOffset"),
    *("queueOffset", "maxMsgNums", "sysFlag", "suspendTimeoutMillis", "subVersion", "defaultTopic", "flag"),
    *("defaultTopicQueueNums", "bornTimestamp", "extraInfo", "invisibleTime", "msgId", "commitLogOffset"),
    *("tranStateTableOffset", "commitOrRollback", "recallHandle", *"abcdefgh"),
)


def heart_beat(group: str, topic: str) -> bytes:
    subscription = build_subscription(topic, "*", "TAG", 1)
    consumer = ConsumerData(
        group_name=group, consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET", subscription_data_set=[subscription],
    )  # fmt: skip
    return HeartbeatData(client_id="c", consumer_data_set=[consumer]).encode()


@pytest.mark.asyncio
async def test_request_needs_permission_on_each_of_its_topics(start_with_accounts: StartBroker) -> None:
    """Of several topics in one request the last is looked at like the first."""
    broker = await start_with_accounts()
    allowed, secret = MessageQueue("bills", "broker-a", 0), MessageQueue("secret", "broker-a", 0)
    for code, body in (
        (RequestCode.LOCK_BATCH_MQ, LockBatchRequestBody),
        (RequestCode.UNLOCK_BATCH_MQ, UnlockBatchRequestBody),
    ):
        mine = body(consumer_group="billing", client_id="c", mq_set=[allowed]).encode()
        assert (await ask(broker, code, ORDERS, mine)).code == ResponseCode.SUCCESS
        both = body(consumer_group="billing", client_id="c", mq_set=[allowed, secret]).encode()
        assert (await ask(broker, code, ORDERS, both)).code == ResponseCode.NO_PERMISSION
    assert (await ask(broker, RequestCode.HEART_BEAT, ORDERS, heart_beat("billing", "bills"))).code == 0
    hidden = await ask(broker, RequestCode.HEART_BEAT, ORDERS, heart_beat("billing", "secret"))
    assert hidden.code == ResponseCode.NO_PERMISSION


@pytest.mark.asyncio
async def test_default_permission_does_not_open_system_topics(start_with_accounts: StartBroker) -> None:
    text = ACL.replace("defaultTopicPerm: DENY", "defaultTopicPerm: PUB|SUB").replace("bills=SUB", "secret=DENY")
    broker = await start_with_accounts(text, msg_trace_topic_name="OurTraces")
    await send(broker, "secret", ADMIN)

    async def may_read(topic: str) -> bool:
        answer = await ask(broker, pull_of(topic), ORDERS)
        return answer.code != ResponseCode.NO_PERMISSION

    assert await may_read("orders") is False  # listed, PUB alone
    assert await may_read("anything") is True
    of_the_system = ["DefaultCluster_REPLY_TOPIC", "rmq_sys_wheel_timer", "rmq_sys_TRACE_DATA_cn", "OurTraces"]
    for topic in [*sorted(names.MIXED_TOPICS), *of_the_system, "%DLQ%other", "%RETRY%other", "secret"]:
        assert await may_read(topic) is False, topic
    for topic in ("%DLQ%billing", "%RETRY%billing"):
        assert await may_read(topic) is True, topic
    assert (await send(broker, "%DLQ%other", ORDERS))[0] == ResponseCode.NO_PERMISSION
    assert (await send(broker, "%RETRY%other", ORDERS))[0] == ResponseCode.NO_PERMISSION


def pull_of(topic: str) -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        consumer_group="billing", topic=topic, queue_id=0, queue_offset=0, max_msg_nums=1, sys_flag=4,
        commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0,
    )  # fmt: skip


ABOUT_A_TOPIC = [
    *(RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP),
    *(RequestCode.GET_EARLIEST_MSG_STORETIME, RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_TOPIC_STATS_INFO),
]


@pytest.mark.asyncio
async def test_topic_without_permission_cannot_be_read(start_with_accounts: StartBroker) -> None:
    broker = await start_with_accounts()
    assert (await send(broker, "orders", ORDERS))[0] == ResponseCode.SUCCESS
    for topic in ("bills", "secret"):
        assert (await send(broker, topic, ADMIN))[0] == ResponseCode.SUCCESS
    fields = {"queueId": "0", "timestamp": "0"}
    for code in ABOUT_A_TOPIC:
        for topic in ("orders", "bills"):  # to send is enough, as to read is: a producer asks where its queues end, too
            assert (await ask(broker, code, ORDERS, topic=topic, **fields)).code == ResponseCode.SUCCESS
        assert (await ask(broker, code, ORDERS, topic="secret", **fields)).code == ResponseCode.NO_PERMISSION
    stats = RequestCode.GET_CONSUME_STATS
    assert (await ask(broker, stats, ORDERS, consumerGroup="billing")).code == ResponseCode.SUCCESS
    assert (await ask(broker, stats, ORDERS, consumerGroup="billing", topicList="bills;")).code == ResponseCode.SUCCESS
    named = await ask(broker, stats, ORDERS, consumerGroup="billing", topicList="bills;secret")
    assert named.code == ResponseCode.NO_PERMISSION


@pytest.mark.asyncio
async def test_denied_name_is_denied_in_every_spelling(start_with_accounts: StartBroker) -> None:
    """The broker takes the topic of GET_CONSUME_STATS without blanks; a retry topic of POP names group and topic."""
    text = ACL.replace("Perm: DENY", "Perm: SUB").replace("bills=SUB", "secret=DENY")
    broker = await start_with_accounts(text.replace("billing=SUB", "other=DENY"))
    assert (await send(broker, "secret", ADMIN))[0] == ResponseCode.SUCCESS
    for topic in ("secret", " secret", "secret ", "\tsecret", "anything;secret "):
        answer = await ask(broker, RequestCode.GET_CONSUME_STATS, ORDERS, consumerGroup="billing", topic=topic)
        assert answer.code == ResponseCode.NO_PERMISSION, topic
    for topic in ("%RETRY%other", "%RETRY%other+secret", "%DLQ%other"):
        assert (await ask(broker, pull_of(topic), ORDERS)).code == ResponseCode.NO_PERMISSION, topic


@pytest.mark.asyncio
async def test_request_for_whole_broker_needs_administrator(start_with_accounts: StartBroker) -> None:
    broker = await start_with_accounts()
    for code in (
        *(RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        *(RequestCode.GET_ALL_PRODUCER_INFO, RequestCode.GET_PRODUCER_CONNECTION_LIST),
        *(RequestCode.GET_ALL_DELAY_OFFSET, RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_HA_STATUS),
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        *(RequestCode.GET_BROKER_CONSUME_STATS, RequestCode.VIEW_BROKER_STATS_DATA),
        *(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, RequestCode.QUERY_CORRECTION_OFFSET),  # name or show other groups
    ):
        refused = await ask(broker, code, ORDERS, topic="orders", compareGroup="billing")
        assert (refused.code, "Need admin permission" in str(refused.remark)) == (ResponseCode.NO_PERMISSION, True)


@pytest.fixture
def start_with_accounts(tmp_path: Path, start_broker: StartBroker) -> StartBroker:
    """Starts a broker with access control; the text is that of its file of accounts."""

    async def start(text: str = ACL, **settings: object) -> BrokerCase:
        (tmp_path / "plain_acl.yml").write_text(text)
        return await start_broker(acl_enable=True, acl_plain_file=str(tmp_path / "plain_acl.yml"), **settings)

    return start


async def send(broker: BrokerCase, topic: str, who: SessionCredentials | None, body: bytes = b"x") -> tuple[int, str]:
    header = SendMessageRequestHeader(
        producer_group="P", topic=topic, default_topic="TBW102", default_topic_queue_nums=1, queue_id=0, sys_flag=0,
        born_timestamp=5, flag=0,
    )  # fmt: skip
    request = RemotingCommand.request(header, body)
    if who is not None:
        who.sign(request)
    if body == b"changed afterwards":
        request.body = b"other"
    response = await broker.client.invoke(broker.server.address, request, TIMEOUT_MS)
    return response.code, str(response.remark)


@pytest.mark.asyncio
async def test_send_needs_permission_to_publish(start_with_accounts: StartBroker) -> None:
    broker = await start_with_accounts()
    assert (await send(broker, "orders", ORDERS))[0] == ResponseCode.SUCCESS
    assert (await send(broker, "anything", ADMIN))[0] == ResponseCode.SUCCESS
    no = int(ResponseCode.NO_PERMISSION)
    assert await send(broker, "orders", None) == (no, "No accessKey is configured")
    assert await send(broker, "orders", SessionCredentials("nobody", "secret")) == (no, "No acl config for nobody")
    wrong = SessionCredentials("ordersKey", "wrongSecret")
    assert await send(broker, "orders", wrong) == (no, "Check signature failed for accessKey=ordersKey")
    changed = await send(broker, "orders", ORDERS, b"changed afterwards")
    assert changed == (no, "Check signature failed for accessKey=ordersKey")
    assert await send(broker, "bills", ORDERS) == (no, "No default permission for bills (a topic)")
    request = RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, b"defaultTopicQueueNums=3\n")
    ORDERS.sign(request)
    answer = await broker.client.invoke(broker.server.address, request, TIMEOUT_MS)
    assert (answer.code, "Need admin permission" in str(answer.remark)) == (no, True)


@pytest.mark.asyncio
async def test_send_back_without_permission_to_read_is_refused(start_with_accounts: StartBroker) -> None:
    broker = await start_with_accounts()
    assert await send_back(broker, await stored_at(broker, "secret")) == ResponseCode.NO_PERMISSION
    assert await send_back(broker, await stored_at(broker, "bills")) == ResponseCode.SUCCESS
    assert await send_back(broker, 1 << 40) == ResponseCode.SYSTEM_ERROR  # there is nothing to be read


@pytest.mark.asyncio
async def test_forged_record_reveals_no_message_of_other_topic(start_with_accounts: StartBroker) -> None:
    """The head of a record in a body says: topic orders, and a body that reaches over the next message in the log."""
    broker = await start_with_accounts(ACL.replace("orders=PUB", "orders=PUB|SUB"))
    store = broker.server.store
    first = await stored_at(broker, "orders")
    records = StoredRecords(store)
    record = records.record_of(store.message_at(first))
    head = bytes(record)[: bytes(record).index(b"\0\0\0\1x") + 4]  # up to a body of one byte
    filler, secret = b"f" * 4000, b"the secret"
    at = await stored_at(broker, "orders", filler, ORDERS)
    real = records.record_of(store.message_at(at))
    offset = store.max_phy_offset + bytes(real).index(filler)
    tail = bytes([6]) + b"orders" + b"\0\0"
    forged = bytearray(head.ljust(4000 - len(tail), b"f") + tail)
    forged[0:4], forged[28:36] = len(forged).to_bytes(4), offset.to_bytes(8)
    forged[len(head) - 4 : len(head)] = (len(forged) - len(head) - len(tail)).to_bytes(4)
    await stored_at(broker, "orders", bytes(forged), ORDERS)
    await stored_at(broker, "secret", secret)
    assert store.message_at(offset).topic == "orders"
    assert await send_back(broker, offset) == ResponseCode.SYSTEM_ERROR
    assert store.max_offset_in_queue("%DLQ%billing", 0) == 0
    assert await send_back(broker, at) == ResponseCode.SUCCESS


@pytest.mark.asyncio
async def test_account_with_client_id_of_other_gets_no_replies_of_it(
    start_with_accounts: StartBroker,
) -> None:
    broker = await start_with_accounts()
    taken: list[str] = []

    def client(name: str) -> RemotingClient:
        def take(channel: Channel, request: RemotingCommand) -> RemotingCommand:
            taken.append(name)
            return request.response(ResponseCode.SUCCESS)

        return broker.another_client(RequestDispatcher({RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: take}))

    beat = HeartbeatData(client_id="c1", producer_data_set=[ProducerData(group_name="P")]).encode()
    clients = {"theirs": (client("theirs"), ADMIN), "mine": (client("mine"), ORDERS)}
    for one, account in clients.values():
        request = RemotingCommand.request(RequestCode.HEART_BEAT, beat)
        account.sign(request)
        assert (await one.invoke(broker.server.address, request, TIMEOUT_MS)).code == ResponseCode.SUCCESS
    reply = SendMessageRequestHeader(
        producer_group="P", topic="orders", default_topic="TBW102", default_topic_queue_nums=1, queue_id=0, sys_flag=0,
        born_timestamp=5, flag=0, properties="REPLY_TO_CLIENT\x01c1\x02",
    )  # fmt: skip
    request = RemotingCommand.request(reply, b"reply", code=RequestCode.SEND_REPLY_MESSAGE)
    ADMIN.sign(request)
    assert (await broker.client.invoke(broker.server.address, request, TIMEOUT_MS)).code == ResponseCode.SUCCESS
    assert taken == ["theirs"]


@pytest.mark.asyncio
async def test_end_transaction_needs_permission_to_send_to_topic(
    start_with_accounts: StartBroker,
) -> None:
    """Whatever topic the request names: an answer to a check names the topic of all half messages."""
    broker = await start_with_accounts()
    ends: dict[str, list[int]] = {}
    for topic in ("orders", "secret"):
        request = RemotingCommand.request(
            SendMessageRequestHeader(
                producer_group="P", topic=topic, default_topic="TBW102", default_topic_queue_nums=1, queue_id=0,
                sys_flag=4, born_timestamp=5, flag=0, properties="TRAN_MSG\x01true\x02PGROUP\x01P\x02",
            ),
            b"x",
        )  # fmt: skip
        ADMIN.sign(request)
        sent = await broker.client.invoke(broker.server.address, request, TIMEOUT_MS)
        half = sent.read(SendMessageResponseHeader)
        for named in ("orders", names.TRANS_HALF_TOPIC):
            end = EndTransactionRequestHeader(
                topic=named, producer_group="P", tran_state_table_offset=half.queue_offset,
                commit_log_offset=int(half.msg_id[-16:], 16), commit_or_rollback=12, msg_id="",
            )  # fmt: skip
            ends.setdefault(topic, []).append((await ask(broker, end, ORDERS)).code)
    assert ends == {"orders": [ResponseCode.SUCCESS] * 2, "secret": [ResponseCode.NO_PERMISSION] * 2}


async def stored_at(broker: BrokerCase, topic: str, body: bytes = b"x", sender: SessionCredentials = ADMIN) -> int:
    """The offset in the log of a message that was just sent, and is in its queue."""
    offset = broker.server.store.max_phy_offset
    assert (await send(broker, topic, sender, body))[0] == ResponseCode.SUCCESS
    while broker.server.store.dispatch_behind_bytes:
        await asyncio.sleep(0.001)
    return offset


async def send_back(broker: BrokerCase, offset: int) -> int:
    return (
        await ask(broker, ConsumerSendMsgBackRequestHeader(offset=offset, group="billing", delay_level=0), ORDERS)
    ).code


@pytest.mark.asyncio
async def test_query_of_colliding_key_returns_no_message_of_other_topic(start_with_accounts: StartBroker) -> None:
    """The index holds hash codes alone: AaAa#k and BBBB#k are one key to it."""
    broker = await start_with_accounts(ACL.replace("bills=SUB", "AaAa=SUB"))
    assert (await ask(broker, key_sent("BBBB"), ADMIN, b"secret")).code == ResponseCode.SUCCESS
    query = QueryMessageRequestHeader(topic="AaAa", key="k", max_num=32, begin_timestamp=0, end_timestamp=1 << 62)
    assert (await ask(broker, query, ORDERS)).code == ResponseCode.QUERY_NOT_FOUND
    assert (await ask(broker, key_sent("AaAa"), ADMIN, b"mine")).code == ResponseCode.SUCCESS
    assert [one.body for one in messages_of((await ask(broker, query, ORDERS)).body)] == [b"mine"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("bills=SUB", "bills=DENY", "No default permission for bills (a topic)"),
        ("billing=SUB", "billing=DENY", "No default permission for billing (a group)"),
        ("ordersSecret", "otherSecret", "Check signature failed for accessKey=ordersKey"),
        ("ordersKey", "renamedKey", "No acl config for ordersKey"),
    ],
)
async def test_held_pull_is_refused_after_its_account_lost_permission(
    tmp_path: Path, start_with_accounts: StartBroker, old: str, new: str, words: str
) -> None:
    broker = await start_with_accounts()
    await stored_at(broker, "bills")
    request = RemotingCommand.request(waiting_pull())
    ORDERS.sign(request)
    pull = asyncio.ensure_future(broker.client.invoke(broker.server.address, request, 20_000))
    while not len(broker.server.sessions.holds):
        await asyncio.sleep(0.001)
    (tmp_path / "plain_acl.yml").write_text(ACL.replace(old, new))
    while (await ask(broker, waiting_pull(sys_flag=int(PullSysFlag.SUBSCRIPTION)), ORDERS)).code in (
        ResponseCode.PULL_NOT_FOUND, ResponseCode.SUCCESS,
    ):  # fmt: skip
        await asyncio.sleep(0.05)
    await stored_at(broker, "bills", b"secret")
    answer = await pull
    assert (answer.code, answer.remark, answer.body) == (ResponseCode.NO_PERMISSION, words, b"")


def waiting_pull(**fields: int) -> PullMessageRequestHeader:
    """Of the queue of ``bills`` that has one message: from behind it on."""
    return PullMessageRequestHeader(
        consumer_group="billing", topic="bills", queue_id=0, queue_offset=1, max_msg_nums=32, commit_offset=0,
        suspend_timeout_millis=60_000, subscription="*", sub_version=0,
        sys_flag=fields.get("sys_flag", int(PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND)),
    )  # fmt: skip


@pytest.mark.asyncio
async def test_send_back_checks_topic_of_record_at_offset(
    start_with_accounts: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the log has no topic yet, and needs no permission; another account's message is stored there."""
    broker = await start_with_accounts()
    end = broker.server.store.max_phy_offset
    later = DispatchCatchUp._later

    async def secret_comes_first(self: DispatchCatchUp, *of: Any) -> Any:
        assert await stored_at(broker, "secret", b"the secret") == end
        return await later(self, *of)

    with monkeypatch.context() as patch:
        patch.setattr(type(broker.server.store), "dispatch_behind_bytes", 1)
        patch.setattr(DispatchCatchUp, "_later", secret_comes_first)
        asked = asyncio.ensure_future(send_back(broker, end))
        while broker.server.store.max_phy_offset == end:
            await asyncio.sleep(0.001)
    assert await asked == ResponseCode.NO_PERMISSION
    assert broker.server.store.max_offset_in_queue("SCHEDULE_TOPIC_XXXX", 2) == 0


@pytest.mark.asyncio
async def test_forwarded_request_carries_no_credentials(start_with_accounts: StartBroker) -> None:
    """A signature covers neither code nor time: with it a consumer could delete the topic that was asked about."""
    broker = await start_with_accounts()
    taken: list[RemotingCommand] = []

    def take(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        taken.append(request)
        return request.response(ResponseCode.SUCCESS)

    codes = (RequestCode.CONSUME_MESSAGE_DIRECTLY, RequestCode.GET_CONSUMER_RUNNING_INFO)
    consumer = broker.another_client(RequestDispatcher(dict.fromkeys(map(int, codes), take)))
    data = ConsumerData(
        group_name="billing", consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=[build_subscription("bills", "*", "TAG", 1)],
    )  # fmt: skip
    beat = RemotingCommand.request(
        RequestCode.HEART_BEAT, HeartbeatData(client_id="c", consumer_data_set=[data]).encode()
    )
    ORDERS.sign(beat)
    assert (await consumer.invoke(broker.server.address, beat, TIMEOUT_MS)).code == ResponseCode.SUCCESS
    sent = await ask(broker, key_sent("bills"), ADMIN, b"x")
    await stored_at(broker, "bills")
    token = SessionCredentials("adminKey", "adminSecret", "token")
    fields = {"consumerGroup": "billing", "clientId": "c", "topic": "bills", "msgId": sent.ext_fields["msgId"]}
    for code in codes:
        assert (await ask(broker, code, token, **fields)).code == ResponseCode.SUCCESS
    assert [one.code for one in taken] == list(codes)
    for one in taken:
        assert one.ext_fields["consumerGroup"] == "billing"
        assert not {"AccessKey", "Signature", "SecurityToken"} & one.ext_fields.keys()


def key_sent(topic: str) -> SendMessageRequestHeader:
    return SendMessageRequestHeader(
        producer_group="P", topic=topic, default_topic="TBW102", default_topic_queue_nums=1, queue_id=0, sys_flag=0,
        born_timestamp=5, flag=0, properties="KEYS\x01k\x02",
    )  # fmt: skip


async def ask(
    broker: BrokerCase, header: CommandHeader | int, who: SessionCredentials, body: bytes = b"", **fields: str
) -> RemotingCommand:
    request = RemotingCommand.request(header, body)
    request.ext_fields.update(fields)
    who.sign(request)
    return await broker.client.invoke(broker.server.address, request, TIMEOUT_MS)


@pytest.mark.asyncio
async def test_changed_account_file_is_applied_and_invalid_one_is_ignored(
    tmp_path: Path, start_with_accounts: StartBroker
) -> None:
    broker = await start_with_accounts()
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts: [")
    await asyncio.sleep(0.7)
    assert (await send(broker, "orders", ORDERS))[0] == ResponseCode.SUCCESS
    file.write_text("globalWhiteRemoteAddresses: [127.0.0.*]\n" + ACL)
    for _ in range(100):
        code, _ = await send(broker, "anything", None)
        if code == ResponseCode.SUCCESS:
            break
        await asyncio.sleep(0.1)
    assert code == ResponseCode.SUCCESS


def test_unreadable_acl_file_is_reported_once_a_change(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACL)
    control = AccessControl(file)

    def reports() -> list[str]:
        """What three looks at the file say."""
        with capture_logs() as lines:
            for _ in range(3):
                control.reload()
        return [line["event"] for line in lines]

    wrong, fine = ["access control not reloaded"], ["access control reloaded"]
    assert reports() == []
    file.write_text("accounts: [")
    assert (reports(), reports()) == (wrong, [])
    file.write_text("accounts: [[")
    assert (reports(), reports()) == (wrong, [])
    file.rename(tmp_path / "away")
    assert (reports(), reports()) == (wrong, [])
    file.write_text(ACL)
    assert (reports(), reports()) == (fine, [])
    file.rename(tmp_path / "away")
    assert (reports(), reports()) == (wrong, [])
    (tmp_path / "away").rename(file)  # as it was: nothing is reloaded
    assert reports() == []
    file.rename(tmp_path / "away")
    assert (reports(), reports()) == (wrong, [])


@pytest.mark.asyncio
async def test_broker_without_account_file_does_not_start(start_broker: StartBroker) -> None:
    with pytest.raises(ConfigError, match="a file that can be read"):
        await start_broker(acl_enable=True)
