"""What administrators ask, over the wire; what the real tools find is in tests/interop/test_java_client.py."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from broker_cases import BrokerCase, StartBroker, messages_of

from gantrymq.errors import DiskFullError
from gantrymq.model import fastjson
from gantrymq.model.limits import MAX_QUEUES
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from gantrymq.remoting.bodies.topic import KVTable, TopicConfig, TopicConfigAndMappingSerializeWrapper
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.headers.consumer import (
    GetAllSubscriptionGroupRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
)
from gantrymq.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from gantrymq.remoting.headers.pull import QueryMessageRequestHeader
from gantrymq.remoting.headers.send import SendMessageResponseHeader
from gantrymq.remoting.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from gantrymq.store.message_store import MessageStore

pytestmark = pytest.mark.asyncio


def topic(name: str, queues: int = 2, **fields: object) -> CreateTopicRequestHeader:
    return CreateTopicRequestHeader(
        **{
            "topic": name,
            "default_topic": "TBW102",
            "read_queue_nums": queues,
            "write_queue_nums": queues,
            "perm": 6,
            "topic_filter_type": "SINGLE_TAG",
            "order": False,
            **fields,
        }
    )


def too_big(name: str, perm: int = 6) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=MAX_QUEUES + 1, write_queue_nums=MAX_QUEUES + 1, perm=perm)


async def test_creation_of_topic_is_answered_once_it_is_on_disk(broker: BrokerCase, tmp_path: Path) -> None:
    assert (await broker.ask(topic("Made"))).code == ResponseCode.SUCCESS
    kept = fastjson.loads((tmp_path / "store" / "config" / "topics.json").read_text())
    assert kept["topicConfigTable"]["Made"]["readQueueNums"] == 2


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ('{"topicName":"Made","readQueueNums":3000000000}', ResponseCode.SYSTEM_ERROR),
        ('{"topicName":"Made","perm":18446744073709551616}', ResponseCode.SYSTEM_ERROR),
        ('{"topicName":"Made","topicFilterType":"ZZ"}', ResponseCode.SYSTEM_ERROR),
        ('{"readQueueNums":4}', ResponseCode.INVALID_PARAMETER),
        ('{"topicName":null}', ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_topic_with_settings_unreadable_for_java_is_refused(broker: BrokerCase, wrong: str, code: int) -> None:
    before = set(broker.server.tables.topics.table)
    body = f'{{"topicConfigList":[{wrong}]}}'.encode()
    assert (await broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)).code == code
    assert set(broker.server.tables.topics.table) == before


async def test_unknown_filter_type_of_topic_is_refused(broker: BrokerCase) -> None:
    refused = await broker.ask(topic("Made", topic_filter_type="ZZ"))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "topicFilterType = [ZZ] value invalid" in str(refused.remark)
    assert broker.server.tables.topics.get("Made") is None
    for known in ("SINGLE_TAG", "MULTI_TAG"):
        assert (await broker.ask(topic("Made", topic_filter_type=known))).code == ResponseCode.SUCCESS


async def test_creation_of_topic_with_too_many_queues_is_refused(broker: BrokerCase) -> None:
    assert (await broker.ask(topic("Big", MAX_QUEUES))).code == ResponseCode.SUCCESS
    refused = await broker.ask(topic("Big", 4, read_queue_nums=MAX_QUEUES + 1))
    assert (refused.code, refused.remark) == (
        ResponseCode.INVALID_PARAMETER,
        "The topic[Big] has 65537 queues, more than 65536 that a topic can have.",
    )
    group = SubscriptionGroupConfig(group_name="G", retry_queue_nums=MAX_QUEUES + 1)
    refused = await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)
    assert refused.code == ResponseCode.INVALID_PARAMETER
    broker.server.tables.topics.update([too_big("TBW102", perm=7)])
    made = broker.server.tables.topics.planned_by_send("New", "TBW102", MAX_QUEUES + 1, 0)
    assert made is not None
    assert made.write_queue_nums == MAX_QUEUES


async def test_topic_with_too_many_queues_is_not_counted(broker: BrokerCase) -> None:
    broker.server.tables.topics.update([too_big("Big")])  # as an old topics.json may have it
    broker.server.tables.groups.update([SubscriptionGroupConfig(group_name="G")])
    broker.server.tables.offsets.commit("G", "Big", 0, 0)
    reset = ResetOffsetRequestHeader(topic="Big", group="G", timestamp=-1, queue_id=-1)
    for question in (
        GetTopicStatsInfoRequestHeader(topic="Big"),
        GetConsumeStatsRequestHeader(consumer_group="G", topic="Big"),
        GetConsumeStatsInBrokerHeader(is_order=False),
        QueryConsumeTimeSpanRequestHeader(topic="Big", group="G"),
        reset,
        reset,
    ):
        refused = await broker.ask(question)
        assert refused.code == ResponseCode.SYSTEM_ERROR, question
        assert "The topic[Big] has 65537 queues, more than 65536" in (refused.remark or "")
        config = broker.server.config
        config.broker = replace(config.broker, use_server_side_reset_offset=question is reset)


async def test_get_all_topic_config_returns_every_topic(broker: BrokerCase) -> None:
    await broker.ask(topic("Made"))
    response = await broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    table = decode_body(TopicConfigAndMappingSerializeWrapper, response.body).topic_config_table
    assert {"Made", "TBW102", "SCHEDULE_TOPIC_XXXX"} <= set(table)


async def test_recreated_topic_begins_at_offset_0(broker: BrokerCase) -> None:
    await broker.send(queue_id=0)
    assert (await broker.ask(DeleteTopicRequestHeader(topic="T"))).code == ResponseCode.SUCCESS
    assert broker.server.tables.topics.get("T") is None
    assert (await broker.send(queue_id=0)).read(SendMessageResponseHeader).queue_offset == 0


async def test_admin_request_sees_previously_acknowledged_messages(broker: BrokerCase) -> None:
    for sent in range(1, 30):
        await broker.send()
        header = GetMaxOffsetRequestHeader(topic="T", queue_id=0, committed=True)
        assert (await broker.ask(header)).read(GetMaxOffsetResponseHeader).offset == sent


async def test_query_by_key_finds_message(broker: BrokerCase) -> None:
    await broker.send(body=b"found", properties={"KEYS": "k1"})
    await broker.send(body=b"other", properties={"KEYS": "k2"})
    header = QueryMessageRequestHeader(topic="T", key="k1", max_num=32, begin_timestamp=0, end_timestamp=1 << 62)
    response = await broker.ask(header)
    assert [one.body for one in messages_of(response.body)] == [b"found"]
    missing = await broker.ask(
        QueryMessageRequestHeader(topic="T", key="k9", max_num=32, begin_timestamp=0, end_timestamp=1 << 62)
    )
    assert missing.code == ResponseCode.QUERY_NOT_FOUND


async def test_invalid_setting_leaves_all_settings_unchanged(broker: BrokerCase) -> None:
    bad = await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, b"defaultTopicQueueNums=3\nbrokerPermission=99\n")
    assert bad.code == ResponseCode.INVALID_PARAMETER
    assert broker.server.config.broker.default_topic_queue_nums == 8
    good = await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, b"defaultTopicQueueNums=3\nadminBrokerThreadPoolNums=7\n")
    assert good.code == ResponseCode.SUCCESS
    shown = (await broker.ask(RequestCode.GET_BROKER_CONFIG)).body.decode()
    assert "defaultTopicQueueNums=3\n" in shown
    assert "adminBrokerThreadPoolNums=7\n" in shown  # it does not act here, and is not forgotten
    black = await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, b"brokerConfigPath=/x\n")
    assert black.code == ResponseCode.NO_PERMISSION


async def test_config_update_with_refused_key_is_refused(
    start_broker: StartBroker,
) -> None:
    case = await start_broker(config_black_list="brokerPermission")
    for entry in (
        *(b"brokerPermission=0", b"configBlackList=", b"brokerConfigPath=/x", b"rocketmqHome=/x", b"aclEnable=true"),
        *(b"aclPlainFile=/x", b"defaultTopicQueueNums=3\nbrokerPermission=0"),
    ):
        assert (await case.ask(RequestCode.UPDATE_BROKER_CONFIG, entry)).code == ResponseCode.NO_PERMISSION
    good = await case.ask(RequestCode.UPDATE_BROKER_CONFIG, b"defaultTopicQueueNums=3")
    assert good.code == ResponseCode.SUCCESS


async def test_unsaved_config_update_takes_effect_and_returns_error(broker: BrokerCase) -> None:
    def refuse(entries: Mapping[str, str]) -> None:
        raise DiskFullError(Path("broker.conf"), 1)

    broker.server.config.keep = refuse
    answer = await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, b"defaultTopicQueueNums=3\n")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "broker.conf" in (answer.remark or "")
    assert broker.server.config.broker.default_topic_queue_nums == 3


async def test_runtime_info_counts_messages(broker: BrokerCase) -> None:
    for _ in range(5):
        await broker.send()
    table = decode_body(KVTable, (await broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
    assert table["putMessageTimesTotal"] == table["msgPutTotalTodayNow"] == "5"
    assert int(table["commitLogMaxOffset"]) > 0
    assert table["brokerVersionDesc"] == "V5_5_0"


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (RequestCode.POP_LITE_MESSAGE, ResponseCode.NO_PERMISSION),
        (RequestCode.END_TRANSACTION, ResponseCode.SYSTEM_ERROR),
        (RequestCode.GET_BROKER_EPOCH_CACHE, ResponseCode.SYSTEM_ERROR),
        (99_999, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
    ],
)
async def test_disabled_feature_returns_error(broker: BrokerCase, code: int, answer: int) -> None:
    assert (await broker.ask(code)).code == answer


async def test_offsets_survive_restart(tmp_path: Path, start_broker: StartBroker) -> None:
    case = await start_broker()
    await case.send()
    case.server.tables.offsets.commit("G", "T", 0, 1)
    await case.stop()
    kept = fastjson.loads((tmp_path / "store" / "config" / "consumerOffset.json").read_text())
    assert (kept["offsetTable"], kept["groupTopicMap"]) == ({"T@G": {"0": 1}}, {"G": ["T"]})
    case = await start_broker()
    assert case.server.tables.offsets.query("G", "T", 0) == 1


async def test_offset_of_pull_without_commit_survives_restart(start_broker: StartBroker) -> None:
    case = await start_broker()
    await case.send()
    await case.dispatched(1)
    await case.pull()
    await case.stop()
    again = await start_broker()
    assert again.server.tables.offsets.query_pulled("G", "T", 0) == 1
    edits = again.server.tables.offsets.edits
    await again.pull(offset=1)
    assert again.server.tables.offsets.edits == edits  # a waiting pull does not make the broker write the table


async def test_table_of_groups_is_standard_json(broker: BrokerCase) -> None:
    body = (await broker.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body
    assert "TOOLS_CONSUMER" in json.loads(body)["subscriptionGroupTable"]


async def test_send_during_deletion_of_topic_is_refused_or_kept(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A send that came while the queues go made the topic again, and its message went with them."""
    await broker.send("T", b"old")
    await broker.dispatched(1)
    let_go, delete_topic = threading.Event(), MessageStore.delete_topic

    def slow(store: MessageStore, topic: str) -> int:
        let_go.wait()
        return delete_topic(store, topic)

    monkeypatch.setattr(MessageStore, "delete_topic", slow)
    deleting = asyncio.ensure_future(broker.ask(DeleteTopicRequestHeader(topic="T")))
    while "T" not in broker.server.tables.topics.going:
        await asyncio.sleep(0.001)
    busy = await broker.send("T", b"too early")
    assert (busy.code, "being deleted" in str(busy.remark)) == (ResponseCode.SYSTEM_BUSY, True)
    assert (await broker.send("U")).code == ResponseCode.SUCCESS
    let_go.set()
    assert (await deleting).code == ResponseCode.SUCCESS
    assert (await broker.send("T", b"new")).code == ResponseCode.SUCCESS
    await broker.dispatched(1)
    assert [one.body for one in messages_of((await broker.pull("T")).body)] == [b"new"]


