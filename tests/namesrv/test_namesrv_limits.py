"""What a name server keeps of strangers: registrations, topics, keys and values, each bounded before it is made."""

from __future__ import annotations

import asyncio
import random
import struct
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from namesrv_cases import NamesrvCase, registration, topics

from gantrymq.errors import RemotingCommandError
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.namesrv.kv_config import KVConfigManager
from gantrymq.namesrv.topics import TopicTable
from gantrymq.remoting.bodies import registration as registration_bodies
from gantrymq.remoting.bodies.registration import decode_compressed, decode_registration, encode_compressed
from gantrymq.remoting.bodies.route import QueueData, TopicQueueMappingInfo, TopicRouteData
from gantrymq.remoting.bodies.topic import RegisterBrokerBody
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.broker import GetBrokerMemberGroupRequestHeader
from gantrymq.remoting.headers.namesrv import (
    DeleteTopicFromNamesrvRequestHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    RegisterTopicRequestHeader,
)


@pytest_asyncio.fixture
async def small(tmp_path: Path) -> AsyncIterator[NamesrvCase]:
    """A name server that keeps little."""
    case = NamesrvCase(tmp_path / "small", max_topics=5, max_brokers=2, max_kv_config_bytes=2000)
    await case.start()
    yield case
    await case.stop()


async def register_raw(case: NamesrvCase, body: bytes, *, compressed: bool = False, **of: Any) -> RemotingCommand:
    header = registration(**of)
    header.compressed, header.body_crc32 = compressed, 0
    return await case.ask(header, body)


