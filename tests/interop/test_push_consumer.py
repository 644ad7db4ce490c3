"""Our push consumer in groups at the real broker: alone, with others of ours, and with the real consumer."""

import asyncio
import hashlib
import json
import random
import subprocess
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gantrymq import (
    AdminClient,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    Message,
    MessageModel,
    Producer,
    PullClient,
    PushConsumer,
)
from gantrymq.client.consumer.allocation import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
)
from gantrymq.client.consumer.push.async_push import AsyncPushConsumer
from gantrymq.client.consumer.settings import PushConsumerConfig
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.requests.send_result import SendStatus
from gantrymq.client.settings import ClientConfig
from gantrymq.errors import MQBrokerError, MQClientError
from gantrymq.model.message_queue import MessageQueue

from .java import java_words, run_java
from .java_cluster import JavaCluster, await_dispatch

FIRST = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}


class Inbox:
    """A listener that keeps what it gets; ``answer`` says what it returns."""

    def __init__(
        self, answer: Callable[[Sequence[ReceivedMessage], Any], Any] = lambda messages, context: None
    ) -> None:
        self.messages: list[ReceivedMessage] = []
        self.at: list[float] = []
        self.times: list[int] = []
        self._answer, self._lock = answer, threading.Lock()

    def __call__(self, messages: Sequence[ReceivedMessage], context: Any) -> Any:
        with self._lock:
            self.messages += messages
            self.at += [time.monotonic()] * len(messages)
            self.times += [message.reconsume_times for message in messages]
        return self._answer(messages, context)

    @property
    def bodies(self) -> list[str]:
        with self._lock:
            return [message.body.decode() for message in self.messages]


def eventually(ask: Callable[[], Any], what: str | Callable[[], str], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := ask():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"it did not come within {seconds} s: {what() if callable(what) else what}")


@contextmanager
def consumer(cluster: JavaCluster, group: str, topic: str, inbox: Inbox, **settings: Any) -> Iterator[PushConsumer]:
    orderly = settings.pop("orderly", False)
    expression = settings.pop("expression", "*")
    with PushConsumer(cluster.namesrv, consumer_group=group, **(FIRST | settings)) as made:
        made.subscribe(topic, expression)
        (made.listen_orderly if orderly else made.listen)(inbox)
        made.start()
        yield made


class Sender(Producer):
    """A producer that says where its name server is."""

    namesrv = ""


@pytest.fixture(scope="module")
def producer(cluster: JavaCluster) -> Iterator[Sender]:
    with Sender(cluster.namesrv, send_msg_timeout_ms=20_000) as made:
        made.namesrv = cluster.namesrv
        yield made


def send(producer: Sender, topic: str, count: int, **more: Any) -> list[str]:
    """Messages to all four queues in turn; their bodies differ from those of any other call."""
    bodies = [f"{topic} {time.monotonic_ns()} {number}" for number in range(count)]
    results = [
        producer.send(Message(topic, body.encode(), **more), lambda queues, at=number: queues[at % 4])
        for number, body in enumerate(bodies)
    ]
    assert {one.status for one in results} == {SendStatus.SEND_OK}
    if "delay_level" not in more:
        await_dispatch(producer.namesrv, results)
    return bodies


def test_each_sent_message_is_delivered_once(cluster: JavaCluster, producer: Sender) -> None:
    bodies = send(producer, "PushAll", 200, tags="A", keys=("k1", "k2"))
    inbox = Inbox()
    with consumer(cluster, "push-all", "PushAll", inbox, consume_message_batch_max_size=8):
        eventually(lambda: len(inbox.messages) >= 200, "200 messages")
        sent = producer.send(Message("PushAll", b"x" * 5000, tags="A"))  # compressed on its way
        eventually(lambda: len(inbox.messages) >= 201, "one more, by the long poll")
    assert sorted(inbox.bodies) == sorted([*bodies, "x" * 5000])
    last = inbox.messages[-1]
    assert (last.msg_id, last.offset_msg_id) == (sent.msg_id, sent.offset_msg_id)
    assert (last.broker_name, last.queue_offset, last.reconsume_times) == ("broker-a", sent.queue_offset, 0)
    assert (inbox.messages[0].tags, inbox.messages[0].keys, inbox.messages[0].topic) == ("A", ["k1", "k2"], "PushAll")


