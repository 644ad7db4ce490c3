"""Dead letters that are sent again reach their group, whether it pops or pulls, exactly once and under their topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from cli_cases import Outcome, Run

from gantrymq import AdminClient, ConsumeFromWhere, EmbeddedBroker, Message, Producer, PushConsumer, SimpleConsumer

Admin = Callable[..., Outcome]
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["v1", "v2"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A broker whose retry topics of POP have either form of name."""
    with EmbeddedBroker(settings={"enableRetryTopicV2": request.param}) as running:
        yield running


@pytest.fixture
def admin(gantrymq: Run, broker: EmbeddedBroker) -> Admin:
    return lambda *words: gantrymq("admin", *words, "-n", broker.namesrv)


def popper(broker: EmbeddedBroker, group: str, topic: str, **settings: object) -> SimpleConsumer:
    consumer = SimpleConsumer(broker.namesrv, consumer_group=group, consume_from_where=FIRST, **settings)  # type: ignore[arg-type]
    consumer.subscribe(topic)
    return consumer


def dead(broker: EmbeddedBroker, group: str, topic: str, max_times: int) -> None:
    """A group pops a message until it is a dead letter."""
    broker.create_topic(topic, 1)
    broker.create_group(group, max_retries=max_times)
    with Producer(broker.namesrv) as producer, popper(broker, group, topic, max_reconsume_times=max_times) as consumer:
        producer.send(Message(topic, b"x", tags="t", keys=["k"]))
        deadline = time.monotonic() + 60
        while not letters(broker, group):
            consumer.receive(1, invisible_ms=10_000, timeout_ms=100)
            broker.clock.advance(11_000)
            assert time.monotonic() < deadline
        time.sleep(0.5)  # the consumer acknowledges the message after its letter is stored


def letters(broker: EmbeddedBroker, group: str) -> int:
    with AdminClient(broker.namesrv) as client:
        if f"%DLQ%{group}" not in client.topics():
            return 0
        return sum(one.max_offset for one in client.topic_stats(f"%DLQ%{group}").values())


def received(broker: EmbeddedBroker, group: str, topic: str, for_s: float = 2.0) -> list[tuple[str, bytes]]:
    """What a group pops and acknowledges: at least one message, and what comes in the time after it."""
    came: list[tuple[str, bytes]] = []
    with popper(broker, group, topic) as consumer:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for message in consumer.receive(8, invisible_ms=60_000, timeout_ms=100):
                came.append((message.topic, message.body))
                consumer.ack(message)
                deadline = time.monotonic() + for_s
    return came


@pytest.mark.parametrize("max_times", [1, 2])
def test_resend_to_pop_group_is_received_exactly_once_under_its_topic(
    admin: Admin, broker: EmbeddedBroker, max_times: int
) -> None:
    group, topic = f"pop_group{max_times}", f"pop_topic{max_times}"
    dead(broker, group, topic, max_times)
    before = admin("group", "list", "--json").lines
    [shown] = admin("dlq", "list", group, "--json").lines
    assert (shown["originTopic"], shown["topic"]) == (topic, f"%DLQ%{group}")
    [exported] = admin("dlq", "export", group, "-").lines
    assert exported == shown
    [dry] = admin("dlq", "resend", group, "--all", "--dry-run", "--json").lines
    assert (dry["originTopic"], dry["topic"]) == (topic, f"%RETRY%{group}_{topic}")
    outcome = admin("dlq", "resend", group, "--id", shown["msgId"], "--json")
    assert (outcome.code, [one["status"] for one in outcome.lines]) == (0, ["SEND_OK"]), outcome.err
    assert received(broker, group, topic) == [(topic, b"x")]
    assert admin("group", "list", "--json").lines == before  # no group of the retry topic's name


def test_resend_while_pop_consumer_is_connected_is_received(admin: Admin, broker: EmbeddedBroker) -> None:
    dead(broker, "connected", "connectedTopic", 1)
    with popper(broker, "connected", "connectedTopic") as consumer:
        consumer.receive(1, invisible_ms=10_000, timeout_ms=100)
        assert admin("dlq", "resend", "connected", "--all").code == 0
        deadline = time.monotonic() + 30
        while not (came := consumer.receive(1, invisible_ms=10_000, timeout_ms=200)):
            assert time.monotonic() < deadline
        assert (came[0].topic, came[0].body) == ("connectedTopic", b"x")
        consumer.ack(came[0])


def test_resend_of_letter_of_java_broker_keeps_first_topic(admin: Admin, broker: EmbeddedBroker) -> None:
    """RETRY_TOPIC of RocketMQ's brokers names the retry topic, in either version, from which a message was popped."""
    broker.create_topic("of_java", 1)
    with AdminClient(broker.namesrv) as client, Producer(broker.namesrv) as producer:
        client.create_subscription_group("java_group")
        client.create_topic("%DLQ%java_group", read_queue_nums=1, write_queue_nums=1)
        for retry in ("%RETRY%java_group_of_java", "%RETRY%java_group+of_java", "%RETRY%other_of_java"):
            sent = producer.send(Message("%DLQ%java_group", retry.encode(), properties={"RETRY_TOPIC": retry}))
        broker.wait_for_messages("%DLQ%java_group", 3)
        origins = [one["originTopic"] for one in admin("dlq", "list", "java_group", "--json").lines]
        assert origins == ["of_java", "of_java", None]
        first = admin("dlq", "list", "java_group", "--json").lines[0]
        offset_id = client.message_at(sent.queue, first["queueOffset"]).offset_msg_id  # type: ignore[union-attr]
        assert client.view_message("of_java", offset_id).body == b"%RETRY%java_group_of_java"
    outcome = admin("dlq", "resend", "java_group", "--all", "--json")
    assert (outcome.code, "does not say of which topic it was; give --topic" in outcome.err) == (1, True)
    assert [one["status"] for one in outcome.lines] == ["SEND_OK", "SEND_OK", "FAILED"]
    assert [topic for topic, _ in received(broker, "java_group", "of_java")] == ["of_java", "of_java"]