@pytest.mark.parametrize("second", [DeleteTopicRequestHeader(topic="T"), RequestCode.CLEAN_UNUSED_TOPIC])
async def test_second_deletion_of_topic_deletes_no_new_message(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch, second: DeleteTopicRequestHeader | int
) -> None:
    """A tool whose time is over asks again; and a topic that is not configured any more may be sent to again."""
    await broker.send("T", b"old")
    await broker.dispatched(1)
    let_go, delete_topic = [threading.Event(), threading.Event()], MessageStore.delete_topic
    deletions = iter(let_go)

    def slow(store: MessageStore, topic: str) -> int:
        next(deletions).wait(60)
        return delete_topic(store, topic)

    monkeypatch.setattr(MessageStore, "delete_topic", slow)
    deleting = [asyncio.ensure_future(broker.ask(ask)) for ask in (DeleteTopicRequestHeader(topic="T"), second)]
    while "T" not in broker.server.tables.topics.going:
        await asyncio.sleep(0.001)
    await broker.pull("U")  # so that the second one has been read, too
    let_go[0].set()
    await deleting[0]
    assert (await broker.send("T", b"new")).code == ResponseCode.SUCCESS
    let_go[1].set()
    await deleting[1]
    await broker.dispatched(1)
    assert [one.body for one in messages_of((await broker.pull("T")).body)] == [b"new"]