def test_tag_filter_is_repeated_at_consumer(cluster: JavaCluster, producer: Sender) -> None:
    """``Aa`` and ``BB`` have one hash in Java: the broker gives both, the consumer only what was wanted."""
    for tag in ("Aa", "BB", "C"):
        send(producer, "PushTags", 4, tags=tag)
    inbox = Inbox()
    with consumer(cluster, "push-tags", "PushTags", inbox, expression="BB || none") as one:
        eventually(lambda: len(inbox.messages) >= 4, "the messages with the tag")
        eventually(lambda: sum(one.offsets().values()) == 12, "offsets behind what was not wanted")
    assert [message.tags for message in inbox.messages] == ["BB"] * 4


def test_two_members_share_queues_and_one_leaves(cluster: JavaCluster, producer: Sender) -> None:
    send(producer, "PushShared", 4)
    first, second = Inbox(), Inbox()
    told: list[frozenset[str]] = []
    with ExitStack() as leaving:
        one = leaving.enter_context(consumer(cluster, "push-shared", "PushShared", first))
        one.register_message_queue_listener(lambda topic, queues, mine: told.append(frozenset(map(str, mine))))
        assert shares(one, "PushShared") == {0, 1, 2, 3}
        eventually(lambda: len(first.messages) == 4, "all messages to the first")
        with consumer(cluster, "push-shared", "PushShared", second) as two:
            eventually(lambda: len(shares(one, "PushShared")) == 2 == len(shares(two, "PushShared")), "two halves")
            assert shares(one, "PushShared") | shares(two, "PushShared") == {0, 1, 2, 3}
            bodies = send(producer, "PushShared", 40)
            eventually(lambda: set(bodies) <= {*first.bodies, *second.bodies}, "all messages to the two")
            halves = [{one.queue_id for one in inbox.messages[-10:]} for inbox in (first, second)]
            assert halves == [shares(one, "PushShared"), shares(two, "PushShared")]
        eventually(lambda: shares(one, "PushShared") == {0, 1, 2, 3}, "all queues back")
        bodies = send(producer, "PushShared", 8)
        eventually(lambda: set(bodies) <= set(first.bodies), "all messages to the one that is left")
        assert frozenset(f"PushShared@broker-a:{number}" for number in range(4)) in told
    assert Counter([*first.bodies, *second.bodies]).most_common(1)[0][1] <= 4  # nothing comes again and again


def shares(one: PushConsumer, topic: str) -> set[int]:
    return {queue.queue_id for queue in one.assignment() if queue.topic == topic}


