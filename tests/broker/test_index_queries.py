"""Queries by key, where other topics and keys have the same hash, and what a broker says of its index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_cases import BrokerCase, StartBroker, messages_of

from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message, StoredMessage
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.pull import QueryMessageRequestHeader, QueryMessageResponseHeader
from gantrymq.store.message_store import MessageStore
from gantrymq.store.reader import StoreReader
from store_cases import GEOMETRY_KEYS, SMALL, await_dispatch, open_store

# "Aa" and "BB" have the same String.hashCode, so these four index keys have one hash.
PAIRS = [("AaTopic", "Aa"), ("AaTopic", "BB"), ("BBTopic", "Aa"), ("BBTopic", "BB")]


def bodies(found: list[StoredMessage]) -> list[bytes]:
    return [one.body for one in found]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(RealFileSystem(), tmp_path / "store") as store:
        for topic, key in PAIRS[:1] + PAIRS[3:]:
            store.put(Message(topic, f"{topic} {key}".encode(), keys=[key, "other"], tags=key))
        await_dispatch(store)
        yield store


def test_query_finds_only_messages_of_its_topic_and_key(store: MessageStore, tmp_path: Path) -> None:
    assert [bodies(store.query(*pair)) for pair in PAIRS] == [[b"AaTopic Aa"], [], [], [b"BBTopic BB"]]
    assert bodies(store.query("AaTopic", "T#Aa")) == [b"AaTopic Aa"]
    assert store.query("AaTopic", "T#BB") == store.query("AaTopic", "Aa other") == []
    for pair in PAIRS:
        assert bodies(store.query(*pair, exact=False)) == [b"BBTopic BB", b"AaTopic Aa"]
    store.close()
    with StoreReader.open(tmp_path / "store", SMALL, given=GEOMETRY_KEYS) as reader:
        assert [bodies(reader.query(*pair)) for pair in PAIRS] == [[b"AaTopic Aa"], [], [], [b"BBTopic BB"]]


def test_messages_with_the_same_hash_do_not_use_up_limit(store: MessageStore) -> None:
    for _ in range(100):
        store.put(Message("BBTopic", b"in front", keys=["BB"]))
    await_dispatch(store)
    assert bodies(store.query("AaTopic", "Aa", max_num=1)) == bodies(store.query("AaTopic", "Aa")) == [b"AaTopic Aa"]
    assert [len(store.query("BBTopic", "BB", max_num=most)) for most in (0, 3, 200)] == [0, 3, 101]


async def ask(broker: BrokerCase, topic: str, key: str, max_num: int = 32, **more: int) -> RemotingCommand:
    times = {"begin_timestamp": 0, "end_timestamp": 1 << 62} | more
    return await broker.ask(QueryMessageRequestHeader(topic=topic, key=key, max_num=max_num, **times))


@pytest.mark.asyncio
async def test_query_returns_every_indexed_message(start_broker: StartBroker) -> None:
    """As RocketMQ does. Its clients compare topic and key."""
    broker = await start_broker()
    for topic, key in PAIRS[:1] + PAIRS[3:]:
        await broker.send(topic, f"{topic} {key}".encode(), properties={"KEYS": key})
        await broker.dispatched(1, topic)
    for pair in PAIRS:
        found = await ask(broker, *pair)
        assert [one.body for one in messages_of(found.body)] == [b"AaTopic Aa", b"BBTopic BB"]


@pytest.mark.asyncio
@pytest.mark.parametrize("is_unique", [False, True])
async def test_query_answer_has_time_and_offset_of_newest_indexed_record(
    start_broker: StartBroker, is_unique: bool
) -> None:
    broker = await start_broker()
    none = (await ask(broker, "T", "k")).read(QueryMessageResponseHeader)
    assert (none.index_last_update_timestamp, none.index_last_update_phyoffset) == (0, 0)
    for number in range(3):
        await broker.send("T", b"%d" % number, properties={"KEYS": "k", "UNIQ_KEY": f"U{number}"})
    await broker.dispatched(3)
    newest = broker.server.store.get("T", 0, 2).messages[0]
    found = await ask(broker, "T", "U1" if is_unique else "k")
    header = found.read(QueryMessageResponseHeader)
    assert found.code == ResponseCode.SUCCESS
    assert header.index_last_update_timestamp == newest.store_timestamp_ms
    assert header.index_last_update_phyoffset == newest.phy_offset
    missing = await ask(broker, "T", "unknown")
    header = missing.read(QueryMessageResponseHeader)
    assert missing.code == ResponseCode.QUERY_NOT_FOUND
    assert (header.index_last_update_timestamp, header.index_last_update_phyoffset) == (0, 0)


@pytest.mark.asyncio
async def test_query_numbers_have_bounds_of_rocketmq(start_broker: StartBroker) -> None:
    """A maxNum of 0 finds nothing, and one below 0 is no capacity of a list; a search by unique key ignores it."""
    broker = await start_broker()
    await broker.send("T", b"x", properties={"KEYS": "k", "UNIQ_KEY": "U"})
    await broker.dispatched(1)
    codes = {most: (await ask(broker, "T", "k", most)).code for most in (0, -1, -(1 << 31), 1, (1 << 31) - 1)}
    nothing, error = ResponseCode.QUERY_NOT_FOUND, ResponseCode.SYSTEM_ERROR
    assert codes == {0: nothing, -1: error, -(1 << 31): error, 1: 0, (1 << 31) - 1: 0}
    assert (await ask(broker, "T", "k", begin_timestamp=1 << 61, end_timestamp=1)).code == nothing
    for most in (0, -1):
        header = QueryMessageRequestHeader(
            topic="T", key="U", max_num=most, begin_timestamp=0, end_timestamp=1 << 62, index_type="U"
        )
        request = RemotingCommand.request(header)
        request.ext_fields["_UNIQUE_KEY_QUERY"] = "true"
        assert (await broker.client.invoke(broker.server.address, request, 60_000)).code == ResponseCode.SUCCESS
