"""QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE: queues that the broker divides."""

import json
from pathlib import Path

import msgspec
import pytest
from broker_cases import BrokerCase, StartBroker, StartNamesrv

from gantrymq.broker.tables import request_modes
from gantrymq.broker.tables.request_modes import MessageRequestModeManager
from gantrymq.errors import RemotingError
from gantrymq.model.limits import MAX_QUEUES
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import (
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.store.config_files import parse_config, table_problems


async def assigned(case: BrokerCase, client_id: str, *, mode: str = "PULL", **of: str) -> list[int] | None:
    """The numbers of the queues that a client gets; None where the broker does not know."""
    asked = {"topic": "T", "consumer_group": "G", "strategy_name": "AVG", "message_model": "CLUSTERING"} | of
    body = QueryAssignmentRequestBody(client_id=client_id, **asked)
    answer = await case.ask(RequestCode.QUERY_ASSIGNMENT, body)
    assert answer.code == ResponseCode.SUCCESS
    found = decode_body(QueryAssignmentResponseBody, answer.body).message_queue_assignments
    if found is None:
        return None
    queues = [one.message_queue for one in found]
    assert {one.mode for one in found} <= {mode}
    assert all(isinstance(queue, MessageQueue) and queue.broker_name == "broker-a" for queue in queues)
    return [queue.queue_id for queue in queues if queue is not None]


@pytest.mark.asyncio
async def test_members_get_disjoint_queues(start_namesrv: StartNamesrv, start_broker: StartBroker) -> None:
    namesrv = await start_namesrv()
    case = await start_broker(namesrv_addr=namesrv.address, broker_name="broker-a")
    assert await assigned(case, "c1") is None  # no such topic
    await case.send("T")
    assert await assigned(case, "c1") is None  # nobody is in the group
    for client_id in ("c2", "c1", "c3"):
        case.client = case.another_client()  # a member is a connection
        await case.heart_beat("G", ("T",), client_id=client_id)
    assert [await assigned(case, one) for one in ("c1", "c2", "c3", "c4")] == [[0, 1], [2], [3], []]
    circle = [await assigned(case, one, strategy_name="AVG_BY_CIRCLE") for one in ("c1", "c2", "c3")]
    assert circle == [[0, 3], [1], [2]]
    assert await assigned(case, "c1", strategy_name="MACHINE_ROOM") is None
    assert await assigned(case, "c4", message_model="BROADCASTING") == [0, 1, 2, 3]
    # One more than anybody has, as another broker may say.
    case.server.tables.topics.update([TopicConfig(topic_name="Big", read_queue_nums=MAX_QUEUES + 1)])
    await case.server.outer.settled()
    body = QueryAssignmentRequestBody(topic="Big", consumer_group="G", client_id="c1")
    answer = await case.ask(RequestCode.QUERY_ASSIGNMENT, body)
    assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b"")


async def set_mode(case: BrokerCase, mode: str, share: int = 0, topic: str = "T") -> int:
    body = SetMessageRequestModeRequestBody(topic=topic, consumer_group="G", mode=mode, pop_share_queue_num=share)
    return (await case.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body)).code


@pytest.mark.asyncio
async def test_popping_members_share_queues(start_namesrv: StartNamesrv, start_broker: StartBroker) -> None:
    namesrv = await start_namesrv()
    case = await start_broker(namesrv_addr=namesrv.address, broker_name="broker-a")
    await case.send("T")
    for client_id in ("c1", "c2", "c3", "c4"):
        case.client = case.another_client()
        await case.heart_beat("G", ("T",), client_id=client_id)
    clients = ("c1", "c2", "c3", "c4", "c5")

    async def popped(**of: str) -> list[list[int] | None]:
        return [await assigned(case, one, mode="POP", **of) for one in clients]

    # The lists are those of allocate4Pop for the same members and 4 queues.
    for all_queues in (0, -1, 3, 99):
        assert await set_mode(case, "POP", all_queues) == ResponseCode.SUCCESS
        assert await popped() == [[-1]] * 5
    await set_mode(case, "POP", 1)
    assert await popped() == [[0, 1], [1, 2], [2, 3], [3, 0], []]
    assert await popped(strategy_name="AVG_BY_CIRCLE") == [[0, 1], [1, 2], [2, 3], [3, 0], []]
    case.server.tables.topics.update([TopicConfig(topic_name="Few", read_queue_nums=3, write_queue_nums=3)])
    await case.server.outer.settled()
    await set_mode(case, "POP", 1, topic="Few")
    assert await popped(topic="Few") == [[0], [1], [2], [0], []]  # more members than queues
    await set_mode(case, "PULL")
    assert await assigned(case, "c1") == [0]


