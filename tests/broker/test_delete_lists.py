"""What RocketMQ 5.5.1 has more: lists of topics and groups are deleted, and a message is shown only under its topic.

tests/interop/test_releases.py compares the answers with those of the real brokers of both releases.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker_cases import BrokerCase

from gantrymq.model import fastjson
from gantrymq.model.message import parse_message_id
from gantrymq.remoting.bodies.group import DeleteSubscriptionGroupListRequestBody, SubscriptionGroupConfig
from gantrymq.remoting.bodies.topic import DeleteTopicListRequestBody, TopicConfig
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from gantrymq.remoting.headers.pull import ViewMessageRequestHeader
from gantrymq.remoting.headers.send import SendMessageResponseHeader

pytestmark = pytest.mark.asyncio
OF_TOPICS, OF_GROUPS = RequestCode.DELETE_TOPIC_IN_BROKER_LIST, RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST


async def make_group(broker: BrokerCase, group: str) -> None:
    body = SubscriptionGroupConfig(group_name=group)
    assert (await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == ResponseCode.SUCCESS


async def test_deletion_of_topic_list_removes_messages_offsets_and_configuration(
    broker: BrokerCase, tmp_path: Path
) -> None:
    await make_group(broker, "G")
    for name in ("A", "B", "Stays"):
        await broker.send(name)
        header = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic=name, queue_id=0, commit_offset=1)
        await broker.ask(header)
    answer = await broker.ask(OF_TOPICS, DeleteTopicListRequestBody(topic_list=["A", "Unknown", "B", "A"]))
    assert answer.code == ResponseCode.SUCCESS
    config = tmp_path / "store" / "config"
    topics = fastjson.loads((config / "topics.json").read_text())["topicConfigTable"]
    assert {"A", "B", "Stays"} & set(topics) == {"Stays"}
    assert list(fastjson.loads((config / "consumerOffset.json").read_text())["offsetTable"]) == ["Stays@G"]
    assert {topic for topic, _, _, end in broker.server.store.queues() if end} == {"Stays"}


@pytest.mark.parametrize(
    ("topics", "remark"),
    [
        ([], "The specified topic list is blank."),
        (["A", " "], "The specified topic is blank."),
        (["A", None], "The specified topic is blank."),
        (["A", "TBW102"], "The topic[TBW102] is conflict with system topic."),
    ],
)
async def test_topic_list_with_wrong_topic_deletes_nothing(
    broker: BrokerCase, topics: list[str | None], remark: str
) -> None:
    await broker.send("A")
    answer = await broker.ask(OF_TOPICS, DeleteTopicListRequestBody(topic_list=topics))
    assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, remark)
    assert broker.server.tables.topics.get("A") is not None


async def test_pop_retry_topics_are_deleted_with_topics_of_list(broker: BrokerCase) -> None:
    await make_group(broker, "G")
    await broker.send("A")
    for name in ("%RETRY%G+A", "%RETRY%G_A", "%RETRY%G+Other"):
        broker.server.tables.topics.update([TopicConfig(topic_name=name)])
    await broker.ask(UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="A", queue_id=0, commit_offset=1))
    await broker.ask(OF_TOPICS, DeleteTopicListRequestBody(topic_list=["A"]))
    assert {name for name in broker.server.tables.topics.table if name.endswith(("A", "Other"))} == {"%RETRY%G+Other"}


async def test_pop_retry_topics_of_deleted_group_are_deleted_with_their_topic(broker: BrokerCase) -> None:
    await broker.send("A")
    for name in ("%RETRY%G", "%RETRY%G_A", "%RETRY%H_A"):
        broker.server.tables.topics.update([TopicConfig(topic_name=name)])
    await broker.ask(OF_TOPICS, DeleteTopicListRequestBody(topic_list=["A"]))
    left = {name for name in broker.server.tables.topics.table if name.startswith("%RETRY%")}
    assert left == {"%RETRY%G", "%RETRY%H_A"}  # H_A may be a group


@pytest.mark.parametrize("with_offsets", [False, True])
async def test_deletion_of_group_list_removes_offsets_on_request(
    broker: BrokerCase, tmp_path: Path, with_offsets: bool
) -> None:
    await broker.send("T")
    for group in ("G", "H", "Stays"):
        await make_group(broker, group)
        header = UpdateConsumerOffsetRequestHeader(consumer_group=group, topic="T", queue_id=0, commit_offset=1)
        await broker.ask(header)
    body = DeleteSubscriptionGroupListRequestBody(group_name_list=["G", "H", "G", "Unknown"], clean_offset=with_offsets)
    assert (await broker.ask(OF_GROUPS, body)).code == ResponseCode.SUCCESS
    kept = fastjson.loads((tmp_path / "store" / "config" / "subscriptionGroup.json").read_text())
    assert {"G", "H", "Stays"} & set(kept["subscriptionGroupTable"]) == {"Stays"}
    left = {group for group in ("G", "H", "Stays") if broker.server.tables.offsets.query(group, "T", 0) == 1}
    assert left == ({"Stays"} if with_offsets else {"G", "H", "Stays"})


async def test_group_list_with_blank_group_deletes_nothing(broker: BrokerCase) -> None:
    await make_group(broker, "G")
    for groups, remark in (
        ([], "The specified group name list is blank."),
        (["G", None], "The specified group name is blank."),
    ):
        answer = await broker.ask(OF_GROUPS, DeleteSubscriptionGroupListRequestBody(group_name_list=groups))
        assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, remark)
    assert "G" in broker.server.tables.groups.table


def offset_of(sent: RemotingCommand) -> int:
    return parse_message_id(sent.read(SendMessageResponseHeader).msg_id)[1]


async def test_message_is_shown_under_its_own_topic_only(broker: BrokerCase) -> None:
    plain = offset_of(await broker.send("T"))
    half = offset_of(await broker.send("T", properties={"TRAN_MSG": "true", "PGROUP": "P"}, sys_flag=4))
    delayed = offset_of(await broker.send("T", properties={"DELAY": "18"}))
    for offset in (plain, half, delayed):
        answers = [
            await broker.ask(ViewMessageRequestHeader(topic=name, offset=offset)) for name in ("T", "", None, "Other")
        ]
        assert [answer.code for answer in answers] == [*[ResponseCode.SUCCESS] * 3, ResponseCode.NO_PERMISSION]
        assert answers[3].remark == "The topic does not match the message"
    waiting = await broker.ask(ViewMessageRequestHeader(topic="SCHEDULE_TOPIC_XXXX", offset=delayed))
    assert waiting.code == ResponseCode.NO_PERMISSION


async def test_topics_of_two_lists_at_once_are_deleted_once(broker: BrokerCase) -> None:
    for name in ("A", "B"):
        await broker.send(name)
    lists = [DeleteTopicListRequestBody(topic_list=names) for names in (["A", "B"], ["B", "A"])]
    answers = await asyncio.gather(*(broker.ask(OF_TOPICS, one) for one in lists))
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 2
    assert (await broker.send("A")).read(SendMessageResponseHeader).queue_offset == 0
