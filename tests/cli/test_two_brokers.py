"""``gantrymq admin`` at a cluster of two brokers: limits over all of them, ranges of time, and where messages are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli_cases import Outcome, Run

from gantrymq import (
    AdminClient,
    ConsumeFromWhere,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    MessageQueue,
    MQClientError,
    Producer,
    PushConsumer,
    SendResult,
)
from gantrymq.client.connection.resolving import hosts_of
from gantrymq.client.requests.calls import Call, accepted
from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.embedded.standalone import Standalone
from gantrymq.model.host import Host
from gantrymq.model.message import message_id, parse_message_id
from gantrymq.remoting.bodies.topic import DataVersion, RegisterBrokerBody, TopicConfigAndMappingSerializeWrapper
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.namesrv import RegisterBrokerRequestHeader

Admin = Callable[..., Outcome]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A name server and broker-a, with broker-b beside it."""
    with EmbeddedBroker() as running:
        config, loop = LiveConfig(), LoopThread("broker-b")
        config.update({"mappedFileSizeCommitLog": "1048576", "brokerName": "broker-b"})
        config.broker = replace(config.broker, listen_port=0, namesrv_addr=running.namesrv)
        second = Standalone(tmp_path_factory.mktemp("broker-b"), config, None)
        try:
            loop.run(second.start())
            yield running
        finally:
            loop.close(second.shutdown())


@contextmanager
def registered(broker: EmbeddedBroker, name: str, address: str) -> Iterator[None]:
    """Register a broker under another address: by host name, or as at its last start elsewhere."""
    with AdminClient(broker.namesrv) as client:
        before = client.cluster_info().broker_addr_table[name].broker_addrs[0]
        tables = {one.topic_name: one for one in client.topic_configs(before).values()}
        said = TopicConfigAndMappingSerializeWrapper(topic_config_table=tables, data_version=DataVersion(counter=1))
        body = RegisterBrokerBody(topic_config_serialize_wrapper=said).encode()
        header = RegisterBrokerRequestHeader(
            broker_name=name, broker_addr=address, cluster_name="DefaultCluster", broker_id=0, ha_server_addr=""
        )
        client._client.call(broker.namesrv, Call(partial(RemotingCommand.request, header, body), accepted))
        assert address_of(broker, name) == address
        yield
        client.create_topic(f"Registers{time.monotonic_ns()}", broker=before)  # it registers itself again
        eventually(lambda: address_of(broker, name) == before)


@pytest.fixture
def admin(gantrymq: Run, broker: EmbeddedBroker) -> Admin:
    return lambda *words: gantrymq("admin", *words, "-n", broker.namesrv)


def fill(broker: EmbeddedBroker, topic: str, count: int, **fields: object) -> list[str]:
    """Send ``count`` messages to two queues of each of both brokers, in turn. Returns the bodies in their order."""
    bodies = [f"body{number}" for number in range(count)]
    with AdminClient(broker.namesrv) as client, Producer(broker.namesrv) as producer:
        client.create_topic(topic, read_queue_nums=2, write_queue_nums=2)
        for number, body in enumerate(bodies):
            message = Message(topic, body.encode(), **fields)  # type: ignore[arg-type]
            queue = producer.send(message, lambda queues, at=number: sorted(queues)[at % 4]).queue
            while (stored := client.topic_stats(topic)[queue].max_offset) <= number // 4:
                assert stored <= number // 4
            time.sleep(0.002)  # the next message has a later store time
    return bodies


def shown(outcome: Outcome) -> list[str]:
    assert outcome.code == 0, outcome.err
    return [line["body"] for line in outcome.lines]


# Limits


