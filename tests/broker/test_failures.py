"""After a failure within the broker every request is answered, and later requests are served."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from broker_cases import BrokerCase, StartBroker, messages_of

from gantrymq.broker import new_topics
from gantrymq.broker.reads.message_puller import MessagePuller
from gantrymq.broker.sessions.consumers import ConsumerManager, build_subscription
from gantrymq.broker.sessions.producers import ClientChannel
from gantrymq.embedded.standalone import Standalone
from gantrymq.errors import DiskError, RemotingConnectError, StoreError, StorePermissionError
from gantrymq.model import fastjson
from gantrymq.model.message import Message
from gantrymq.remoting.bodies.client import ConsumerData
from gantrymq.remoting.codes import PullSysFlag, ResponseCode
from gantrymq.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from gantrymq.remoting.headers.topic import CreateTopicRequestHeader
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.put_result import PutMessageResult

WAITING = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND)


def held_back(broker: BrokerCase, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let registrations wait for the event, as at a name server that hangs."""
    announced = asyncio.Event()

    async def hangs() -> int:
        await announced.wait()
        return 0

    monkeypatch.setattr(broker.server.outer, "register", hangs)
    monkeypatch.setattr(new_topics, "_ANNOUNCED_S", 60.0)
    return announced


def too_many_files(*_: object, **__: object) -> Any:
    raise OSError(24, "Too many open files")