class JavaConsumer:
    """The real push consumer in a process of its own; ``lines`` is what it printed so far."""

    def __init__(self, cluster: JavaCluster, topic: str, group: str, *options: str) -> None:
        words = java_words("consume", "-Xmx256m")
        words += ["--namesrv", cluster.namesrv, "--topic", topic, "--group", group, *options]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as this)
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self.lines: list[dict[str, Any]] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def __enter__(self) -> "JavaConsumer":
        eventually(lambda: self.of("ready"), "the real consumer")
        return self

    def __exit__(self, *unused: object) -> None:
        """A clean shutdown."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reading.join()
        self._process.stdout.close()
        self._errors.close()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]

    def share(self, topic: str) -> set[int]:
        told = [set(line["queues"]) for line in self.of("assigned") if line["topic"] == topic]
        return told[-1] if told else set()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(json.loads(line))


@pytest.mark.parametrize("orderly", [False, True])
def test_our_consumer_shares_group_with_real_one(cluster: JavaCluster, producer: Sender, orderly: bool) -> None:
    topic, group = f"PushMixed-{orderly}", f"push-mixed-{orderly}"
    send(producer, topic, 4)
    inbox = Inbox()
    with PullClient(ClientConfig(cluster.namesrv)) as client:  # the real one looks only every 30 s
        eventually(lambda: topic in client.topics(), "the topic's route")
    with JavaConsumer(cluster, topic, group, *(["--orderly"] if orderly else [])) as theirs:
        # It says what it is to have, even where it cannot lock that, and nothing more when it has only to give that up.
        eventually(lambda: theirs.share(topic) == {0, 1, 2, 3}, "all queues for the first")
        with consumer(cluster, group, topic, inbox, orderly=orderly) as ours:
            eventually(
                lambda: len(shares(ours, topic)) == 2 and theirs.share(topic) == {0, 1, 2, 3} - shares(ours, topic),
                lambda: f"shares that fit each other: ours {shares(ours, topic)}, theirs {theirs.of('assigned')}",
                seconds=150,
            )
            # Both divide by the same rule: the one whose id sorts first has the first half.
            ids = sorted([ours.client_id, theirs.of("ready")[0]["clientId"]])
            assert shares(ours, topic) == ({0, 1} if ids[0] == ours.client_id else {2, 3})
            bodies = send(producer, topic, 40)
            wanted = {hashlib.sha256(body.encode()).hexdigest(): body for body in bodies}
            eventually(
                lambda: (
                    {wanted.get(line["bodySha256"]) for line in theirs.of("message")} >= set(bodies) - set(inbox.bodies)
                ),
                "all messages to the two",
            )
            assert len(set(bodies) & set(inbox.bodies)) == 20


def test_failed_messages_are_retried_then_dead_letters(cluster: JavaCluster, producer: Sender) -> None:
    """A message that fails comes again under its own topic, and after ``max_reconsume_times`` is a dead letter."""
    bodies = send(producer, "PushRetried", 1, keys=("retried",))

    def later(messages: Sequence[ReceivedMessage], context: Any) -> ConsumeConcurrentlyStatus:
        context.delay_level_when_next_consume = 1
        if messages[0].reconsume_times == 1:
            raise ValueError("a listener that raises")
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    inbox, dead = Inbox(later), Inbox()
    with consumer(cluster, "push-retried", "PushRetried", inbox, max_reconsume_times=2):
        eventually(lambda: len(inbox.messages) == 3, "two retries")
        with consumer(cluster, "push-dead", "%DLQ%push-retried", dead):
            eventually(lambda: dead.messages, "the dead letter")
    assert inbox.times == [0, 1, 2]
    assert {message.topic for message in inbox.messages} == {"PushRetried"}
    assert len({message.msg_id for message in inbox.messages}) == 1
    assert dead.bodies == bodies
    assert dead.messages[0].properties["RETRY_TOPIC"] == "PushRetried"
    assert inbox.at[1] - inbox.at[0] >= 0.9  # level 1


def test_partly_failed_batch_redelivers_only_failed_messages(cluster: JavaCluster, producer: Sender) -> None:
    producer.send_batch([Message("PushPartly", b"%d" % number) for number in range(4)])

    def partly(messages: Sequence[ReceivedMessage], context: Any) -> None:
        context.delay_level_when_next_consume = 1
        if messages[0].reconsume_times == 0:
            context.ack_index = 1

    inbox = Inbox(partly)
    with consumer(cluster, "push-partly", "PushPartly", inbox, consume_message_batch_max_size=4):
        eventually(lambda: len(inbox.messages) == 6, "the half that was not acknowledged")
    assert inbox.bodies[:4] == ["0", "1", "2", "3"]
    assert sorted(inbox.bodies[4:]) == ["2", "3"]


def test_failed_orderly_message_keeps_order(cluster: JavaCluster, producer: Sender) -> None:
    bodies = send(producer, "PushOrderly", 40)
    failed: set[str] = set()

    def once(messages: Sequence[ReceivedMessage], context: Any) -> ConsumeOrderlyStatus:
        body = messages[0].body.decode()
        if body in (bodies[9], bodies[10]) and body not in failed:
            failed.add(body)
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        return ConsumeOrderlyStatus.SUCCESS

    inbox = Inbox(once)
    settings = {"orderly": True, "suspend_current_queue_time_ms": 100}
    with consumer(cluster, "push-orderly", "PushOrderly", inbox, **settings):
        eventually(lambda: len(inbox.messages) == 42, "all messages, two of them twice")
    by_queue = defaultdict(list)
    for message, times in zip(inbox.messages, inbox.times, strict=True):
        by_queue[message.queue_id].append((message.body.decode(), times))
    for number in range(4):
        expected = [(body, 0) for body in bodies[number::4]]
        for body in failed & set(bodies[number::4]):
            expected.insert(expected.index((body, 0)) + 1, (body, 1))
        assert by_queue[number] == expected


def test_orderly_queue_continues_after_dead_letter(cluster: JavaCluster, producer: Sender) -> None:
    for number in range(3):
        producer.send(Message("PushStuck", b"%d" % number), min)

    def stuck(messages: Sequence[ReceivedMessage], context: Any) -> ConsumeOrderlyStatus | None:
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT if messages[0].body == b"1" else None

    inbox, dead = Inbox(stuck), Inbox()
    settings = {"orderly": True, "suspend_current_queue_time_ms": 10, "max_reconsume_times": 2}
    with consumer(cluster, "push-stuck", "PushStuck", inbox, **settings):
        eventually(lambda: inbox.bodies == ["0", "1", "1", "1", "2"], "the message behind the one that fails")
        with consumer(cluster, "push-stuck-dead", "%DLQ%push-stuck", dead):
            eventually(lambda: dead.bodies == ["1"], "the dead letter")
    assert inbox.times == [0, 0, 1, 2, 0]


def test_committed_offsets_survive_restart(cluster: JavaCluster, producer: Sender) -> None:
    bodies = send(producer, "PushAgain", 20)
    first, second = Inbox(), Inbox()
    with consumer(cluster, "push-again", "PushAgain", first):
        eventually(lambda: len(first.messages) == 20, "20 messages")
    more = send(producer, "PushAgain", 5)
    with consumer(cluster, "push-again", "PushAgain", second):
        eventually(lambda: len(second.messages) == 5, "what came meanwhile")
    assert sorted(first.bodies) == sorted(bodies)
    assert sorted(second.bodies) == sorted(more)


def test_broadcasting_consumer_keeps_offsets_in_file(cluster: JavaCluster, producer: Sender, tmp_path: Path) -> None:
    """Each gets all; the file is RocketMQ's: the real consumer goes on where ours stopped, and ours where it did."""
    send(producer, "PushToAll", 8)
    settings = {"message_model": MessageModel.BROADCASTING, "local_offset_store_dir": tmp_path}
    first, second, third = Inbox(), Inbox(), Inbox()
    with (
        consumer(cluster, "push-to-all", "PushToAll", first, instance_name="one", **settings) as one,
        consumer(cluster, "push-to-all", "PushToAll", second, instance_name="two", **settings),
    ):
        eventually(lambda: len(first.messages) == 8 == len(second.messages), "8 messages for both")
        ours = one.client_id
    theirs = ["--broadcast", "--offsets", str(tmp_path), "--instance", "one"]
    # The real consumer may find another address of this machine: its file is where its client id is.
    (tmp_path / f"127.0.0.1@{ours.partition('@')[2]}").mkdir(exist_ok=True)
    with JavaConsumer(cluster, "PushToAll", "push-to-all", *theirs) as java:
        other = java.of("ready")[0]["clientId"]
    same = tmp_path / other / "push-to-all" / "offsets.json"
    if other != ours:
        same.parent.mkdir(parents=True, exist_ok=True)
        same.write_bytes((tmp_path / ours / "push-to-all" / "offsets.json").read_bytes())
    more = send(producer, "PushToAll", 4)
    with JavaConsumer(cluster, "PushToAll", "push-to-all", *theirs) as java:
        eventually(lambda: len(java.of("message")) == 4, "what is new, to the real one")
    if other != ours:
        (tmp_path / ours / "push-to-all" / "offsets.json").write_bytes(same.read_bytes())
    with consumer(cluster, "push-to-all", "PushToAll", third, instance_name="one", **settings):
        last = send(producer, "PushToAll", 4)
        eventually(lambda: len(third.messages) >= 4, "what is new, to ours")
    assert sorted(third.bodies) == sorted(last)
    assert len(more) == 4


