"""Answers of the administration where what a server says is wider than what was asked, or a group is not online."""

from collections.abc import Iterator

import pytest

from gantrymq import (
    AdminClient,
    ConsumeFromWhere,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    SubscriptionGroupConfig,
)
from gantrymq.client.requests.calls import Call, accepted
from gantrymq.errors import MQBrokerError, MQClientError, NoRouteError, RemotingError
from gantrymq.remoting.bodies.topic import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.namesrv import RegisterBrokerRequestHeader
from gantrymq.remoting.headers.pull import ViewMessageRequestHeader

# Java's hash code is the same of both, and so of "Aa#key" and "BB#key": the index finds one under the other.
ONE, OTHER = "Aa", "BB"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker) -> Iterator[AdminClient]:
    with AdminClient(broker.namesrv) as client:
        yield client


@pytest.fixture(scope="module")
def producer(broker: EmbeddedBroker) -> Iterator[Producer]:
    with Producer(broker.namesrv, send_msg_timeout_ms=20_000) as client:
        yield client


def test_query_skips_messages_of_other_topic_with_same_hash(
    broker: EmbeddedBroker, admin: AdminClient, producer: Producer
) -> None:
    for topic in (ONE, OTHER):
        broker.create_topic(topic, 1)
        producer.send(Message(topic, topic.encode(), keys=["key"], properties={"UNIQ_KEY": "4711"}))
        broker.wait_for_messages(topic, 1)
    for topic in (ONE, OTHER):
        assert [one.body for one in admin.query_message(topic, "key")] == [topic.encode()]
        assert [one.body for one in admin.query_message_by_unique_key(topic, "4711")] == [topic.encode()]


def test_query_skips_messages_of_other_key_with_same_hash(
    broker: EmbeddedBroker, admin: AdminClient, producer: Producer
) -> None:
    broker.create_topic("Keys", 1)
    for key in (ONE, OTHER):
        producer.send(Message("Keys", key.encode(), keys=[key, "both"]))
    broker.wait_for_messages("Keys", 2)
    for key in (ONE, OTHER):
        assert [one.body for one in admin.query_message("Keys", key)] == [key.encode()]
    assert len(admin.query_message("Keys", "both")) == 2


def test_view_message_under_other_topic_raises(broker: EmbeddedBroker, admin: AdminClient, producer: Producer) -> None:
    for topic in ("Viewed", "NotViewed"):
        broker.create_topic(topic, 1)
    sent = producer.send(Message("Viewed", b"x"))
    broker.wait_for_messages("Viewed", 1)
    for msg_id in (sent.msg_id, sent.offset_msg_id):
        assert admin.view_message("Viewed", msg_id).body == b"x"
        with pytest.raises(MQClientError, match="no message"):
            admin.view_message("NotViewed", msg_id)


def test_delayed_message_is_viewed_under_destination_topic(
    broker: EmbeddedBroker, admin: AdminClient, producer: Producer
) -> None:
    broker.create_topic("Delayed", 1)
    sent = producer.send(Message("Delayed", b"x", delay_level=18))
    for topic in ("Delayed", "SCHEDULE_TOPIC_XXXX"):
        assert admin.view_message(topic, sent.offset_msg_id).body == b"x"


def test_dead_letter_at_rocketmq_5_5_1_is_viewed_under_original_topic(
    broker: EmbeddedBroker, admin: AdminClient, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A broker of 5.5.1 answers NO_PERMISSION to VIEW_MESSAGE_BY_ID if its topic is not the one that stores the message.
    # It makes an exception for delayed, timed and half messages, not for retries and dead letters.
    call = admin._client.call

    def refuses_other_topics(address: str, one: Call[bytes]) -> bytes:
        asked = one.request()
        if asked.code == RequestCode.VIEW_MESSAGE_BY_ID and asked.read(ViewMessageRequestHeader).topic == "Origin":
            raise MQBrokerError(
                address, ResponseCode.NO_PERMISSION, "NO_PERMISSION", "The topic does not match the message"
            )
        return call(address, one)

    broker.create_topic("%DLQ%readers", 1)
    sent = producer.send(Message("%DLQ%readers", b"x", properties={"RETRY_TOPIC": "Origin"}))
    monkeypatch.setattr(admin._client, "call", refuses_other_topics)
    assert admin.view_message("Origin", sent.offset_msg_id).body == b"x"


def consumed(broker: EmbeddedBroker, group: str, *topics: str) -> None:
    settings = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}
    with LitePullConsumer(broker.namesrv, consumer_group=group, **settings) as consumer:  # type: ignore[arg-type]
        for topic in topics:
            consumer.subscribe(topic)
        seen = 0
        while seen < 4 * len(topics):
            seen += len(consumer.poll())
        consumer.commit()


@pytest.fixture(scope="module")
def topics(broker: EmbeddedBroker, producer: Producer) -> tuple[str, str]:
    for topic in ("StatsA", "StatsB"):
        broker.create_topic(topic, 1)
        producer.send_batch([Message(topic, b"%d" % number) for number in range(4)])
    consumed(broker, "stats", "StatsA", "StatsB")
    return "StatsA", "StatsB"