def test_resend_to_pull_group_is_received_exactly_once(admin: Admin, broker: EmbeddedBroker) -> None:
    broker.create_topic("pulled", 1)
    broker.create_group("pullers", max_retries=1)
    came: list[tuple[str, bytes]] = []
    fails = [True]

    def listen(messages: list[Message], context: object) -> None:
        came.extend((one.topic, one.body) for one in messages)
        if fails[0]:
            raise ValueError

    def running() -> PushConsumer:
        consumer = PushConsumer(
            broker.namesrv, consumer_group="pullers", consume_from_where=FIRST, max_reconsume_times=1
        )
        consumer.subscribe("pulled")
        consumer.listen(listen)  # type: ignore[arg-type]
        return consumer

    with Producer(broker.namesrv) as producer, running() as consumer:
        consumer.start()
        producer.send(Message("pulled", b"x"))
        deadline = time.monotonic() + 30
        while not letters(broker, "pullers"):
            assert time.monotonic() < deadline
            broker.clock.advance(1_000)  # the message comes again after ten seconds
            time.sleep(0.05)
        [online] = admin("dlq", "resend", "pullers", "--all", "--dry-run", "--json").lines
    [offline] = admin("dlq", "resend", "pullers", "--all", "--json").lines
    assert online["topic"] == offline["topic"] == "%RETRY%pullers"
    fails[0], came[:] = False, []
    with running() as consumer:
        consumer.start()
        while not came:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)
    assert came == [("pulled", b"x")]


def test_resend_to_offline_group_with_pop_mode_goes_to_pop_retry_topic(admin: Admin, broker: EmbeddedBroker) -> None:
    broker.create_topic("moded", 1)
    with AdminClient(broker.namesrv) as client, Producer(broker.namesrv) as producer:
        client.create_subscription_group("moded_group")
        client.create_topic("%DLQ%moded_group", read_queue_nums=1, write_queue_nums=1)
        producer.send(Message("%DLQ%moded_group", b"x", properties={"RETRY_TOPIC": "moded"}))
        broker.wait_for_messages("%DLQ%moded_group", 1)
        for mode, wanted in (("PULL", "%RETRY%moded_group"), ("POP", "%RETRY%moded_group_moded")):
            client.set_message_request_mode("moded", "moded_group", mode, broker=broker.address)
            [dry] = admin("dlq", "resend", "moded_group", "--all", "--dry-run", "--json").lines
            assert dry["topic"] == wanted


def test_resend_reaching_other_group_is_refused(admin: Admin, broker: EmbeddedBroker) -> None:
    """%RETRY%amb_one_two is the retry topic of group amb for one_two, and of group amb_one for two."""
    for topic in ("two", "one_two"):
        broker.create_topic(topic, 1)
    broker.create_group("amb")
    dead(broker, "amb_one", "two", 1)
    outcome = admin("dlq", "resend", "amb_one", "--all", "--json")
    assert outcome.code == 1
    assert "is also what group amb reads for topic one_two" in outcome.err
    assert [one["status"] for one in outcome.lines] == ["FAILED"]


def test_message_resend_of_dead_letters_names_dlq_command(admin: Admin) -> None:
    outcome = admin("message", "resend", "%DLQ%some", "0" * 32)
    assert (outcome.code, "`gantrymq admin dlq resend some --id ID`" in outcome.err) == (2, True)


def test_resend_at_broker_without_pop_of_retries_is_refused(gantrymq: Run) -> None:
    settings = {"enableRetryTopicV2": True, "retrieveMessageFromPopRetryTopicV1": False}
    with EmbeddedBroker(settings=settings) as broker:
        dead(broker, "strict", "strictTopic", 1)
        outcome = gantrymq("admin", "dlq", "resend", "strict", "--all", "-n", broker.namesrv)
        assert outcome.code == 1
        assert "broker config set -b broker-a retrieveMessageFromPopRetryTopicV1=true` changes that" in outcome.err
        words = ("broker", "config", "set", "-b", "broker-a", "retrieveMessageFromPopRetryTopicV1=true")
        assert gantrymq("admin", *words, "-n", broker.namesrv).code == 0
        assert gantrymq("admin", "dlq", "resend", "strict", "--all", "-n", broker.namesrv).code == 0
        assert received(broker, "strict", "strictTopic") == [("strictTopic", b"x")]


def test_progress_lists_no_group_for_pop_retry_topic_of_deleted_group(admin: Admin, broker: EmbeddedBroker) -> None:
    broker.create_topic("left_topic", 1)
    with AdminClient(broker.namesrv) as client:
        for retry in ("%RETRY%left", "%RETRY%left_left_topic", "%RETRY%left_other"):
            client.create_topic(retry, read_queue_nums=1, write_queue_nums=1)
    listed = [one["group"] for one in admin("group", "progress", "--json").lines]
    assert [one for one in listed if one.startswith("left")] == ["left", "left_other"]