def test_by_key_with_limit_lists_newest_of_all_brokers(admin: Admin, broker: EmbeddedBroker) -> None:
    bodies = fill(broker, "Keyed", 12, keys=["k"], tags="t")
    assert shown(admin("message", "by-key", "Keyed", "k", "--max", 5, "--json")) == bodies[-5:]
    assert shown(admin("message", "by-key", "Keyed", "t", "--key-type", "T", "--max", 3, "--json")) == bodies[-3:]
    assert shown(admin("message", "by-key", "Keyed", "k", "--json")) == bodies
    with AdminClient(broker.namesrv) as client:
        assert [one.body.decode() for one in client.query_message("Keyed", "k", max_num=2)] == bodies[-2:]


def test_mqadmin_query_by_key_with_limit_lists_newest_of_all_brokers(gantrymq: Run, broker: EmbeddedBroker) -> None:
    bodies = fill(broker, "KeyedByLetters", 8, keys=["k"])
    words = ("-t", "KeyedByLetters", "-k", "k", "-m", 3, "-n", broker.namesrv, "--json")
    assert shown(gantrymq("mqadmin", "queryMsgByKey", *words)) == bodies[-3:]


def test_dlq_list_with_limit_lists_newest_of_all_brokers_with_warning(admin: Admin, broker: EmbeddedBroker) -> None:
    bodies = fill(broker, "%DLQ%listed", 9, properties={"RETRY_TOPIC": "orders"})
    outcome = admin("dlq", "list", "listed", "--max", 4, "--json")
    assert shown(outcome) == bodies[-4:]
    assert "these are the newest 4 of 9; --max 9 lists all" in outcome.err
    whole = admin("dlq", "list", "listed", "--json")
    assert (shown(whole), whole.err) == (bodies, "")


# Times


@pytest.mark.parametrize(
    "words",
    [
        ("dlq", "list", "ranged"),
        ("dlq", "export", "ranged", "-"),
        ("dlq", "resend", "ranged"),
        ("message", "print", "%DLQ%ranged"),
        ("message", "by-key", "%DLQ%ranged", "k"),
        ("message", "by-unique-key", "%DLQ%ranged", "id"),
        ("message", "trace", "id"),
    ],
    ids=" ".join,
)
def test_begin_after_end_is_refused_with_both_values(admin: Admin, words: tuple[str, ...]) -> None:
    outcome = admin(*words, "--begin", "2026-12-01", "--end", "2026-11-01")
    assert outcome.code == 2
    assert "--begin=1796083200000 (2026-12-01" in outcome.err
    assert "--end=1793491200000 (2026-11-01" in outcome.err


@pytest.mark.parametrize(
    "words", ["queryMsgByKey -t t -k k", "printMsg -t t", "printMsgByQueue -t t", "consumeMessage -t t"]
)
def test_mqadmin_begin_after_end_is_refused_with_both_values(gantrymq: Run, broker: EmbeddedBroker, words: str) -> None:
    letters = "-s 2000 -e 1000" if words.startswith("consume") else "-b 2000 -e 1000"
    outcome = gantrymq("mqadmin", *words.split(), *letters.split(), "-n", broker.namesrv)
    assert outcome.code == 2
    assert "--begin=2000" in outcome.err
    assert "--end=1000" in outcome.err


@pytest.mark.parametrize(
    "words", ["consume t -o @2000 -o e@1000 -n {namesrv}", "consume t -o s@2000 -o e@1000 --store {store}",
              "store dump {store} --begin 2000 --end 1000", "store query {store} t k --begin 2000 --end 1000"],
)  # fmt: skip
def test_begin_after_end_is_refused_by_commands_of_streams_and_stores(
    gantrymq: Run, broker: EmbeddedBroker, words: str
) -> None:
    outcome = gantrymq(*words.format(namesrv=broker.namesrv, store=broker.store_path).split())
    assert outcome.code == 2
    assert "2000 (" in outcome.err
    assert "1000 (" in outcome.err