@pytest.mark.asyncio
async def test_group_without_mode_gets_default_mode(start_namesrv: StartNamesrv, start_broker: StartBroker) -> None:
    namesrv = await start_namesrv()
    case = await start_broker(
        namesrv_addr=namesrv.address, broker_name="broker-a", default_message_request_mode="POP",
        server_load_balancer_enable=False,
    )  # fmt: skip
    await case.send("T")
    await case.heart_beat("G", ("T",), client_id="c1")
    assert await assigned(case, "c1", mode="POP") == [0, 1, 2, 3]  # the balancer is off
    case.server.config.update({"serverLoadBalancerEnable": "true"}, running=True)
    assert await assigned(case, "c1", mode="POP") == [-1]
    assert await assigned(case, "c1", mode="PULL", topic="%RETRY%G") == [0]
    await set_mode(case, "PULL")
    assert await assigned(case, "c1", mode="PULL") == [0, 1, 2, 3]


@pytest.mark.asyncio
async def test_mode_without_topic_or_group_is_refused(broker: BrokerCase) -> None:
    await broker.send("T")
    asked = (("T", "PULL"), ("T", "POP"), ("nowhere", "PULL"), ("%RETRY%G", "PULL"), ("T", "PUSH"))
    codes = [await set_mode(broker, mode, topic=topic) for topic, mode in asked]
    assert codes == [
        ResponseCode.SUCCESS,
        ResponseCode.SUCCESS,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_PERMISSION,
        ResponseCode.INVALID_PARAMETER,
    ]
    broker.server.config.update({"autoCreateSubscriptionGroup": "false"})
    body = SetMessageRequestModeRequestBody(topic="T", consumer_group="other", mode="POP")
    answer = await broker.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body)
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.asyncio
async def test_answered_mode_survives_kill(tmp_path: Path) -> None:
    async with BrokerCase(tmp_path) as case:
        await case.send("T")
        assert await set_mode(case, "POP", 2) == ResponseCode.SUCCESS
        # RocketMQ's file: the fields of a pair, sorted.
        kept = {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 2, "topic": "T"}
        file = json.loads((tmp_path / "config" / "messageRequestMode.json").read_bytes())
        assert file == {"messageRequestModeMap": {"T": {"G": kept}}}
        assert list(file["messageRequestModeMap"]["T"]["G"]) == sorted(kept)
    async with BrokerCase(tmp_path) as case:
        answer = await case.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert json.loads(answer.body) == file


def test_modes_above_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_modes, "MAX_MODES", 2)
    modes = MessageRequestModeManager()
    for topic in ("T", "U"):
        modes.set(SetMessageRequestModeRequestBody(topic=topic, consumer_group="G", mode="POP"))
    modes.set(SetMessageRequestModeRequestBody(topic="T", consumer_group="G", mode="PULL"))  # not one more
    with pytest.raises(RemotingError, match="no more"):
        modes.set(SetMessageRequestModeRequestBody(topic="T", consumer_group="H", mode="POP"))
    loaded = MessageRequestModeManager()
    loaded.load(modes.snapshot()())
    assert (len(loaded), loaded.copy()) == (2, modes.copy())


@pytest.mark.parametrize("table", ["[]", '{"T":[]}', '{"T":{"G":{"topic":1}}}'])
def test_mode_file_of_other_shape_is_refused(table: str) -> None:
    value = parse_config(f'{{"messageRequestModeMap":{table}}}'.encode())
    assert list(table_problems("messageRequestMode.json", value)) != []
    with pytest.raises(msgspec.ValidationError):
        MessageRequestModeManager().load(value)