def counted(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (counted(b" " * (40 << 20)), "grows beyond"),
        (counted(b"{}") + struct.pack(">I", 1_500_000), "1500000 topics or more"),
        (counted(b"{" + b" " * 100_000), "a DataVersion of 100001 bytes"),
        (counted(b"{}") + bytes(4) + counted(b"[]") + struct.pack(">I", 1_500_000), "1500000 topics or more"),
        (
            counted(b"{}") + bytes(4) + counted(b"[]") + struct.pack(">I", 1) + counted(b" " * (2 << 20)),
            "a mapping of 2097152 bytes",
        ),
    ],
)
async def test_size_of_compressed_registration_is_checked_before_decoding(
    namesrv: NamesrvCase, raw: bytes, reason: str
) -> None:
    answer = await register_raw(namesrv, zlib.compress(raw, 1), compressed=True)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert reason in str(answer.remark)
    assert (await namesrv.register(registration(), topics("T", "A"))).code == ResponseCode.SUCCESS


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "entry", [b'"%d":{"topicName":"%d"}', b'"%d":{}', b'"%d":1', b'"%d":[[]]', b"%d:{}"], ids=lambda one: one.decode()
)
async def test_registration_of_very_many_topics_is_refused(
    namesrv: NamesrvCase, entry: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration_bodies, "MAX_TOPICS", 1000)
    said = b",".join(entry.replace(b"%d", b"%d" % number) for number in range(20_000))
    body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{' + said + b"}}}"
    answer = await register_raw(namesrv, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (await namesrv.route("7")).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("table", "servers", "reason"),
    [
        (b'"T":{"topicName":"T","attributes":{' + b'"a":null,' * 10_000 + b'"b":"c"}}', b"[]", "a topic of 900"),
        (b'"T":{"topicName":"T"}', b'["",' + b'"a",' * 20_000 + b'"b"]', "a list of filter servers of 800"),
        (b",".join(b'"%d":{}' % number for number in range(2000)), b"[]", "2000 topics or more"),
        (b'"T":{"topicName":"T"},' * 300_000, b"[]", "is no RegisterBrokerBody: "),
        (b'"T":{"topicName":"T","order":null},"A":null,' * 20_000 + b'"B":null', b"[]", "is no RegisterBrokerBody: "),
    ],
    ids=["topic", "filter servers", "empty topics", "cut off", "null"],
)
def test_refused_registration_is_not_decoded_whole(
    table: bytes, servers: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these was decoded whole, by one call that holds the interpreter's lock, before it was refused."""
    monkeypatch.setattr(registration_bodies, "MAX_TOPICS", 1000 if b"{}" in table else 100_000)
    whole = []

    def noted(body: type[Any], raw: bytes, *limit: int) -> Any:
        whole.append(len(raw))
        return decode_body(body, raw, *limit)

    monkeypatch.setattr(registration_bodies, "decode_body", noted)
    raw = b'{"filterServerList":%s,"topicConfigSerializeWrapper":{"topicConfigTable":{%s}}}' % (servers, table)
    with pytest.raises(RemotingCommandError, match=reason):
        decode_registration(raw)
    assert max(whole, default=0) <= 64 << 10


def test_long_registration_of_static_topics_is_decoded_topic_by_topic() -> None:
    said = topics(*(f"T{number}" for number in range(5000)))
    mapping = TopicQueueMappingInfo(topic="T1", bname="b", curr_id_map={number: number for number in range(100)})
    said.topic_queue_mapping_info_map["T1"] = mapping
    body = RegisterBrokerBody(topic_config_serialize_wrapper=said)
    raw = body.encode(standard=False)
    assert len(raw) > 512 << 10
    assert b"{0:0," in raw
    assert decode_registration(raw) == body


def test_registration_decoded_by_topic_equals_one_decoded_whole() -> None:
    said = topics(*(f"T{number}" for number in range(300)))
    said.topic_queue_mapping_info_map["T1"] = TopicQueueMappingInfo(topic="T1", bname="b", curr_id_map={0: 1})
    body = RegisterBrokerBody(topic_config_serialize_wrapper=said, filter_server_list=["f"])
    for raw in (body.encode(), body.encode(standard=False)):
        assert decode_registration(raw) == body
    plain = RegisterBrokerBody(topic_config_serialize_wrapper=topics("T", "A"))
    assert decode_compressed(encode_compressed(plain)) == plain


@pytest.mark.asyncio
async def test_registration_decoded_in_thread_counts_only_while_connected(namesrv: NamesrvCase) -> None:
    names = [f"T{number}" for number in range(1000)]
    assert (await namesrv.register(registration(), topics(*names))).code == ResponseCode.SUCCESS
    assert (await namesrv.route("T999")).code == ResponseCode.SUCCESS
    assert (await namesrv.register(registration(), topics(*names, version=2), compressed=True)).code == 0


@pytest.mark.asyncio
async def test_topics_brokers_and_names_are_bounded(small: NamesrvCase) -> None:
    assert (await small.register(registration(), topics("A", "B", "C"))).code == ResponseCode.SUCCESS
    full = await small.register(registration("10.0.0.2:10911", name="b"), topics("D", "E", "F"))
    assert full.code == ResponseCode.SYSTEM_ERROR
    assert str(full.remark).endswith("there would be 6 topics, more than 5 (maxTopics)")
    assert (await small.register(registration("10.0.0.2:10911", name="b"), topics("A", "D"))).code == 0
    third = await small.register(registration("10.0.0.3:10911", name="c"), topics("A", "D"))
    assert "maxBrokers" in str(third.remark)
    assert (await small.register(registration(), topics("A", "B", "C", version=2))).code == ResponseCode.SUCCESS
    queues = TopicRouteData(queue_datas=[QueueData(broker_name="broker-a")])
    for topic, reason in (("E", None), ("F", "maxTopics"), ("x" * 600, "a name of 600 characters")):
        answer = await small.ask(RegisterTopicRequestHeader(topic=topic), queues)
        assert (answer.code == 0, reason is None or reason in str(answer.remark)) == (reason is None, True)
    long = await small.register(registration(cluster="c" * 5000), topics("A", "B"))
    assert "a name of 5000 characters" in str(long.remark)
    group = await small.ask(GetBrokerMemberGroupRequestHeader(cluster_name="C", broker_name="c"))
    assert b"10.0.0.3" not in group.body


@pytest.mark.asyncio
async def test_brokers_with_the_same_topics_are_bounded_by_their_sum(tmp_path: Path) -> None:
    case = NamesrvCase(tmp_path / "few", max_topics_of_brokers=5)
    await case.start()
    assert (await case.register(registration(), topics("A", "B", "C"))).code == ResponseCode.SUCCESS
    full = await case.register(registration("10.0.0.2:10911", name="b"), topics("A", "B", "C"))
    assert full.code == ResponseCode.SYSTEM_ERROR
    assert str(full.remark).endswith("the topics of all brokers would be 6, more than 5 (maxTopicsOfBrokers)")
    assert (await case.register(registration("10.0.0.2:10911", name="b"), topics("A", "B"))).code == 0
    assert (await case.register(registration(), topics("A", "B", "C", version=2))).code == ResponseCode.SUCCESS
    queues = TopicRouteData(queue_datas=[QueueData(broker_name="broker-a")])
    assert "maxTopicsOfBrokers" in str((await case.ask(RegisterTopicRequestHeader(topic="D"), queues)).remark)
    await case.ask(DeleteTopicFromNamesrvRequestHeader(topic="A"))
    assert (await case.ask(RegisterTopicRequestHeader(topic="D"), queues)).code == ResponseCode.SUCCESS
    await case.stop()


def test_topic_count_of_all_brokers_is_correct_after_every_change(rng: random.Random) -> None:
    table, names = TopicTable(), [f"n{number}" for number in range(6)]
    for _ in range(2000):
        topic, broker = rng.choice(names), rng.choice(names)
        data = QueueData(broker_name=broker)
        kind = rng.randrange(5)
        if kind == 0:
            table.put_broker(broker, {topic: data}, replace=bool(rng.randrange(2)))
        elif kind == 1:
            table.put(topic, [data])
        elif kind == 2:
            table.delete(topic)
        elif kind == 3:
            table.delete_at(topic, [broker])
        else:
            table.drop_brokers({broker, "other"})
        assert table.entries == sum(len(table.queues(topic)) for topic in table.topics())
        assert all(table.queues(topic) for topic in table.topics())


@pytest.mark.asyncio
async def test_topics_of_cluster_are_collected_in_one_pass(
    namesrv: NamesrvCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await namesrv.register(registration(f"10.0.0.{number}:1", name=f"b{number}"), topics("T", f"U{number}"))
    table = namesrv.server.routes._topics
    passes = []

    class Counted(dict[str, Any]):
        def items(self) -> Any:
            passes.append(1)
            return super().items()

    monkeypatch.setattr(table, "_queues", Counted(table._queues))
    found = namesrv.server.routes.topics_of_cluster(registration().cluster_name).topic_list
    assert set(found) == {"T", "U0", "U1", "U2", "U3", "U4"}
    assert len(passes) == 1


@pytest.mark.asyncio
async def test_keys_and_values_are_bounded_together(small: NamesrvCase) -> None:
    async def put(key: str, value: str) -> RemotingCommand:
        return await small.ask(PutKVConfigRequestHeader(namespace="N", key=key, value=value))

    assert (await put("a", "v" * 1500)).code == ResponseCode.SUCCESS
    refused = await put("b", "v" * 500)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "2000 bytes together (maxKvConfigBytes)" in str(refused.remark)
    assert (await put("a", "v" * 100)).code == ResponseCode.SUCCESS
    assert (await put("b", "v" * 500)).code == ResponseCode.SUCCESS
    listed = await small.ask(GetKVListByNamespaceRequestHeader(namespace="N"))
    assert b'"b":"vvv' in listed.body


@pytest.mark.asyncio
async def test_concurrent_kv_changes_share_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs: FileSystem = RealFileSystem()
    kv, writes = KVConfigManager(fs, tmp_path / "kvConfig.json"), []
    save = KVConfigManager._save

    def counted_save(self: KVConfigManager, table: dict[str, dict[str, str]]) -> None:
        writes.append(len(table["N"]))
        save(self, table)

    monkeypatch.setattr(KVConfigManager, "_save", counted_save)
    await asyncio.gather(*(kv.put("N", str(number), "v") for number in range(200)), kv.delete("N", "7"))
    assert len(writes) <= 2
    again = KVConfigManager(fs, tmp_path / "kvConfig.json")
    again.load()
    assert (again.get("N", "199"), again.get("N", "7")) == ("v", None)


@pytest.mark.asyncio
async def test_refused_kv_value_does_not_affect_concurrent_ones(tmp_path: Path) -> None:
    kv = KVConfigManager(RealFileSystem(), tmp_path / "kvConfig.json", lambda: 1000)
    puts = [kv.put("N", key, "v" * size) for key, size in (("a", 100), ("b", 900), ("c", 100))]
    done = await asyncio.gather(*puts, return_exceptions=True)
    assert [type(one) for one in done] == [type(None), RemotingCommandError, type(None)]
    assert (kv.get("N", "a"), kv.get("N", "b"), kv.get("N", "c")) == ("v" * 100, None, "v" * 100)


@pytest.mark.asyncio
async def test_body_above_limit_of_request_is_refused_with_one_log_line(namesrv: NamesrvCase) -> None:
    answer = await namesrv.ask(RegisterTopicRequestHeader(topic="T"), b" " * (2 << 20))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark == (
        "the body of REGISTER_TOPIC_IN_NAMESRV has 2097152 bytes, more than 1048576 (maxRequestBodyBytes)"
    )