def room(name: str) -> str:
    """The machine room that the Java side sees in a broker's name, or a client's id."""
    return name.split("@", maxsplit=1)[0].split("#", maxsplit=1)[0]


STRATEGIES: dict[str, AllocateMessageQueueStrategy] = {
    "averagely": AllocateMessageQueueAveragely(),
    "circle": AllocateMessageQueueAveragelyByCircle(),
    "room": AllocateMessageQueueByMachineRoom(frozenset(("r1", "r2"))),
    "nearby": AllocateMachineRoomNearby(AllocateMessageQueueAveragely(), lambda queue: room(queue.broker_name), room),
    "hash": AllocateMessageQueueConsistentHash(),
    "config": AllocateMessageQueueByConfig((MessageQueue("T", "r1@a", 1), MessageQueue("T", "b", 0))),
}


def test_queue_shares_equal_those_of_real_strategies(rng: random.Random, tmp_path: Path) -> None:
    questions = []
    for _ in range(400):
        brokers = rng.sample(["r1@a", "r1@b", "r2@a", "r3@a", "b", "r1@", "r1@a@b"], rng.randint(1, 4))
        queues = sorted(MessageQueue("T", name, number) for name in brokers for number in range(rng.randint(1, 7)))
        clients = sorted(f"r{rng.randint(1, 4)}#{rng.randint(1, 99)}" for _ in range(rng.randint(1, 9)))
        questions.append((rng.choice(list(STRATEGIES)), rng.choice([*clients, "r1#stranger"]), queues, clients))
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(question(*one)) + "\n" for one in questions))
    answers = run_java("allocate", None, str(file))
    for (name, me, queues, clients), answer in zip(questions, answers, strict=True):
        ours = STRATEGIES[name].allocate(me, queues, clients)
        assert [[one.topic, one.broker_name, one.queue_id] for one in ours] == answer["queues"], (name, me, clients)
        assert STRATEGIES[name].name == answer["name"]


