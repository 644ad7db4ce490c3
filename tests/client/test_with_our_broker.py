"""Our consumers and our administration at our own broker; at the real one: tests/interop."""

import asyncio
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from client_cases import FIRST, eventually

from gantrymq import (
    AdminClient,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    Producer,
    PullClient,
    PushConsumer,
    SubscriptionGroupConfig,
)
from gantrymq.broker.processors.offsets import ConsumerManageProcessor
from gantrymq.client.admin.groups import TO_THE_END
from gantrymq.client.connection.async_client import AsyncClient
from gantrymq.client.consumer.async_lite_pull import AsyncLitePullConsumer
from gantrymq.client.consumer.push.async_push import AsyncPushConsumer
from gantrymq.client.consumer.settings import LitePullConsumerConfig, PushConsumerConfig
from gantrymq.client.producer.async_producer import AsyncProducer
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.settings import ClientConfig
from gantrymq.errors import ConfigError, MQBrokerError, MQClientError, RemotingConnectError
from gantrymq.format.packed_body import with_decompressed_body
from gantrymq.model.flags import COMPRESSED
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import ClientConnection
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel
from interop.fixed_ports import fixed_port


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.namesrv


@pytest.fixture(scope="module")
def producer(namesrv: str) -> Iterator[Producer]:
    with Producer(namesrv, send_msg_timeout_ms=20_000) as made:
        yield made


def send(producer: Producer, topic: str, count: int) -> list[bytes]:
    bodies = [b"%d" % number for number in range(count)]
    for number, body in enumerate(bodies):
        producer.send(Message(topic, body, keys=(body.decode(),)), lambda queues, at=number: queues[at % 4])
    return bodies


def test_failed_messages_are_retried_then_dead_letters(namesrv: str, producer: Producer) -> None:
    seen: list[tuple[str, int]] = []
    dead: list[ReceivedMessage] = []

    def later(messages: Sequence[ReceivedMessage], context: Any) -> ConsumeConcurrentlyStatus:
        seen.append((messages[0].topic, messages[0].reconsume_times))
        context.delay_level_when_next_consume = 1
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    send(producer, "OursRetried", 1)
    with (
        PushConsumer(namesrv, consumer_group="ours-retried", max_reconsume_times=1, **FIRST) as consumer,
        PushConsumer(namesrv, consumer_group="ours-dead", **FIRST) as second,
    ):
        consumer.subscribe("OursRetried")
        consumer.listen(later)
        consumer.start()
        second.subscribe("%DLQ%ours-retried")
        second.listen(lambda messages, context: dead.extend(messages))
        second.start()
        eventually(lambda: dead, "the dead letter")
    assert seen == [("OursRetried", 0), ("OursRetried", 1)]


def test_default_pull_returns_512_and_flow_control_holds(namesrv: str, producer: Producer) -> None:
    for _ in range(20):
        producer.send_batch([Message("OursPulls", b"x") for _ in range(100)], MessageQueue("OursPulls", "broker-a", 0))
    with PullClient(namesrv) as client:
        (queue,) = (queue for queue in client.queues("OursPulls") if queue.queue_id == 0)
        eventually(lambda: client.max_offset(queue) == 2000, "the messages")
    with LitePullConsumer(namesrv, consumer_group="ours-pulls", pull_threshold_for_queue=500, **FIRST) as consumer:
        consumer.assign([queue])
        (state,) = consumer._consumer._assigned.table.values()
        eventually(lambda: state.count >= 500, "a pull")
        sizes = []
        while sum(sizes) < 2000:
            assert state.count <= 500 + 512
            sizes.append(len(consumer.poll()))
    assert sizes == [512, 512, 512, 464]