def test_search_without_messages_in_time_range_differs_from_no_messages(
    admin: Admin, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    fill(broker, "%DLQ%ranged", 4, keys=["k"], properties={"RETRY_TOPIC": "orders"})
    times = ("--begin", "2001-01-01", "--end", "2001-01-02")
    for words in (("list",), ("export",)):
        outcome = admin("dlq", *words, "ranged", *(["-"] if words == ("export",) else []), *times)
        assert (outcome.code, outcome.out) == (0, b"")
        assert "ranged has no dead letters stored in this time" in outcome.err
    outcome = admin("dlq", "export", "ranged", tmp_path / "none.jsonl", *times)
    assert "ranged has no dead letters stored in this time" in outcome.err
    assert "has no dead letters stored in this time" in admin("dlq", "resend", "ranged", *times).err
    assert (
        "no message of %DLQ%ranged stored in this time has"
        in admin("message", "by-key", "%DLQ%ranged", "k", *times).err
    )
    assert "no such message stored in this time" in admin("message", "print", "%DLQ%ranged", *times).err
    outcome = admin("dlq", "list", "unknown", *times)
    assert (outcome.code, "unknown has no dead letters; " in outcome.err) == (3, True)


# Addresses


def address_of(broker: EmbeddedBroker, name: str) -> str:
    with AdminClient(broker.namesrv) as client:
        return client.cluster_info().broker_addr_table[name].broker_addrs[0]


def sent_to(broker: EmbeddedBroker, topic: str, name: str, body: bytes) -> SendResult:
    with AdminClient(broker.namesrv) as client, Producer(broker.namesrv) as producer:
        client.create_topic(topic, read_queue_nums=1, write_queue_nums=1)
        return producer.send(Message(topic, body), MessageQueue(topic, name, 0))


@contextmanager
def forwarded(address: str) -> Iterator[str]:
    """Another address of a server."""
    host, _, port = address.rpartition(":")
    loop, writers = LoopThread("forwarder"), list[asyncio.StreamWriter]()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while block := await reader.read(65_536):
            writer.write(block)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        writers.extend((writer, back))
        await asyncio.gather(copy(reader, back), copy(there, writer))

    async def start() -> asyncio.Server:
        return await asyncio.start_server(serve, "127.0.0.7", 0)

    async def stop() -> None:
        server.close()
        for one in writers:
            one.close()
            await one.wait_closed()

    server = loop.run(start())
    try:
        yield f"127.0.0.7:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.close(stop())


def moved_id(result: SendResult, host: bytes, port: int = 10911) -> str:
    """The id that the message has if its broker had another address when it was stored."""
    _, offset = parse_message_id(result.offset_msg_id)
    return message_id(Host(host, port), offset)


def test_message_of_broker_registered_by_host_name_is_found_tracked_and_resent(
    admin: Admin, broker: EmbeddedBroker
) -> None:
    sent = sent_to(broker, "ByName", "broker-b", b"x")
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    with LitePullConsumer(broker.namesrv, consumer_group="named", consume_from_where=first) as consumer:
        consumer.subscribe("ByName")
        while not consumer.poll():
            pass
        consumer.commit()
    port = address_of(broker, "broker-b").rpartition(":")[2]
    with registered(broker, "broker-b", f"localhost:{port}"):
        for msg_id in (sent.offset_msg_id, sent.offset_msg_id.lower(), sent.msg_id):
            [row] = admin("message", "by-id", "ByName", msg_id, "--tracks", "--json").lines
            assert (row["brokerName"], row["body"]) == ("broker-b", "x")
            [track] = row["tracks"]
            assert (track["group"], track["consumerOffset"], track["consumed"]) == ("named", 1, True)
            assert admin("message", "track", "ByName", msg_id, "--json").lines == [track]
        assert admin("message", "resend", "ByName", sent.offset_msg_id).code == 0
        assert shown(admin("message", "by-offset", "ByName", 0, 0, "-b", f"127.0.0.1:{port}", "--json")) == ["x"]


def test_message_is_delivered_at_broker_registered_by_host_name(admin: Admin, broker: EmbeddedBroker) -> None:
    sent, came = sent_to(broker, "DeliveredByName", "broker-b", b"x"), list[bytes]()
    port = address_of(broker, "broker-b").rpartition(":")[2]
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    with PushConsumer(broker.namesrv, consumer_group="delivered", consume_from_where=first) as consumer:
        consumer.subscribe("DeliveredByName")
        consumer.listen(lambda messages, context: came.extend(one.body for one in messages))
        consumer.start()
        eventually(lambda: came == [b"x"])
        with registered(broker, "broker-b", f"localhost:{port}"):
            outcome = admin("message", "deliver", "DeliveredByName", sent.offset_msg_id, "-g", "delivered", "--json")
    assert [line["consumeResult"] for line in outcome.lines] == ["CR_SUCCESS"], outcome.err
    assert came == [b"x", b"x"]


def test_message_whose_broker_has_another_address_now_is_found(broker: EmbeddedBroker) -> None:
    """The records hold the old address; nothing listens there any more."""
    sent = sent_to(broker, "Moved", "broker-b", b"x")
    with AdminClient(broker.namesrv) as client:
        asked = list[str]()
        call = client._client.call

        def noted(address: str, *given: Any) -> Any:
            asked.append(address)
            return call(address, *given)

        client._client.call = noted  # type: ignore[method-assign]
        before = address_of(broker, "broker-b")
        with forwarded(before) as now, registered(broker, "broker-b", now):
            found = client.view_message("Moved", sent.offset_msg_id)
        assert (found.body, found.broker_name) == (b"x", "broker-b")
        assert str(found.store_host) == before
        assert before not in asked


@pytest.mark.parametrize("host", [bytes(4), bytes([10, 0, 0, 1]), bytes(15) + b"\x01"], ids=["0", "v4", "v6"])
def test_id_of_no_message_is_not_answered_with_message_at_same_offset(broker: EmbeddedBroker, host: bytes) -> None:
    sent = sent_to(broker, "Elsewhere", "broker-b", b"x")
    with AdminClient(broker.namesrv) as client, pytest.raises(MQClientError, match="no message"):
        client.view_message("Elsewhere", moved_id(sent, host))


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1:10911", Host(bytes([127, 0, 0, 1]), 10911)),
        ("localhost:10911", Host(bytes([127, 0, 0, 1]), 10911)),
        ("[::1]:10911", Host(bytes(15) + b"\x01", 10911)),
        ("0:0:0:0:0:0:0:1:10911", Host(bytes(15) + b"\x01", 10911)),
    ],
)
def test_registered_address_is_resolved(address: str, host: Host) -> None:
    assert host in hosts_of(address)