def question(name: str, me: str, queues: list[MessageQueue], clients: list[str]) -> dict[str, Any]:
    configured = STRATEGIES["config"].allocate("", [], [])
    return {
        "strategy": name, "me": me, "clients": clients, "rooms": ["r1", "r2"],
        "queues": [[one.topic, one.broker_name, one.queue_id] for one in queues],
        "configured": [[one.topic, one.broker_name, one.queue_id] for one in configured],
    }  # fmt: skip


def committed(admin: AdminClient, group: str, topic: str) -> list[int]:
    try:
        return [one.consumer_offset for one in admin.consume_stats(group, topic).values()]
    except (MQBrokerError, MQClientError):  # the group is too new
        return []


def test_reset_offset_of_broker_moves_running_consumer(cluster: JavaCluster, producer: Sender) -> None:
    """RESET_CONSUMER_CLIENT_OFFSET, as brokers send it that do not move offsets themselves."""
    bodies = send(producer, "PushReset", 8)
    inbox = Inbox()
    with AdminClient(cluster.namesrv) as admin, consumer(cluster, "push-reset", "PushReset", inbox):
        eventually(lambda: len(inbox.messages) == 8, "all messages")
        # Such a broker moves only what was committed.
        eventually(lambda: committed(admin, "push-reset", "PushReset") == [2] * 4, "offsets at the broker")
        admin.update_broker_config({"useServerSideResetOffset": "false"})
        try:
            admin.reset_offset_by_time("push-reset", "PushReset", 0)
        finally:
            admin.update_broker_config({"useServerSideResetOffset": "true"})
        eventually(lambda: len(inbox.messages) == 16, "all messages again")
    assert sorted(inbox.bodies) == sorted(bodies * 2)


def test_namespace_is_added_and_removed_by_consumer(cluster: JavaCluster) -> None:
    def later(messages: Sequence[ReceivedMessage], context: Any) -> ConsumeConcurrentlyStatus | None:
        context.delay_level_when_next_consume = 1
        return None if messages[0].reconsume_times else ConsumeConcurrentlyStatus.RECONSUME_LATER

    inbox = Inbox(later)
    with (
        Producer(cluster.namesrv, namespace="NS1", send_msg_timeout_ms=20_000) as inside,
        consumer(cluster, "push-spaced", "PushSpaced", inbox, namespace="NS1") as one,
        AdminClient(cluster.namesrv) as admin,
    ):
        inside.send(Message("PushSpaced", b"spaced"))
        eventually(lambda: len(inbox.messages) == 2, "the message, and again")
        assert {queue.topic for queue in one.assignment()} == {"PushSpaced", "%RETRY%push-spaced"}
        assert {"NS1%PushSpaced", "%RETRY%NS1%push-spaced"} <= set(admin.topics())
    assert [(message.topic, times) for message, times in zip(inbox.messages, inbox.times, strict=True)] == [
        ("PushSpaced", 0), ("PushSpaced", 1),
    ]  # fmt: skip


def test_suspended_consumer_pulls_nothing(cluster: JavaCluster, producer: Sender) -> None:
    send(producer, "PushSuspended", 4)
    inbox = Inbox()
    with consumer(cluster, "push-suspended", "PushSuspended", inbox) as one:
        eventually(lambda: len(inbox.messages) == 4, "4 messages")
        one.suspend()
        send(producer, "PushSuspended", 4)  # ends the pulls under way
        eventually(lambda: len(inbox.messages) == 8, "what was being pulled")
        more = send(producer, "PushSuspended", 4)
        time.sleep(0.5)
        assert len(inbox.messages) == 8
        one.resume()
        eventually(lambda: set(more) <= set(inbox.bodies), "the rest")


def test_coroutine_listener_consumes_all_messages(cluster: JavaCluster, producer: Sender) -> None:
    bodies = send(producer, "PushCoroutine", 20)

    async def scenario() -> list[str]:
        got: list[str] = []
        both = asyncio.Event()

        async def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            await asyncio.sleep(0)
            got.extend(message.body.decode() for message in messages)
            if len(got) == 20:
                both.set()

        config = PushConsumerConfig(cluster.namesrv, consumer_group="push-coroutine", **FIRST)
        async with AsyncPushConsumer(config) as one:
            one.subscribe("PushCoroutine")
            one.listen(listen)
            await one.start()
            await asyncio.wait_for(both.wait(), 60)
        return got

    assert sorted(asyncio.run(scenario())) == sorted(bodies)