def test_consume_stats_of_one_topic_have_no_queue_of_another(admin: AdminClient, topics: tuple[str, str]) -> None:
    admin.create_topic("%RETRY%stats", read_queue_nums=1, write_queue_nums=1)  # as the first failure does
    for topic in topics:
        stats = admin.consume_stats("stats", topic)
        assert {queue.topic: one.consumer_offset for queue, one in stats.items()} == {topic: 4}
    assert {queue.topic for queue in admin.consume_stats("stats")} >= set(topics)


def test_group_without_retry_topic_is_found_by_given_topic(
    broker: EmbeddedBroker, admin: AdminClient, topics: tuple[str, str]
) -> None:
    admin.create_subscription_group("written-by-hand")
    admin.update_consume_offset("written-by-hand", MessageQueue("StatsA", "broker-a", 0), 2)
    [one] = admin.consume_stats("written-by-hand", "StatsA").values()
    assert one.consumer_offset == 2
    with pytest.raises(NoRouteError):
        admin.consume_stats("written-by-hand")


@pytest.mark.parametrize("by_the_broker", [False, True])
def test_reset_without_force_moves_group_only_backwards(by_the_broker: bool) -> None:
    """A broker that moves offsets itself does not look at force: it is asked for those queues alone that go back."""
    queue = MessageQueue("Reset", "broker-a", 0)
    with (
        EmbeddedBroker(settings={"useServerSideResetOffset": by_the_broker}) as broker,
        Producer(broker.namesrv) as producer,
        AdminClient(broker.namesrv) as admin,
    ):
        broker.create_topic("Reset", 1)
        producer.send_batch([Message("Reset", b"%d" % number) for number in range(4)])
        broker.wait_for_messages("Reset", 4)
        admin.create_subscription_group("offline")
        admin.update_consume_offset("offline", queue, 1)
        assert admin.reset_offset_by_time("offline", "Reset", -1, force=False) == {queue: 1}
        assert broker.consumer_offsets("offline", "Reset") == {0: 1}
        assert admin.reset_offset_by_time("offline", "Reset", 0, force=False) == {queue: 0}
        assert admin.reset_offset_by_time("offline", "Reset", -1) == {queue: 4}
        assert broker.consumer_offsets("offline", "Reset") == {0: 4}


def test_deletion_of_topic_removes_its_order_configuration(broker: EmbeddedBroker, admin: AdminClient) -> None:
    broker.create_topic("Ordered", 1)
    admin.put_kv_config("ORDER_TOPIC_CONFIG", "Ordered", "broker-a:1")
    admin.delete_topic("Ordered")
    assert admin.kv_config("ORDER_TOPIC_CONFIG", "Ordered") is None


def test_given_configuration_is_not_modified(admin: AdminClient) -> None:
    config = SubscriptionGroupConfig(retry_queue_nums=2)
    admin.create_subscription_group("configured", config)
    assert config.group_name != "configured"


def test_offline_producer_group_raises(broker: EmbeddedBroker, admin: AdminClient, topics: tuple[str, str]) -> None:
    with pytest.raises(Exception, match=r"producer group|not exist"):
        admin.producer_connection("nobody", "StatsA")


def test_missing_broker_hides_no_message_of_others(caplog: pytest.LogCaptureFixture) -> None:
    """A dead broker stays in the route for up to two minutes; RocketMQ gives what the others have."""
    with EmbeddedBroker() as broker, Producer(broker.namesrv) as producer, AdminClient(broker.namesrv) as admin:
        broker.create_topic("Away", 1)
        sent = producer.send(Message("Away", b"x", keys=["key"]))
        broker.wait_for_messages("Away", 1)
        away = RegisterBrokerRequestHeader(
            broker_name="broker-z", broker_addr="127.0.0.1:1", cluster_name="C", broker_id=0, ha_server_addr=""
        )
        said = TopicConfigAndMappingSerializeWrapper(
            topic_config_table={name: TopicConfig(topic_name=name) for name in ("Away", "Else")},
            data_version=DataVersion(counter=1),
        )
        body = RegisterBrokerBody(topic_config_serialize_wrapper=said).encode()
        admin._client.call(broker.namesrv, Call(lambda: RemotingCommand.request(away, body), accepted))
        assert len(admin.topic_route("Away").broker_datas) == 2
        assert [one.body for one in admin.query_message("Away", "key")] == [b"x"]
        assert admin.view_message("Away", sent.msg_id).body == b"x"
        assert "broker-z" in caplog.text
        for ask in (lambda: admin.query_message("Away", "other"), lambda: admin.view_message("Away", "0" * 32)):
            with pytest.raises(RemotingError):  # it may have the message
                ask()
        missing = list[str]()
        admin.when_missing = lambda name, error: missing.append(name)
        assert admin.query_message("Away", "other") == []
        assert missing == ["broker-z"]
