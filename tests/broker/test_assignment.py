"""QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE: queues that the broker divides."""

import pytest
from broker_cases import BrokerCase, StartBroker, StartNamesrv

from gantrymq.model.message_queue import MOST_QUEUES, MessageQueue
from gantrymq.remoting.bodies.client import (
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode


async def assigned(case: BrokerCase, client_id: str, **of: str) -> list[int] | None:
    """The numbers of the queues that a client gets; None where the broker does not know."""
    asked = {"topic": "T", "consumer_group": "G", "strategy_name": "AVG", "message_model": "CLUSTERING"} | of
    body = QueryAssignmentRequestBody(client_id=client_id, **asked)
    answer = await case.ask(RequestCode.QUERY_ASSIGNMENT, body)
    assert answer.code == ResponseCode.SUCCESS
    found = decode_body(QueryAssignmentResponseBody, answer.body).message_queue_assignments
    if found is None:
        return None
    queues = [one.message_queue for one in found]
    assert {one.mode for one in found} <= {"PULL"}
    assert all(isinstance(queue, MessageQueue) and queue.broker_name == "broker-a" for queue in queues)
    return [queue.queue_id for queue in queues if queue is not None]


@pytest.mark.asyncio
async def test_members_get_their_shares(start_namesrv: StartNamesrv, start_broker: StartBroker) -> None:
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
    case.server.topics.update([TopicConfig(topic_name="Big", read_queue_nums=MOST_QUEUES + 1)])
    await case.server.outer.settled()
    body = QueryAssignmentRequestBody(topic="Big", consumer_group="G", client_id="c1")
    answer = await case.ask(RequestCode.QUERY_ASSIGNMENT, body)
    assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b"")


@pytest.mark.asyncio
async def test_there_is_no_mode_but_pull(broker: BrokerCase) -> None:
    await broker.send("T")
    codes = []
    for topic, mode in (("T", "PULL"), ("T", "POP"), ("nowhere", "PULL"), ("%RETRY%G", "PULL")):
        body = SetMessageRequestModeRequestBody(topic=topic, consumer_group="G", mode=mode)
        codes.append((await broker.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body)).code)
    assert codes == [
        ResponseCode.SUCCESS,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_PERMISSION,
    ]