def test_clients_accept_name_servers_or_settings_object(namesrv: str) -> None:
    group: dict[str, Any] = {"consumer_group": "ours-given"}
    clients: dict[Any, tuple[ClientConfig, dict[str, Any]]] = {
        Producer: (ProducerConfig(namesrv), {}),
        PushConsumer: (PushConsumerConfig(namesrv, **group), group),
        LitePullConsumer: (LitePullConsumerConfig(namesrv, **group), group),
        AdminClient: (ClientConfig(namesrv), {}),
        PullClient: (ClientConfig(namesrv), {}),
    }
    for client, (config, settings) in clients.items():
        client(namesrv, **settings, request_timeout_ms=1000).close()
        client(config, request_timeout_ms=1000).close()
        for neither in (None, b"127.0.0.1:9876"):
            with pytest.raises(ConfigError, match=r"namesrvAddr=.* is not allowed: host:port"):
                client(neither, **settings)
    with pytest.raises(ConfigError, match="namesrvAddr=ProducerConfig"):
        PushConsumer(ProducerConfig(namesrv), **group)  # type: ignore[arg-type]


def test_async_clients_accept_name_servers(namesrv: str) -> None:
    async def awaited() -> None:
        got = asyncio.Queue[bytes]()

        async def listen(messages: Sequence[ReceivedMessage], context: object) -> None:
            for message in messages:
                await got.put(message.body)

        async with AsyncProducer(namesrv) as producer:
            await producer.send(Message("OursAwaited", b"x"))
        async with AsyncLitePullConsumer(namesrv, consumer_group="ours-awaited", **FIRST) as poller:
            await poller.subscribe("OursAwaited")
            assert [message.body for message in await poller.poll()] == [b"x"]
        async with AsyncPushConsumer(namesrv, consumer_group="ours-pushed", **FIRST) as consumer:
            consumer.subscribe("OursAwaited")
            consumer.listen(listen)
            await consumer.start()
            assert await got.get() == b"x"

    asyncio.run(awaited())


def test_batches_under_way_are_acknowledged_each(namesrv: str, producer: Producer) -> None:
    sent = [
        producer.send_batch_async([Message("OursBatches", b"%d" % (10 * batch + one)) for one in range(10)])
        for batch in range(20)
    ]
    producer.flush(timeout_ms=20_000)
    assert all(len(future.result(0).msg_id.split(",")) == 10 for future in sent)
    assert {future.result().queue.queue_id for future in sent} == {0, 1, 2, 3}
    with pytest.raises(MQClientError, match="topic of the messages in one batch should be the same"):
        producer.send_batch_async([Message("OursBatches", b"x"), Message("Other", b"x")])


@pytest.mark.parametrize("decompressed", [True, False])
def test_consumer_returns_stored_bodies_on_request(namesrv: str, producer: Producer, decompressed: bool) -> None:
    topic, body = f"OursPacked{decompressed}", b"long" * 2000
    producer.send(Message(topic, body))
    group = f"ours-packed-{decompressed}"
    with LitePullConsumer(namesrv, consumer_group=group, decode_decompress_body=decompressed, **FIRST) as consumer:
        consumer.subscribe(topic)
        [message] = consumer.poll()
    assert (message.body == body, bool(message.sys_flag & COMPRESSED)) == (decompressed, not decompressed)
    assert with_decompressed_body(message).body == body


def test_orderly_consumers_share_queues_and_keep_order(namesrv: str, producer: Producer) -> None:
    seen: list[tuple[int, int]] = []

    def listen(messages: Sequence[ReceivedMessage], context: Any) -> ConsumeOrderlyStatus:
        seen.extend((message.queue_id, message.queue_offset) for message in messages)
        return ConsumeOrderlyStatus.SUCCESS

    send(producer, "OursOrderly", 40)
    with (
        PushConsumer(namesrv, consumer_group="ours-orderly", **FIRST) as one,
        PushConsumer(namesrv, consumer_group="ours-orderly", **FIRST) as two,
    ):
        for consumer in (one, two):
            consumer.subscribe("OursOrderly")
            consumer.listen_orderly(listen)
            consumer.start()
        eventually(lambda: len(seen) >= 40, "all messages")
        eventually(
            lambda: (
                [len([queue for queue in each.assignment() if queue.topic == "OursOrderly"]) for each in (one, two)]
                == [2, 2]
            ),
            "two halves",
        )
        send(producer, "OursOrderly", 8)
        eventually(lambda: len(seen) >= 48, "more messages")
    for number in range(4):
        offsets = [offset for queue, offset in seen if queue == number]
        assert offsets == list(range(12))