@pytest.mark.asyncio
async def test_sends_continue_after_log_file_creation_failed(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.send()
    with monkeypatch.context() as patch:
        patch.setattr(broker.server.store._log, "room_for", too_many_files)
        answers = await asyncio.gather(*(broker.send() for _ in range(3)))
        assert {answer.code for answer in answers} == {ResponseCode.SYSTEM_ERROR}
    assert (await broker.send()).code == ResponseCode.SUCCESS
    assert broker.server.puts.is_idle


@pytest.mark.asyncio
async def test_sends_continue_after_unexpected_exception(broker: BrokerCase, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.send()
    with monkeypatch.context() as patch:
        patch.setattr(broker.server.store, "append", lambda groups: 1 / 0)
        assert (await broker.send()).code == ResponseCode.SYSTEM_BUSY
    assert (await broker.send()).code == ResponseCode.SUCCESS
    assert broker.server.puts.is_idle


@pytest.mark.asyncio
async def test_exception_in_callback_of_put_does_not_stop_next_put(broker: BrokerCase) -> None:
    told: list[int] = []

    def fails(result: PutMessageResult | None, busy: str | None) -> None:
        raise RuntimeError("no answer")

    puts = broker.server.puts
    puts.put(AppendableMessage(Message("T", b"a")), 1, fails)
    puts.put(AppendableMessage(Message("T", b"b")), 1, lambda result, busy: told.append(result.queue_offset))
    while not puts.is_idle:
        await asyncio.sleep(0)
    assert told == [1]


@pytest.mark.asyncio
async def test_failing_woken_pull_is_answered_and_others_too(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.send()
    await broker.dispatched(1)
    await broker.heart_beat()
    pulls = [
        asyncio.create_task(broker.pull(offset=1, sys_flag=WAITING, suspend_timeout_millis=20_000)) for _ in range(3)
    ]
    key = ("T", 0)
    while len(broker.server.sessions.holds._held.get(key, ())) < len(pulls):
        await asyncio.sleep(0.001)
    pull, asked = MessagePuller.pull, []

    def fails_once(*args: Any, **options: Any) -> Any:
        asked.append(args)
        if len(asked) == 1:
            raise DiskError("consumequeue", "Input/output error")
        return pull(*args, **options)

    monkeypatch.setattr(MessagePuller, "pull", fails_once)
    await broker.send(body=b"second")
    answers = await asyncio.wait_for(asyncio.gather(*pulls), 10)
    assert sorted(answer.code for answer in answers) == [
        ResponseCode.SUCCESS,
        ResponseCode.SUCCESS,
        ResponseCode.SYSTEM_ERROR,
    ]
    assert messages_of(max(answers, key=lambda answer: len(answer.body)).body)[0].body == b"second"


@pytest.mark.asyncio
async def test_send_during_announcement_of_other_topic_is_answered(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.send("old")
    announced = held_back(broker, monkeypatch)
    new = asyncio.create_task(broker.send("new"))
    while "new" not in broker.server.tables.topics:
        await asyncio.sleep(0)
    try:
        assert (await asyncio.wait_for(broker.send("old"), 10)).code == ResponseCode.SUCCESS
        assert not new.done()
    finally:
        announced.set()
    assert (await new).code == ResponseCode.SUCCESS


@pytest.mark.asyncio
async def test_send_during_announcement_of_changed_topic_is_answered(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.send("old")
    announced = held_back(broker, monkeypatch)
    wider = CreateTopicRequestHeader(
        topic="old", default_topic="TBW102", read_queue_nums=8, write_queue_nums=8, perm=6,
        topic_filter_type="SINGLE_TAG",
    )  # fmt: skip
    change = asyncio.create_task(broker.ask(wider))
    while (topic := broker.server.tables.topics.get("old")) is None or topic.write_queue_nums != 8:
        await asyncio.sleep(0)
    try:
        assert (await asyncio.wait_for(broker.send("old"), 10)).code == ResponseCode.SUCCESS
        assert not change.done()
    finally:
        announced.set()
    assert (await change).code == ResponseCode.SUCCESS


@pytest.mark.asyncio
async def test_send_that_creates_topic_is_answered_despite_hanging_name_server(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced = held_back(broker, monkeypatch)
    monkeypatch.setattr(new_topics, "_ANNOUNCED_S", 0.01)
    try:
        assert (await asyncio.wait_for(broker.send("new"), 10)).code == ResponseCode.SUCCESS
        monkeypatch.setattr(new_topics, "_ANNOUNCED_S", 60.0)  # it was waited for once
        assert (await asyncio.wait_for(broker.send("new"), 10)).code == ResponseCode.SUCCESS
    finally:
        announced.set()


@pytest.mark.asyncio
async def test_send_back_that_creates_dlq_topic_is_answered_after_registration(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.heart_beat("G")
    await broker.send("old")
    announced = held_back(broker, monkeypatch)
    dead = asyncio.create_task(broker.send("%RETRY%G", reconsume_times=100))
    await broker.dispatched(1, "%DLQ%G")
    try:
        await asyncio.wait_for(broker.send("old"), 10)  # by the same connection, so answered behind the other
        assert not dead.done()
    finally:
        announced.set()
    assert (await dead).code == ResponseCode.SUCCESS


class Connection:
    """As much of a connection as a table of members looks at."""

    address = "127.0.0.1:1"


def test_unsubscribed_client_is_not_listed_for_topic() -> None:
    manager = ConsumerManager()
    connection: Any = Connection()

    def beat(version: int, *topics: str) -> None:
        data = ConsumerData(
            group_name="g",
            message_model="CLUSTERING",
            subscription_data_set=[build_subscription(topic, "*", "TAG", version) for topic in topics],
        )
        manager.register(data, ClientChannel(connection, "c1", "JAVA", 1, 0), notify=False)

    beat(1, "A", "B")
    assert manager.groups_of("B") == {"g"}
    beat(2, "A")
    assert manager.groups_of("B") == set()
    assert manager.groups_of("A") == {"g"}
    manager.channel_closed(connection)
    assert manager.groups_of("A") == set()
    assert not manager._topics


@pytest.mark.asyncio
async def test_removed_prohibition_stays_removed_after_restart(tmp_path: Path, start_broker: StartBroker) -> None:
    for forbidden in (True, False):
        case = await start_broker()
        case.server.tables.groups.set_forbidden("later", "T", 2, forbidden=forbidden)
        await case.stop()
        kept = json.loads((tmp_path / "store" / "config" / "subscriptionGroup.json").read_bytes())
        assert bool(kept["forbiddenTable"]) is forbidden


@pytest.mark.asyncio
async def test_unsaveable_table_delays_neither_other_tables_nor_shutdown(
    tmp_path: Path, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = await start_broker()
    case.server.tables.groups.set_forbidden("G", "T", 2, forbidden=True)
    case.server.tables.offsets.commit("G", "T", 0, 1)
    monkeypatch.setattr(case.server.tables.groups, "snapshot", lambda: 1 / 0)
    await case.stop()
    kept = fastjson.loads((tmp_path / "store" / "config" / "consumerOffset.json").read_text())
    assert kept["offsetTable"] == {"T@G": {"0": 1}}
    assert not (tmp_path / "store" / "abort").exists()


@pytest.mark.asyncio
@pytest.mark.parametrize("text", [b'{"topicConfigTable":[]}', b'{"topicConfigTable":{}', b"\xff"])
async def test_unreadable_table_is_not_replaced_by_its_backup(
    tmp_path: Path, start_broker: StartBroker, text: bytes
) -> None:
    """Somebody may have edited it, and the next save would be the end of that."""
    path = tmp_path / "store" / "config" / "topics.json"
    case = await start_broker()
    await case.send("kept")
    await case.stop()
    good = path.read_bytes()
    path.with_name("topics.json.bak").write_bytes(good)
    path.write_bytes(text)
    with pytest.raises(StoreError, match=r"topics\.json: does not contain its table .*topics\.json\.bak"):
        await start_broker()
    assert path.read_bytes() == text
    for blank in (b"", b" \n", bytes(4096)):
        path.write_bytes(blank)
        case = await start_broker()
        assert case.server.tables.topics.get("kept") is not None
        await case.stop()
        path.unlink()
        path.with_name("topics.json.bak").write_bytes(good)


@pytest.mark.asyncio
async def test_hand_edited_table_is_read_as_fastjson_reads_it(tmp_path: Path, start_broker: StartBroker) -> None:
    path = tmp_path / "store" / "config" / "topics.json"
    path.parent.mkdir(parents=True)
    edited = """\ufeff// of the operator
    {'topicConfigTable': {"mine": {"topicName": "mine", /* four */ "readQueueNums": 4, "writeQueueNums": "4",},},}"""
    path.write_text(edited, "utf-8")
    case = await start_broker()
    found = case.server.tables.topics.get("mine")
    assert found is not None
    assert (found.read_queue_nums, found.write_queue_nums) == (4, 4)


@pytest.mark.asyncio
async def test_broker_with_unreadable_table_does_not_start(tmp_path: Path, start_broker: StartBroker) -> None:
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (config / name).write_bytes(b'{"offsetTable":[]}')
    with pytest.raises(StoreError, match=r"consumerOffset\.json: does not contain its table"):
        await start_broker()
    assert (config / "consumerOffset.json").read_bytes() == b'{"offsetTable":[]}'


@pytest.mark.asyncio
async def test_table_without_read_permission_is_not_reported_as_damaged(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was told to take it away would lose it."""
    real_open = os.open

    def refuse(path: Any, *how: Any, **more: Any) -> int:
        if Path(path).name == "topics.json":
            raise PermissionError(13, "Permission denied", path)
        return real_open(path, *how, **more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StorePermissionError):
        await start_broker()


@pytest.mark.asyncio
async def test_start_without_reachable_name_server_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
    from gantrymq.namesrv.settings import NamesrvConfig

    def standalone() -> Standalone:
        return Standalone(tmp_path / "store", LiveConfig(BrokerConfig(listen_port=0)), NamesrvConfig(listen_port=0))

    async def unreachable(*_: object) -> bool:
        raise RemotingConnectError("192.0.2.1:9876", "no route to host")

    with monkeypatch.context() as patch:
        patch.setattr(Standalone, "_has_route", unreachable)
        with pytest.raises(RemotingConnectError):
            await standalone().start()
    again = standalone()
    await again.start()
    await again.shutdown()


@pytest.mark.asyncio
async def test_group_with_offset_beyond_queue_end_gets_next_message(tmp_path: Path, start_broker: StartBroker) -> None:
    """As after a power cut that took the end of the log: RocketMQ's consumer passes over what comes until it pulls."""
    case = await start_broker()
    await case.send()
    case.server.tables.offsets.commit("G", "T", 0, 5)
    await case.stop()
    case = await start_broker()
    assert case.server.tables.offsets.query("G", "T", 0) == 1
    for _ in range(2):
        await case.send()
    await case.dispatched(3)
    await case.heart_beat()
    commit = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=5)
    assert (await case.ask(commit)).code == ResponseCode.SUCCESS  # of a member that was connected before
    moved = await case.pull(offset=5)
    assert (moved.code, moved.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "1")
    assert case.server.tables.offsets.query("G", "T", 0) == 1
    await case.stop()
    kept = fastjson.loads((tmp_path / "store" / "config" / "consumerOffset.json").read_text())
    assert kept["offsetTable"] == {"T@G": {"0": 1}}