def test_unresolvable_registered_address_has_no_host() -> None:
    assert hosts_of("no such name.invalid:10911") == hosts_of("nothing") == frozenset()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Ordered topics


def order_of(broker: EmbeddedBroker, topic: str) -> tuple[str | None, set[bool]]:
    """The entry in ORDER_TOPIC_CONFIG, and whether each broker has the topic marked."""
    with AdminClient(broker.namesrv) as client:
        names = [address_of(broker, name) for name in ("broker-a", "broker-b")]
        marks = {client.topic_config(topic, address).order for address in names}
        return client.kv_config("ORDER_TOPIC_CONFIG", topic), marks


def test_no_order_removes_order_of_ordered_topic(admin: Admin, broker: EmbeddedBroker) -> None:
    assert admin("topic", "create", "Ordered", "--queues", 4, "--order").code == 0
    assert order_of(broker, "Ordered") == ("broker-a:4;broker-b:4", {True})
    outcome = admin("topic", "create", "Ordered", "--no-order")
    assert (outcome.code, "Ordered was removed from ORDER_TOPIC_CONFIG" in outcome.err) == (0, True), outcome.err
    assert order_of(broker, "Ordered") == (None, {False})


def test_no_order_at_one_of_two_ordered_brokers_is_refused_with_command(admin: Admin, broker: EmbeddedBroker) -> None:
    admin("topic", "create", "OrderedTwice", "--queues", 4, "--order")
    before = order_of(broker, "OrderedTwice")
    outcome = admin("topic", "create", "OrderedTwice", "--no-order", "-b", "broker-a")
    assert (outcome.code, outcome.err.count("\n")) == (3, 1)
    assert "also at broker-b" in outcome.err
    assert "`gantrymq admin kv delete ORDER_TOPIC_CONFIG OrderedTwice`" in outcome.err
    assert order_of(broker, "OrderedTwice") == before
    assert admin("kv", "delete", "ORDER_TOPIC_CONFIG", "OrderedTwice").code == 0
    for name in ("broker-a", "broker-b"):
        assert admin("topic", "create", "OrderedTwice", "--no-order", "-b", name).code == 0
    assert order_of(broker, "OrderedTwice") == (None, {False})


