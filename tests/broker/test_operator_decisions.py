"""What an operator decided stands, whatever unrelated happens afterwards, until it is taken back."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from threading import Event

import pytest
from broker_cases import BrokerCase, StartBroker, messages_of

from gantrymq.broker.tables.subscription_groups import FORBIDDEN_READ
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import PullSysFlag, RequestCode, ResponseCode
from gantrymq.remoting.headers.consumer import DeleteSubscriptionGroupRequestHeader, UpdateGroupForbiddenRequestHeader
from gantrymq.remoting.headers.offset import (
    CloneGroupOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from gantrymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from gantrymq.remoting.headers.topic import CreateTopicRequestHeader, DeleteTopicRequestHeader

pytestmark = pytest.mark.asyncio
SENT = 24


async def update_group(broker: BrokerCase, **fields: object) -> None:
    config = SubscriptionGroupConfig(group_name="G", **fields)  # type: ignore[arg-type]
    answer = await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, config)
    assert answer.code == ResponseCode.SUCCESS


async def update_topic(broker: BrokerCase, topic: str, queues: int, perm: int = 6) -> None:
    header = CreateTopicRequestHeader(
        topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=perm,
        topic_filter_type="SINGLE_TAG",
    )  # fmt: skip
    assert (await broker.ask(header)).code == ResponseCode.SUCCESS


def retry_topic(broker: BrokerCase) -> TopicConfig:
    found = broker.server.tables.topics.get("%RETRY%G")
    assert found is not None
    return found


async def send_back_all(broker: BrokerCase) -> set[int]:
    """Send messages and send all of them back; the retry queues that they will come to."""
    store = broker.server.store
    before = store.max_phy_offset
    for number in range(SENT):
        await broker.send(body=b"%d" % number)
    await broker.dispatched(store.next_offset_in_queue("T", 0))
    first = max(store.max_offset_in_queue("T", 0) - SENT, 0)
    for message in messages_of((await broker.pull(offset=first)).body):
        back = ConsumerSendMsgBackRequestHeader(offset=message.phy_offset, group="G", delay_level=1)
        assert (await broker.ask(back)).code == ResponseCode.SUCCESS
    assert store.max_phy_offset > before
    level, count = "SCHEDULE_TOPIC_XXXX", store.next_offset_in_queue("SCHEDULE_TOPIC_XXXX", 0)
    await broker.dispatched(count, level)
    waiting = [store.get(level, 0, offset).messages[0] for offset in range(count)]
    return {int(one.properties["REAL_QID"]) for one in waiting[-SENT:]}


async def test_failed_messages_return_after_retry_queues_were_added(broker: BrokerCase) -> None:
    """Java leaves the topic as it was, and what goes to the new queues is read by nobody."""
    await broker.heart_beat()
    assert retry_topic(broker).read_queue_nums == 1
    await update_group(broker, retry_queue_nums=3)
    topic = retry_topic(broker)
    assert (topic.read_queue_nums, topic.write_queue_nums) == (3, 3)
    assert await send_back_all(broker) == {0, 1, 2}


async def test_reduction_of_retry_queues_keeps_queues_with_messages(broker: BrokerCase) -> None:
    await update_group(broker, retry_queue_nums=3)
    await broker.heart_beat()
    await update_group(broker, retry_queue_nums=1)
    assert retry_topic(broker).read_queue_nums == 3
    assert await send_back_all(broker) == {0}


async def test_failed_message_goes_to_existing_retry_queue(broker: BrokerCase) -> None:
    """A store of RocketMQ has such a topic; and an operator may have made it smaller, which stands."""
    await update_group(broker, retry_queue_nums=3)
    await broker.heart_beat()
    await update_topic(broker, "%RETRY%G", 2)
    await broker.heart_beat()
    assert await send_back_all(broker) <= {0, 1}
    assert retry_topic(broker).read_queue_nums == 2


async def test_sent_back_message_keeps_order_flag_of_retry_topic(broker: BrokerCase) -> None:
    await broker.heart_beat()
    broker.server.tables.topics.create_for_group("%RETRY%G", 1, order=True)
    version = broker.server.tables.topics.version.counter
    await send_back_all(broker)
    assert retry_topic(broker).order
    assert broker.server.tables.topics.version.counter <= version + 1  # of T, which the first send made


async def test_allowing_one_topic_leaves_another_forbidden(broker: BrokerCase) -> None:
    for topic in ("T", "U"):
        await broker.send(topic)
        await broker.ask(UpdateGroupForbiddenRequestHeader(group="G", topic=topic, readable=False))
    await broker.ask(UpdateGroupForbiddenRequestHeader(group="G", topic="T", readable=True))
    await broker.heart_beat(topics=("T", "U"))
    for flags in (0, 4):  # by the subscription of its heart-beat, and by one that comes with the pull
        assert (await broker.pull("T", sys_flag=flags)).code == ResponseCode.SUCCESS
        assert (await broker.pull("U", sys_flag=flags)).code == ResponseCode.NO_PERMISSION
    await broker.ask(UpdateGroupForbiddenRequestHeader(group="G", topic="U", readable=True))
    assert not broker.server.tables.groups.is_forbidden("G", "U", FORBIDDEN_READ)
    assert broker.server.tables.groups.to_json()["forbiddenTable"] == {}


async def reset_to(broker: BrokerCase, offset: int) -> None:
    header = ResetOffsetRequestHeader(group="G", topic="T", queue_id=0, offset=offset, timestamp=-1)
    assert (await broker.ask(header)).code == ResponseCode.SUCCESS


async def offset_of(broker: BrokerCase) -> int:
    header = QueryConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0)
    return (await broker.ask(header)).read(QueryConsumerOffsetResponseHeader).offset


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_reset_offset_survives_restart_and_late_commit(
    tmp_path: Path, start_broker: StartBroker, how: str
) -> None:
    broker = await start_broker()
    for _ in range(5):
        await broker.send()
    await broker.dispatched(5)
    await broker.heart_beat()
    commit = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=5)
    await broker.ask(commit)
    await reset_to(broker, 2)
    if how == "killed":
        await broker.server.abandon()
        await broker.client.close()
    else:
        await broker.stop()
    # RocketMQ passes over this table, and fastjson2 passes over no number that is a name: it would not start.
    kept = (tmp_path / "store" / "config" / "consumerOffset.json").read_text()
    assert re.search(r'"resetOffsetTable":\{\s*"T@G":\{\s*"0":2\s*\}\s*\}', kept), kept
    broker = await start_broker()
    await broker.heart_beat()
    assert await offset_of(broker) == 2
    await broker.ask(commit)  # of a consumer that does not know yet
    assert await offset_of(broker) == 2
    moved = await broker.pull(offset=5)
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED
    assert (await broker.pull(offset=2)).code == ResponseCode.SUCCESS
    await broker.ask(commit)
    assert await offset_of(broker) == 5
    await broker.stop()
    assert "resetOffsetTable" not in (tmp_path / "store" / "config" / "consumerOffset.json").read_text()


@pytest.mark.parametrize("how", ["same broker", "restarted"])
async def test_settings_of_topics_and_groups_survive_restart(start_broker: StartBroker, how: str) -> None:
    """Through heart-beats, sends, changes and deletions of others, and a restart."""
    broker = await start_broker()
    await update_topic(broker, "T", 2, perm=4)
    await update_topic(broker, "U", 3)
    await update_group(broker, consume_enable=False, retry_max_times=2)
    await broker.heart_beat(topics=("T", "U"))
    await broker.send("V")
    await update_topic(broker, "W", 1)
    await broker.ask(DeleteTopicRequestHeader(topic="W"))
    await broker.ask(DeleteSubscriptionGroupRequestHeader(group_name="other"))
    await broker.send("U", default_topic_queue_nums=16)
    if how == "restarted":
        await broker.stop()
        broker = await start_broker()
        await broker.heart_beat(topics=("T", "U"))
    found = {name: broker.server.tables.topics.get(name) for name in ("T", "U", "W")}
    assert found["T"] is not None
    assert found["U"] is not None
    assert (found["T"].perm, found["T"].read_queue_nums, found["U"].write_queue_nums) == (4, 2, 3)
    assert found["W"] is None
    group = broker.server.tables.groups.find("G")
    assert group is not None
    assert (group.consume_enable, group.retry_max_times) == (False, 2)
    assert (await broker.pull("U")).code == ResponseCode.NO_PERMISSION


async def test_commit_of_pull_does_not_undo_reset(broker: BrokerCase) -> None:
    for _ in range(5):
        await broker.send()
    await broker.dispatched(5)
    await broker.heart_beat()
    await reset_to(broker, 2)
    flags = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.COMMIT_OFFSET)
    assert (await broker.pull(offset=5, sys_flag=flags, commit_offset=5)).code == ResponseCode.PULL_OFFSET_MOVED
    assert await offset_of(broker) == 2


@pytest.mark.parametrize("how", ["same broker", "restarted"])
async def test_consumer_of_deleted_topic_commits_no_offset_to_recreated_topic(
    start_broker: StartBroker, how: str
) -> None:
    """Neither what it commits nor where it goes on: it would pass over the new messages."""
    broker = await start_broker()
    await broker.heart_beat()
    await send_and_consume(broker, 5)
    assert (await broker.ask(DeleteTopicRequestHeader(topic="T"))).code == ResponseCode.SUCCESS
    if how == "restarted":
        await broker.stop()
        broker = await start_broker()
    await update_topic(broker, "T", 4)
    await broker.heart_beat()
    for number in range(8):
        await broker.send(body=b"new %d" % number)
    await broker.dispatched(8)
    await broker.ask(UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=5))
    assert await offset_of(broker) == 0
    flags = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.COMMIT_OFFSET)
    assert (await broker.pull(offset=5, sys_flag=flags, commit_offset=5)).code == ResponseCode.PULL_OFFSET_MOVED
    assert await offset_of(broker) == 0
    assert [one.body for one in messages_of((await broker.pull(offset=0)).body)] == [b"new %d" % n for n in range(8)]


async def send_and_consume(broker: BrokerCase, count: int) -> None:
    for number in range(count):
        await broker.send(body=b"old %d" % number)
    await broker.dispatched(count)
    assert (await broker.pull()).code == ResponseCode.SUCCESS
    await broker.ask(UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=count))


async def test_deletion_of_topic_answers_held_pull_at_once(broker: BrokerCase) -> None:
    await broker.heart_beat()
    await send_and_consume(broker, 5)
    flags = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND)
    pull = asyncio.ensure_future(broker.pull(offset=5, sys_flag=flags, suspend_timeout_millis=9_000_000))
    while not len(broker.server.sessions.holds):
        await asyncio.sleep(0.001)
    assert (await broker.ask(DeleteTopicRequestHeader(topic="T"))).code == ResponseCode.SUCCESS
    assert (await pull).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("going", ["%RETRY%G", "%DLQ%G"])
async def test_send_back_to_topic_being_deleted_is_refused(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch, going: str
) -> None:
    """It would be acknowledged, and deleted with what was there before."""
    level = 1 if going.startswith("%RETRY%") else -1
    await broker.heart_beat()
    await send_and_consume(broker, 2)
    found = messages_of((await broker.pull()).body)
    backs = [ConsumerSendMsgBackRequestHeader(offset=one.phy_offset, group="G", delay_level=level) for one in found]
    assert (await broker.ask(backs[0])).code == ResponseCode.SUCCESS
    store, delete, is_deleting, may_end = broker.server.store, type(broker.server.store).delete_topic, Event(), Event()

    def slowly(topic: str) -> int:
        is_deleting.set()
        may_end.wait()
        return delete(store, topic)

    monkeypatch.setattr(store, "delete_topic", slowly)
    deletion = asyncio.ensure_future(broker.ask(DeleteTopicRequestHeader(topic=going)))
    await asyncio.to_thread(is_deleting.wait)
    refused = await broker.ask(backs[1])
    await broker.heart_beat()
    meanwhile = broker.server.tables.topics.get(going)
    may_end.set()
    assert meanwhile is None
    assert (refused.code, refused.remark) == (
        ResponseCode.SYSTEM_BUSY, f"topic[{going}] is being deleted, try again",
    )  # fmt: skip
    assert (await deletion).code == ResponseCode.SUCCESS
    assert (await broker.ask(backs[1])).code == ResponseCode.SUCCESS
    assert broker.server.tables.topics.get(going) is not None


async def test_deleted_group_is_not_forbidden_after_restart(start_broker: StartBroker) -> None:
    """Also where it was never made: what is forbidden to a group may come before its first heart-beat."""
    broker = await start_broker()
    await broker.ask(UpdateGroupForbiddenRequestHeader(group="G", topic="T", readable=False))
    await broker.ask(DeleteSubscriptionGroupRequestHeader(group_name="G"))
    await broker.server.abandon()
    broker = await start_broker()
    assert not broker.server.tables.groups.is_forbidden("G", "T", FORBIDDEN_READ)


@pytest.mark.parametrize("event", ["a reset came before", "the group is connected"])
async def test_cloned_offsets_survive_restart(broker: BrokerCase, event: str) -> None:
    await send_and_consume(broker, 5)
    source = UpdateConsumerOffsetRequestHeader(consumer_group="TOOLS_CONSUMER", topic="T", queue_id=0, commit_offset=3)
    assert (await broker.ask(source)).code == ResponseCode.SUCCESS
    if event == "a reset came before":
        await reset_to(broker, 1)
    else:
        await broker.heart_beat()
    clone = CloneGroupOffsetRequestHeader(src_group="TOOLS_CONSUMER", dest_group="G", topic="T", offline=True)
    assert (await broker.ask(clone)).code == ResponseCode.SUCCESS
    assert await offset_of(broker) == 3
    if event == "the group is connected":  # its member does not know yet, and is told with its next pull
        await broker.ask(UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=5))
        assert await offset_of(broker) == 3
        moved = await broker.pull(offset=5)
        assert (moved.code, moved.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "3")
    else:
        assert (await broker.pull(offset=3)).code == ResponseCode.SUCCESS