async def test_send_during_deletion_of_unconfigured_topic_is_refused_or_kept(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.send("T", b"old")
    await broker.dispatched(1)
    commit = UpdateConsumerOffsetRequestHeader(consumer_group="TOOLS_CONSUMER", topic="T", queue_id=0, commit_offset=1)
    assert (await broker.ask(commit)).code == ResponseCode.SUCCESS
    broker.server.tables.topics.delete("T")  # as where topics.json was lost
    let_go, delete_topic = threading.Event(), MessageStore.delete_topic

    def slow(store: MessageStore, topic: str) -> int:
        let_go.wait(60)
        return delete_topic(store, topic)

    monkeypatch.setattr(MessageStore, "delete_topic", slow)
    cleaning = asyncio.ensure_future(broker.ask(RequestCode.CLEAN_UNUSED_TOPIC))
    while "T" not in broker.server.tables.topics.going:
        await asyncio.sleep(0.001)
    assert (await broker.send("T", b"too early")).code == ResponseCode.SYSTEM_BUSY
    let_go.set()
    assert (await cleaning).code == ResponseCode.SUCCESS
    assert broker.server.tables.offsets.of("TOOLS_CONSUMER", "T") is None  # it would pass over what comes next


@pytest.mark.parametrize("size", [1, 2, 3])
async def test_last_page_of_one_topic_moves_it_to_page_before(broker: BrokerCase, size: int) -> None:
    # RocketMQ's clients and slaves of 5.5.0 and 5.5.1 stop as soon as all topics but one have arrived.
    for number in range(4):
        assert (await broker.ask(topic(f"Made{number}"))).code == ResponseCode.SUCCESS
    arrived: set[str] = set()
    total = len(broker.server.tables.topics.table)
    version = broker.server.tables.topics.version.encode().decode()
    while len(arrived) < total - 1:
        asked = GetAllTopicConfigRequestHeader(topic_seq=len(arrived), max_topic_num=size, data_version=version)
        body = decode_body(TopicConfigAndMappingSerializeWrapper, (await broker.ask(asked)).body)
        assert body.topic_config_table
        arrived |= set(body.topic_config_table)
    assert arrived == set(broker.server.tables.topics.table)


@pytest.mark.parametrize("size", [1, 2, 3])
async def test_last_page_of_one_group_moves_it_to_page_before(broker: BrokerCase, size: int) -> None:
    # The same rule of RocketMQ 5.5.0 and 5.5.1 for subscription groups.
    for number in range(4):
        group = SubscriptionGroupConfig(group_name=f"G{number}")
        assert (await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)).code == ResponseCode.SUCCESS
    arrived: set[str] = set()
    groups = broker.server.tables.groups
    while len(arrived) < len(groups.table) - 1:
        version = groups.version.encode().decode()
        asked = GetAllSubscriptionGroupRequestHeader(group_seq=len(arrived), max_group_num=size, data_version=version)
        body = decode_body(SubscriptionGroupWrapper, (await broker.ask(asked)).body)
        assert body.subscription_group_table
        arrived |= set(body.subscription_group_table)
    assert arrived == set(groups.table)


async def test_get_all_consumer_offset_has_no_pull_offsets(broker: BrokerCase) -> None:
    # The JSON reader of a 5.5.0 slave fails on the field pullOffsetTable; the slave then copies no offset at all.
    answer = await broker.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert set(json.loads(answer.body)) == {"dataVersion", "offsetTable"}
