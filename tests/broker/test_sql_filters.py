"""Pulls with an SQL92 filter: what they return, what wakes a held one, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from broker_cases import BrokerCase, StartBroker, messages_of

from gantrymq.filter.sql_filter import SqlFilterCache
from gantrymq.remoting.bodies.client import CheckClientRequestBody, ConsumerData, HeartbeatData, SubscriptionData
from gantrymq.remoting.codes import PullSysFlag, RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import HeartbeatRequestHeader

pytestmark = pytest.mark.asyncio

SQL = {"expression_type": "SQL92"}
SUSPEND = int(PullSysFlag.SUSPEND)


@pytest_asyncio.fixture
async def broker(start_broker: StartBroker) -> BrokerCase:
    return await start_broker(enable_property_filter=True)


def bodies(response: RemotingCommand) -> list[bytes]:
    return [message.body for message in messages_of(response.body)]


async def send_all(broker: BrokerCase, values: list[str], topic: str = "T") -> None:
    for value in values:
        assert (await broker.send(topic, value.encode(), properties={"a": value})).code == ResponseCode.SUCCESS
    await broker.dispatched(len(values), topic)


async def subscribe(broker: BrokerCase, text: str, version: int = 1, topic: str = "T") -> None:
    wanted = SubscriptionData(topic=topic, sub_string=text, expression_type="SQL92", sub_version=version)
    consumer = ConsumerData(
        group_name="G", consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_FIRST_OFFSET", subscription_data_set=[wanted],
    )  # fmt: skip
    await broker.ask(HeartbeatRequestHeader(), HeartbeatData(client_id="c1", consumer_data_set=[consumer]))


async def pull_known(broker: BrokerCase, offset: int = 0, **fields: Any) -> RemotingCommand:
    return await broker.pull(offset=offset, sys_flag=0, **(SQL | {"sub_version": 1, **fields}))


async def test_pull_returns_messages_matching_its_own_filter(broker: BrokerCase) -> None:
    await send_all(broker, ["1", "7", "x", "9"])
    found = await broker.pull(subscription="a > 5", **SQL)
    assert (found.code, bodies(found)) == (ResponseCode.SUCCESS, [b"7", b"9"])
    assert found.ext_fields["nextBeginOffset"] == "4"
    none = await broker.pull(subscription="a = '2' OR b IS NOT NULL", **SQL)
    assert none.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert none.ext_fields["nextBeginOffset"] == "4"
    lite = await broker.pull(offset=1, subscription="a <> '7'", max_msg_nums=1, **SQL)
    assert (bodies(lite), lite.ext_fields["nextBeginOffset"]) == ([b"x"], "3")


async def test_records_in_several_log_files_are_filtered(start_broker: StartBroker) -> None:
    broker = await start_broker(enable_property_filter=True, mapped_file_size_commit_log=4096)
    await send_all(broker, [f"{number % 3}" for number in range(60)])
    found = await broker.pull(subscription="a = '1'", max_msg_nums=32, **SQL)
    assert bodies(found) == [b"1"] * 20
    assert [message.queue_offset for message in messages_of(found.body)] == list(range(1, 60, 3))


async def test_pull_uses_filter_of_heartbeats_of_group(broker: BrokerCase) -> None:
    await send_all(broker, ["1", "7"])
    assert (await pull_known(broker)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    await subscribe(broker, "a > 5")
    assert bodies(await pull_known(broker)) == [b"7"]
    assert (await pull_known(broker, sub_version=2)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    await subscribe(broker, "a < 5", version=2)
    assert bodies(await pull_known(broker, sub_version=2)) == [b"1"]
    await subscribe(broker, "a <", version=3)
    wrong = await pull_known(broker, sub_version=3)
    assert wrong.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert wrong.remark == "The broker's consumer filter data is not exist!Your expression may be wrong!"


async def test_held_pull_waits_for_matching_message(broker: BrokerCase) -> None:
    await send_all(broker, ["1"])
    held = asyncio.ensure_future(
        broker.pull(
            offset=1, subscription="a > 5", sys_flag=SUSPEND | int(PullSysFlag.SUBSCRIPTION),
            suspend_timeout_millis=60_000, **SQL,
        )
    )  # fmt: skip
    while not len(broker.server.sessions.holds):
        await asyncio.sleep(0.001)
    (pull,) = broker.server.sessions.holds._held["T", 0]
    await broker.send("T", b"2", properties={"a": "2"})
    while pull.looked_until < 2:
        await asyncio.sleep(0.001)
    assert not held.done()
    await broker.send("T", b"8", properties={"a": "8"})
    assert bodies(await held) == [b"8"]


async def test_invalid_filter_is_refused(broker: BrokerCase) -> None:
    await send_all(broker, ["1"])
    assert (await check(broker, "a" * (1 << 19))).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    for text in ("a >", "(" * 10_000 + "a" + ")" * 10_000, "a" * (64 << 10)):
        refused = await broker.pull(subscription=text, **SQL)
        assert (refused.code, refused.remark) == (
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed",
        )  # fmt: skip
        assert (await check(broker, text)).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert (await check(broker, "a > 5")).code == ResponseCode.SUCCESS
    assert (await check(broker, "a > 5", "XPATH")).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "position 4" in str((await check(broker, "a > ='x'")).remark)


async def check(broker: BrokerCase, text: str, kind: str = "SQL92") -> RemotingCommand:
    wanted = SubscriptionData(topic="T", sub_string=text, expression_type=kind)
    body = CheckClientRequestBody(client_id="c1", group="G", subscription_data=wanted)
    return await broker.ask(RequestCode.CHECK_CLIENT_CONFIG, body)


async def test_without_enable_property_filter_sql_is_refused_as_in_rocketmq(start_broker: StartBroker) -> None:
    broker = await start_broker()
    await send_all(broker, ["7"])
    await subscribe(broker, "a > 5")
    refused = [await check(broker, "a > 5"), await broker.pull(subscription="a > 5", **SQL), await pull_known(broker)]
    remark = "The broker does not support consumer to filter message by SQL92"
    assert [(one.code, one.remark) for one in refused] == [(ResponseCode.SYSTEM_ERROR, remark)] * 3


async def test_pull_with_slow_filter_stops_early_and_continues(broker: BrokerCase) -> None:
    await send_all(broker, ["1"] * 100)
    text = "a = '2'" + " OR a = '2'" * 1000
    offset, pulls = 0, 0
    while offset < 100:
        answer = await broker.pull(offset=offset, subscription=text, **SQL)
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert int(answer.ext_fields["nextBeginOffset"]) > offset
        offset, pulls = int(answer.ext_fields["nextBeginOffset"]), pulls + 1
    assert pulls > 1


async def test_filter_file_equals_that_of_rocketmq(tmp_path: Path, start_broker: StartBroker) -> None:
    broker = await start_broker(tmp_path / "store", enable_property_filter=True)
    await send_all(broker, ["1", "7"])
    await subscribe(broker, "a >")  # invalid: not written
    await subscribe(broker, "a > 5", version=2)
    assert bodies(await pull_known(broker, sub_version=2)) == [b"7"]
    await broker.stop()
    (entry,) = orjson.loads((tmp_path / "store/config/consumerFilter.json").read_bytes())["filterDataByTopic"].items()
    data = entry[1]["groupFilterData"]["G"]
    assert entry[0] == entry[1]["topic"] == data["topic"] == "T"
    assert (data["expression"], data["expressionType"], data["clientVersion"]) == ("a > 5", "SQL92", 2)
    assert data["bloomFilterData"]["bitNum"] == 112
    assert len(data["bloomFilterData"]["bitPos"]) == 3
    again = await start_broker(tmp_path / "store", enable_property_filter=True)
    kept = again.server.tables.filters.get("T", "G")
    assert kept is not None
    assert (kept.expression, kept.client_version, kept.dead_time >= kept.born_time) == ("a > 5", 2, True)


@pytest.mark.parametrize("supported", [False, True])
async def test_retry_topic_uses_filter_of_original_topic(start_broker: StartBroker, supported: bool) -> None:
    broker = await start_broker(enable_property_filter=True, filter_support_retry=supported)
    await send_all(broker, ["1"])
    await subscribe(broker, "a > 5")
    for value in ("1", "7"):
        sent = await broker.send("%RETRY%G", value.encode(), properties={"a": value, "RETRY_TOPIC": "T"})
        assert sent.code == ResponseCode.SUCCESS
    await broker.dispatched(2, "%RETRY%G")
    found = await broker.pull("%RETRY%G", subscription="a IS NOT NULL", **SQL)
    assert bodies(found) == ([b"7"] if supported else [b"1", b"7"])


@pytest.mark.parametrize("first", ["check", "heartbeat", "pull"])
async def test_parser_is_loaded_on_thread(broker: BrokerCase, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """Importing Lark took 0.1 to 0.2 s, in which the event loop answered nothing."""
    load, threads = SqlFilterCache.load, list[int]()

    def noted(cache: SqlFilterCache) -> None:
        if not cache.is_loaded:
            threads.append(threading.get_ident())
        load(cache)

    monkeypatch.setattr(SqlFilterCache, "load", noted)
    await send_all(broker, ["1", "7"])
    assert not broker.server.tables.filters.is_ready
    if first == "check":
        assert (await check(broker, "a > 5")).code == ResponseCode.SUCCESS
    elif first == "heartbeat":
        await subscribe(broker, "a > 5")
        await broker.server.tables.filters.begin_loading()
    found = await asyncio.gather(*(broker.pull(subscription="a > 5", **SQL) for _ in range(3)))
    assert [bodies(one) for one in found] == [[b"7"]] * 3
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