def test_order_of_topic_follows_mqadmin_update(gantrymq: Run, admin: Admin, broker: EmbeddedBroker) -> None:
    admin("topic", "create", "OrderedByLetters", "--queues", 4, "--order")

    def update(*letters: object) -> None:
        words = ("-t", "OrderedByLetters", "-c", "DefaultCluster", *letters, "-n", broker.namesrv)
        outcome = gantrymq("mqadmin", "updateTopic", *words)
        assert outcome.code == 0, outcome.err

    update("-r", 6, "-w", 6)
    assert order_of(broker, "OrderedByLetters") == ("broker-a:6;broker-b:6", {True})
    update("-o", "false")
    assert order_of(broker, "OrderedByLetters") == (None, {False})
    update("-o", "true")
    assert order_of(broker, "OrderedByLetters") == ("broker-a:8;broker-b:8", {True})


def test_changes_of_ordered_topic_keep_order_and_follow_queues(admin: Admin, broker: EmbeddedBroker) -> None:
    admin("topic", "create", "OrderedChanged", "--queues", 4, "--order")
    assert admin("topic", "perm", "OrderedChanged", "R").code == 0
    outcome = admin("topic", "create", "OrderedChanged", "--queues", 2, "--perm", "RW", "-b", "broker-b")
    assert (outcome.code, outcome.err) == (0, "")
    assert order_of(broker, "OrderedChanged") == ("broker-a:4;broker-b:2", {True})


def test_new_broker_of_ordered_topic_is_named_as_without_sends(admin: Admin, broker: EmbeddedBroker) -> None:
    admin("topic", "create", "OrderedAtOne", "--queues", 4, "--order", "-b", "broker-a")
    outcome = admin("topic", "create", "OrderedAtOne", "--queues", 4, "-b", "broker-b")
    assert outcome.code == 0
    assert "orders OrderedAtOne without broker-b, so producers do not send there; --order adds it" in outcome.err


def test_deletion_of_ordered_topic_removes_its_order(admin: Admin, broker: EmbeddedBroker) -> None:
    for where in ((), ("-c", "DefaultCluster")):
        admin("topic", "create", "OrderedGone", "--queues", 4, "--order")
        assert admin("topic", "delete", "OrderedGone", *where).code == 0
        assert admin("topic", "create", "OrderedGone", "--queues", 1).code == 0
        assert order_of(broker, "OrderedGone") == (None, {False})


def test_deletion_in_one_cluster_keeps_order_in_others(broker: EmbeddedBroker) -> None:
    with AdminClient(broker.namesrv) as client:
        client.create_topic("OrderedInClusters")
        client.put_order_config("OrderedInClusters", {"broker-a": 8, "broker-elsewhere": 8})
        client.delete_topic("OrderedInClusters", cluster="DefaultCluster")
        assert client.order_config("OrderedInClusters") == {"broker-elsewhere": 8}