def test_reset_during_orderly_listener_takes_effect() -> None:
    """What the listener then brings to its end lies before the reset, and does not take it back."""
    begun, go_on, seen = threading.Event(), threading.Event(), list[bytes]()

    def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
        seen.append(messages[0].body)
        begun.set()
        assert go_on.wait(60)

    with EmbeddedBroker() as broker, Producer(broker.namesrv) as producer, AdminClient(broker.namesrv) as admin:
        broker.create_topic("OursReset", 1)
        producer.send_batch([Message("OursReset", b"skipped")] * 10)
        with PushConsumer(broker.namesrv, consumer_group="ours-reset", **FIRST) as consumer:
            consumer.subscribe("OursReset")
            consumer.listen_orderly(listen)
            consumer.start()
            assert begun.wait(60)
            admin.reset_offset_by_time("ours-reset", "OursReset", TO_THE_END)
            producer.send(Message("OursReset", b"behind"))
            eventually(lambda: all(one.topic != "OursReset" for one in consumer.assignment()), "the reset")
            go_on.set()
            eventually(lambda: seen[-1] == b"behind", "what lies behind the reset")
        assert seen == [b"skipped", b"behind"]
        assert broker.consumer_offsets("ours-reset", "OursReset") == {0: 11}


def test_reset_at_broker_with_reordered_commits_takes_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """RocketMQ answers a question for an offset while another of its threads still has the update, told just before."""
    update = ConsumerManageProcessor.update

    def late(self: ConsumerManageProcessor, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        if not request.is_oneway:
            return update(self, channel, request)
        asyncio.get_running_loop().call_later(0.2, update, self, channel, request)
        return request.response(ResponseCode.SUCCESS)

    monkeypatch.setattr(ConsumerManageProcessor, "update", late)
    seen: list[bytes] = []

    def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
        seen.extend(message.body for message in messages)

    with EmbeddedBroker() as broker, Producer(broker.namesrv) as producer, AdminClient(broker.namesrv) as admin:
        admin.update_broker_config({"useServerSideResetOffset": "false"})
        bodies = send(producer, "OursMovedBack", 4)
        with PushConsumer(broker.namesrv, consumer_group="ours-moved-back", **FIRST) as consumer:
            consumer.subscribe("OursMovedBack")
            consumer.listen(listen)
            consumer.start()
            eventually(lambda: len(seen) == 4, "all messages")
            eventually(lambda: set(consumer.offsets().values()) == {1}, "their ends")
            for queue in consumer.offsets():
                admin.update_consume_offset("ours-moved-back", queue, 1)  # a broker moves only what was committed
            admin.reset_offset_by_time("ours-moved-back", "OursMovedBack", 0)
            eventually(lambda: len(seen) == 8, "all messages again")
    assert sorted(seen) == sorted(bodies * 2)


def test_lite_pull_and_admin_clients_work_at_our_broker(namesrv: str, producer: Producer) -> None:
    bodies = send(producer, "OursPolled", 12)
    with LitePullConsumer(namesrv, consumer_group="ours-polled", **FIRST) as consumer, AdminClient(namesrv) as admin:
        consumer.subscribe("OursPolled")
        got: list[bytes] = []
        eventually(lambda: got.extend(message.body for message in consumer.poll(100)) or len(got) >= 12, "all messages")
        assert sorted(got) == sorted(bodies)
        consumer.commit()
        [connection] = admin.consumer_connection("ours-polled").connection_set
        assert connection.client_id == consumer.client_id
        assert [one.max_offset for one in admin.topic_stats("OursPolled").values()] == [3] * 4
        assert [one.consumer_offset for one in admin.consume_stats("ours-polled").values()] == [3] * 4
        eventually(lambda: admin.query_message("OursPolled", "7"), "the index")
        [found] = admin.query_message("OursPolled", "7")
        assert found.body == b"7"
        assert admin.view_message("OursPolled", found.offset_msg_id).body == b"7"


def test_paused_topic_does_not_block_other_topics(namesrv: str, producer: Producer) -> None:
    send(producer, "OursBig", 8)
    producer.send(Message("OursSmall", b"first"))
    with LitePullConsumer(namesrv, consumer_group="ours-paused", pull_threshold_for_all=1, **FIRST) as consumer:
        consumer.subscribe("OursBig")
        eventually(lambda: consumer.poll(100), "some of the big topic")
        consumer.pause(consumer.assignment())
        consumer.subscribe("OursSmall")
        eventually(lambda: [message.body for message in consumer.poll(100)] == [b"first"], "a small message")


def test_consumers_continue_after_kill_of_broker() -> None:
    """A broker is killed and started again: members go on where they were, and lose nothing."""
    seen: set[bytes] = set()
    polled: set[bytes] = set()
    with EmbeddedBroker() as broker, Producer(broker.namesrv, send_msg_timeout_ms=20_000) as producer:
        bodies = [b"before %d" % number for number in range(20)]
        for body in bodies:
            producer.send(Message("Outlived", body))
        with (
            PushConsumer(
                broker.namesrv, consumer_group="outlive", pull_time_delay_ms_when_exception=50, **FIRST
            ) as one,
            LitePullConsumer(
                broker.namesrv, consumer_group="outlive-lite", pull_time_delay_ms_when_exception=50, **FIRST
            ) as two,
        ):
            one.subscribe("Outlived")
            one.listen(lambda messages, context: seen.update(message.body for message in messages))
            one.start()
            two.subscribe("Outlived")
            eventually(lambda: len(seen) == 20, "all messages")
            broker.kill()
            broker.restart()
            more = [b"after %d" % number for number in range(20)]
            for body in more:
                producer.send(Message("Outlived", body))
            eventually(lambda: len(seen) == 40, "what came after the kill")
            eventually(
                lambda: polled.update(message.body for message in two.poll(100)) or len(polled) == 40,
                "the same, polled",
            )
    assert seen == polled == {*bodies, *more}


def test_send_to_queue_of_moved_broker_succeeds(
    namesrv: str, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = producer.send(Message("OursMoved", b"x")).queue
    ask = AsyncClient.ask_name_server

    async def before_it_moved(self: AsyncClient, call: Any) -> Any:
        data = await ask(self, call)
        data.broker_datas[0].broker_addrs[0] = "127.0.0.1:1"
        return data

    def one_way(producer: Producer) -> None:
        producer.send_oneway(Message("OursMoved", b"x"), queue)

    def to_a_queue(producer: Producer) -> None:
        producer.send(Message("OursMoved", b"x"), queue)

    for send in (one_way, to_a_queue):
        with Producer(namesrv) as moved:
            with monkeypatch.context() as then:
                then.setattr(AsyncClient, "ask_name_server", before_it_moved)
                with pytest.raises(RemotingConnectError):
                    send(moved)
            send(moved)


def test_push_consumer_starts_after_failed_start() -> None:
    port = fixed_port()
    with PushConsumer(f"127.0.0.1:{port}", consumer_group="ours-later") as consumer:
        consumer.subscribe("OursLater")
        consumer.listen(lambda messages, context: None)
        with pytest.raises(RemotingConnectError):
            consumer.start()
        with EmbeddedBroker(namesrv_port=port) as broker:
            broker.create_topic("OursLater")
            consumer.start()
            consumer.close()


def test_lite_pull_consumer_starts_after_failed_start() -> None:
    port = fixed_port()
    consumer = LitePullConsumer(f"127.0.0.1:{port}", consumer_group="ours-polled-later", **FIRST)
    consumer.subscribe("OursPolledLater")
    with pytest.raises(RemotingConnectError):
        consumer.start()
    with EmbeddedBroker(namesrv_port=port) as broker, Producer(broker.namesrv) as producer:
        producer.send(Message("OursPolledLater", b"body"))
        consumer.start()
        eventually(lambda: [one.body for one in consumer.poll(100)] == [b"body"], "the message")
        consumer.close()


def test_failed_listener_gets_message_again() -> None:
    told: list[int] = []

    def listen(topic: str, queues: frozenset[MessageQueue]) -> None:
        told.append(len(queues))
        if len(told) == 1:
            raise ValueError("a listener's own")

    with (
        EmbeddedBroker() as broker,
        LitePullConsumer(broker.namesrv, consumer_group="ours-told", topic_metadata_check_interval_ms=20) as consumer,
    ):
        broker.create_topic("OursTold", 1)
        consumer.register_topic_message_queue_change_listener("OursTold", listen)
        eventually(lambda: told == [1], "the queues there are")
        broker.create_topic("OursTold", 3)
        eventually(lambda: len(told) > 1, "the queues there are now")
    assert told == [1, 3]


def clients(admin: AdminClient, producer_group: str, topic: str) -> list[ClientConnection]:
    with suppress(MQBrokerError):  # the group does not exist
        return admin.producer_connection(producer_group, topic).connection_set
    return []


def test_producer_in_namespace_registers_group_of_its_sends() -> None:
    with (
        EmbeddedBroker() as broker,
        Producer(broker.namesrv, producer_group="ours-inside", namespace="NS") as producer,
        AdminClient(broker.namesrv) as admin,
    ):
        producer.send(Message("OursInside", b"x"))
        eventually(lambda: clients(admin, "NS%ours-inside", "NS%OursInside"), "the heart-beat")
        assert clients(admin, "ours-inside", "NS%OursInside") == []


def test_message_sent_back_in_namespace_uses_shared_producer_group() -> None:
    def suspend(messages: Sequence[ReceivedMessage], context: Any) -> ConsumeOrderlyStatus:
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT

    with (
        EmbeddedBroker() as broker,
        Producer(broker.namesrv) as producer,
        PushConsumer(
            broker.namesrv, consumer_group="ours-back", namespace="NS", max_reconsume_times=0, **FIRST
        ) as consumer,
        AdminClient(broker.namesrv) as admin,
    ):
        producer.send(Message("NS%OursBack", b"x"))
        consumer.subscribe("OursBack")
        consumer.listen_orderly(suspend)
        consumer.start()
        [dead] = broker.wait_for_messages("%DLQ%NS%ours-back", 1)
        assert dead.properties["INSTANCE_ID"] == "NS"
        eventually(lambda: clients(admin, "CLIENT_INNER_PRODUCER", "NS%OursBack"), "the heart-beat")


def test_admin_in_namespace_sees_own_names_without_prefix() -> None:
    with (
        EmbeddedBroker() as broker,
        Producer(broker.namesrv, namespace="NS") as producer,
        AdminClient(broker.namesrv, namespace="NS") as admin,
        LitePullConsumer(broker.namesrv, consumer_group="ours-admin", namespace="NS", **FIRST) as consumer,
    ):
        for topic in ("OutsideAll", "Other%OursAdmin", "NS%OursAdmin", "NS%TBW102"):
            broker.create_topic(topic, 1)
        admin.create_subscription_group("NS%NS%ours-admin", broker=broker.address)
        queue = producer.send(Message("OursAdmin", b"x")).queue
        consumer.subscribe("OursAdmin")
        eventually(lambda: consumer.poll(100), "the message")
        consumer.commit()
        assert list(admin.topic_stats("OursAdmin")) == [queue]
        assert list(admin.consume_stats("ours-admin", "OursAdmin")) == [queue]
        assert list(admin.reset_offset_by_time("ours-admin", "OursAdmin", 0)) == [queue]
        assert admin.topic_consumers("OursAdmin") == ["ours-admin"]
        groups = admin.subscription_groups(broker.address)
        assert {name: groups[name].group_name for name in ("ours-admin", "NS%NS%ours-admin")} == {
            "ours-admin": "NS%ours-admin",
            "NS%NS%ours-admin": "NS%NS%ours-admin",
        }
        [cluster] = admin.cluster_info().cluster_addr_table
        for topics in (admin.topics(), admin.topics_of_cluster(cluster)):
            assert {"OursAdmin", "%RETRY%ours-admin", "TBW102", "NS%TBW102"} <= {*topics}
            assert len({*topics}) == len(topics)
            assert not [topic for topic in topics if topic in ("OutsideAll", "Other%OursAdmin", "NS%OursAdmin")]


def test_queues_of_producer_in_namespace_have_plain_topic() -> None:
    with EmbeddedBroker() as broker, Producer(broker.namesrv, namespace="NS") as producer:
        broker.create_topic("NS%OursShown", 1)
        [queue] = producer.queues("OursShown")
        offered: list[MessageQueue] = []

        def choose(queues: Sequence[MessageQueue]) -> MessageQueue:
            offered.extend(queues)
            return queues[0]

        results = [producer.send(Message("OursShown", b"x"), to) for to in (None, queue, choose)]
        assert {one.topic for one in (queue, *offered, *(one.queue for one in results))} == {"OursShown"}
        assert len(broker.messages("NS%OursShown")) == 3


def test_queues_of_missing_topic_raise_until_first_message() -> None:
    """As with Java's fetchPublishMessageQueues; the queues of TBW102 are of no topic that could be meant."""
    with EmbeddedBroker() as broker, Producer(broker.namesrv) as producer:
        for _ in range(2):
            with pytest.raises(MQClientError, match="No route info of this topic: Missing: no name server knows it"):
                producer.queues("Missing")
        broker.create_topic("Missing", 3)
        assert len(producer.queues("Missing")) == 3
        sent = producer.send(Message("MadeBySend", b"x"), lambda queues: queues[-1])
        assert sent.queue in producer.queues("MadeBySend")


def test_refused_queue_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """An operator may have taken the group's permission: the consumer stood still without a word."""
    settings: dict[str, Any] = {**FIRST, "pull_time_delay_ms_when_exception": 20}
    with EmbeddedBroker() as broker, AdminClient(broker.namesrv) as admin:
        broker.create_topic("Closed", 1)
        admin.create_subscription_group("closed", SubscriptionGroupConfig(consume_enable=False))
        received: list[ReceivedMessage] = []
        with PushConsumer(broker.namesrv, consumer_group="closed", **settings) as consumer:
            consumer.subscribe("Closed")
            consumer.listen(lambda messages, context: received.extend(messages))
            consumer.start()
            eventually(lambda: "no permission, closed" in caplog.text, "the warning")
            admin.create_subscription_group("closed")
            with Producer(broker.namesrv) as producer:
                producer.send(Message("Closed", b"x"))
            eventually(lambda: len(received) == 1, "the message")
    said = [one.getMessage() for one in caplog.records if "Closed@broker-a:0" in one.getMessage()]
    assert len([one for one in said if "a pull failed" in one]) == 1


@pytest.mark.parametrize("model", ["CLUSTERING", "BROADCASTING"])
def test_consumer_of_emptied_broker_skips_no_new_message(tmp_path: Path, model: str) -> None:
    """The broker knows no group and names the end of the queue; RocketMQ's consumer goes on from there."""
    settings: dict[str, Any] = {
        **FIRST, "message_model": model, "local_offset_store_dir": str(tmp_path), "poll_name_server_interval_ms": 100,
        "pull_time_delay_ms_when_exception": 200,
    }  # fmt: skip
    received: list[bytes] = []
    with (
        EmbeddedBroker() as broker,
        Producer(broker.namesrv, send_msg_timeout_ms=20_000) as producer,
        PushConsumer(broker.namesrv, consumer_group="emptied", **settings) as consumer,
    ):
        broker.create_topic("Emptied", 1)
        producer.send_batch([Message("Emptied", b"old") for _ in range(9)])
        consumer.subscribe("Emptied")
        consumer.listen(lambda messages, context: received.extend(one.body for one in messages))
        consumer.start()
        eventually(lambda: len(received) == 9, "the old messages")
        broker.stop()
        for entry in broker.store_path.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        broker.start()
        broker.create_topic("Emptied", 1)
        for number in range(3):
            producer.send(Message("Emptied", b"%d" % number))
        eventually(lambda: set(received[9:]) == {b"0", b"1", b"2"}, "the new messages")
