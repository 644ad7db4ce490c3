"""Hooks of producers and consumers, and the traces that are made with them; Java's decoder: tests/interop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import pytest
from client_cases import FIRST, eventually

from gantrymq import (
    AdminClient,
    AsyncProducer,
    AsyncPushConsumer,
    AsyncSimpleConsumer,
    ConfigError,
    ConsumeMessageContext,
    ConsumeReturnType,
    EmbeddedBroker,
    EndTransactionContext,
    LitePullConsumer,
    LocalTransactionState,
    Message,
    MessageType,
    MQClientError,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendMessageContext,
    SendResult,
    SimpleConsumer,
    TraceRecord,
    TraceType,
    TransactionProducer,
    decode_traces,
)
from gantrymq.client import trace
from gantrymq.client.trace import TraceDispatcher

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
COMMIT, UNKNOW = LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.UNKNOW


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"recallMessageEnable": True, "traceTopicEnable": True}) as made:
        yield made


class Seen:
    """Every kind of hook: it notes its contexts."""

    def __init__(self) -> None:
        self.before: list[Any] = []
        self.sent: list[SendMessageContext] = []
        self.ended: list[EndTransactionContext] = []
        self.consumed: list[ConsumeMessageContext] = []

    def send_message_before(self, context: SendMessageContext) -> None:
        self.before.append(context)
        for message in context.messages:
            message.properties["traceparent"] = "00-1"

    def send_message_after(self, context: SendMessageContext) -> None:
        self.sent.append(context)

    def end_transaction(self, context: EndTransactionContext) -> None:
        self.ended.append(context)

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        self.before.append(context)
        context.values["mine"] = 1

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        assert context.values["mine"] == 1
        self.consumed.append(context)


class Broken(Seen):
    """A hook that raises whenever it can."""

    def send_message_before(self, context: SendMessageContext) -> None:
        raise ZeroDivisionError

    send_message_after = consume_message_before = consume_message_after = send_message_before  # type: ignore[assignment]


def records(broker: EmbeddedBroker, topic: str = TRACE_TOPIC, **wanted: object) -> list[TraceRecord]:
    """The trace records that are stored and whose fields are as ``wanted``."""
    found = []
    for message in broker.messages(topic):
        some, unread = decode_traces(message.body.decode())
        assert unread == []
        found += [one for one in some if all(getattr(one, name) == value for name, value in wanted.items())]
    return found


# Hooks


def test_hook_sees_sends_and_adds_properties(broker: EmbeddedBroker) -> None:
    seen, mine = Seen(), Message("Hooked", b"one", properties={"a": "b"})
    with Producer(broker.namesrv, producer_group="H", hooks=[Broken(), seen]) as producer:
        sent = producer.send(mine)
        producer.send_async(Message("Hooked", b"two", delay_ms=1)).result()
        producer.send_batch([Message("Hooked", b"three"), Message("Hooked", b"four")])
        producer.send_oneway(Message("Hooked", b"five"))
        with pytest.raises(MQClientError):
            producer.send(Message("Hooked", b"lost"), lambda queues: None)  # type: ignore[arg-type,return-value]
        with pytest.raises(MQClientError):
            producer.send_async(Message("Hooked", b"odd"), 5)  # type: ignore[arg-type]
        with pytest.raises(MQClientError):
            producer.send(Message("Hooked", b"long", properties={"x": "y" * 40_000}))
        with pytest.raises(MQClientError):
            producer.send(Message("Hooked", b""))  # no hook sees what is no message
        broker.wait_for_messages("Hooked", 5)
    assert mine.properties == {"a": "b"}
    assert [[one.body for one in context.messages] for context in seen.sent] == [
        [b"one"], [b"two"], [b"three", b"four"], [b"five"], [b"lost"], [b"odd"], [b"long"],
    ]  # fmt: skip
    first, *_, oneway, lost, odd, too_long = seen.sent
    assert (first.result, first.error, first.queue) == (sent, None, sent.queue)
    assert (first.broker_address, first.producer_group) == (broker.address, "H")
    assert seen.sent[1].message_type is MessageType.DELAY
    assert (oneway.result, oneway.error, oneway.broker_address) == (None, None, broker.address)
    assert all(isinstance(one.error, MQClientError) for one in (lost, odd, too_long))
    assert {one.properties.get("traceparent") for one in broker.messages("Hooked")} == {"00-1"}


@pytest.mark.parametrize("replacement", [None, [], [Message("Other", b"other")] * 2])
def test_hook_cannot_replace_sent_message(broker: EmbeddedBroker, replacement: Any) -> None:
    class Replaces:
        def send_message_before(self, context: SendMessageContext) -> None:
            context.messages[0].properties["seen"] = "yes"
            context.messages = replacement

    topic = f"Replaced{'None' if replacement is None else len(replacement)}"
    with Producer(broker.namesrv, hooks=[Replaces()], trace="TheTrace") as producer:
        producer.send(Message(topic, b"one"))
        producer.send_batch([Message(topic, b"two"), Message(topic, b"three")])
        broker.wait_for_messages(topic, 3)
    seen = {message.body: message.properties.get("seen") for message in broker.messages(topic)}
    assert seen == {b"one": "yes", b"two": "yes", b"three": None}


def test_hook_sees_decisions_about_transactions(broker: EmbeddedBroker) -> None:
    seen = Seen()
    with TransactionProducer(broker.namesrv, lambda message: COMMIT, producer_group="HT", hooks=[seen]) as producer:
        producer.send_in_transaction(Message("HookedHalf", b"later", tags="t"), lambda message, key: UNKNOW)
        broker.clock.advance(60_000)
        broker.wait_for_messages("HookedHalf", 1)
    assert seen.sent[0].message_type is MessageType.TRANSACTION_HALF
    assert [(one.state, one.is_from_check, one.message.topic) for one in seen.ended] == [
        (UNKNOW, False, "HookedHalf"), (COMMIT, True, "HookedHalf"),
    ]  # fmt: skip
    assert len({(one.msg_id, one.transaction_id, one.broker_address) for one in seen.ended}) == 1


CURRENT: ContextVar[str] = ContextVar("CURRENT", default="")


class Sets(Seen):
    """A hook that sets a context variable during the listener's call."""

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        super().consume_message_before(context)
        CURRENT.set(context.messages[0].msg_id)


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["threads", "coroutine", "an awaitable"])
async def test_hook_runs_before_and_after_listener_call(broker: EmbeddedBroker, kind: str) -> None:
    seen, told, tries = Sets(), list[bool](), list[str]()

    def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
        told.append(CURRENT.get() == messages[0].msg_id)
        tries.append(messages[0].msg_id)
        if len(tries) == 1:
            raise ZeroDivisionError

    async def awaited(messages: Sequence[ReceivedMessage], context: Any) -> None:
        await asyncio.sleep(0)
        listen(messages, context)

    def gives(messages: Sequence[ReceivedMessage], context: Any) -> Any:
        return awaited(messages, context)

    topic = f"Around-{kind.replace(' ', '-')}"
    listener: Any = {"threads": listen, "coroutine": awaited, "an awaitable": gives}[kind]
    async with (
        AsyncProducer(broker.namesrv) as producer,
        AsyncPushConsumer(
            broker.namesrv, consumer_group=topic, hooks=[Broken(), seen], consume_thread_max=1,
            suspend_current_queue_time_ms=10, **FIRST,
        ) as consumer,
    ):  # fmt: skip
        await producer.send(Message(topic, b"x"), lambda queues: queues[0])
        await producer.send(Message(topic, b"y"), lambda queues: queues[0])
        consumer.subscribe(topic)
        consumer.listen_orderly(listener)
        await consumer.start()
        await asyncio.to_thread(eventually, lambda: len(seen.consumed) == 3, "three calls")
    assert [one.return_type for one in seen.consumed] == [ConsumeReturnType.EXCEPTION] + [ConsumeReturnType.SUCCESS] * 2
    assert isinstance(seen.consumed[0].error, ZeroDivisionError)
    assert [one.is_success for one in seen.consumed] == [False, True, True]
    assert {(one.queue.topic, one.consumer_group) for one in seen.consumed} == {(topic, topic)}
    assert told == [True] * 3


def test_hook_sees_receives_and_iterated_messages(broker: EmbeddedBroker) -> None:
    """In the caller's thread, where a context variable holds after the call."""
    seen, traced = Sets(), "Received"
    with Producer(broker.namesrv) as producer:
        ids = [
            producer.send(Message(traced, b"%d" % one, keys=["k"]), lambda queues: queues[0]).msg_id for one in range(4)
        ]
    broker.wait_for_messages(traced, 4)
    with SimpleConsumer(broker.namesrv, consumer_group="HS", hooks=[Broken(), seen], trace=True, **FIRST) as consumer:
        consumer.subscribe(traced)
        assert [one.msg_id for one in consumer.receive(2, timeout_ms=10_000)] == ids[:2]
        assert CURRENT.get() == ids[0]
        third = next(iter(consumer))
        assert CURRENT.get() == third.msg_id == ids[2]
        assert len(seen.consumed) == 2  # none for the fourth message, which the iteration did not yield
        assert [one.msg_id for one in consumer.receive(timeout_ms=0)] == ids[3:]
        assert len(seen.consumed) == 3
    assert [[one.msg_id for one in context.messages] for context in seen.consumed] == [ids[:2], [ids[2]], ids[3:]]
    first = seen.consumed[0]
    assert (first.queue.topic, first.queue.queue_id, first.consumer_group, first.is_success) == (traced, 0, "HS", True)
    by_kind = {(one.msg_id, one.type): one for one in records(broker, group="HS")}
    kinds = (TraceType.SUB_BEFORE, TraceType.SUB_AFTER)
    assert by_kind.keys() == {(msg_id, kind) for msg_id in ids for kind in kinds}
    before, after = (by_kind[ids[2], kind] for kind in kinds)
    assert (before.request_id, before.keys, after.is_success) == (after.request_id, "k", True)


@pytest.mark.asyncio
async def test_hook_sees_receives_of_task(broker: EmbeddedBroker) -> None:
    seen, topic = Seen(), "ReceivedByTask"
    async with (
        AsyncProducer(broker.namesrv) as producer,
        AsyncSimpleConsumer(broker.namesrv, consumer_group="HA", hooks=[seen], namespace="ns", **FIRST) as consumer,
    ):
        await producer.send(Message("ns%" + topic, b"x"))
        await producer.send(Message("ns%" + topic, b"y"))
        await consumer.subscribe(topic)
        received = [*await consumer.receive(1, timeout_ms=10_000)]
        async for message in consumer:
            received.append(message)
            break
    assert [list(context.messages) for context in seen.consumed] == [[one] for one in received]
    assert len(received) == 2
    assert {(one.queue.topic, one.consumer_group) for one in seen.consumed} == {(topic, "ns%HA")}


def test_hook_runs_before_and_after_listener_call_for_popped_messages() -> None:
    seen, ids = Seen(), list[str]()
    with EmbeddedBroker(settings={"defaultMessageRequestMode": "POP", "traceTopicEnable": True}) as broker:
        with Producer(broker.namesrv) as producer:
            ids.append(producer.send(Message("Popped", b"x")).msg_id)
        consumer = PushConsumer(
            broker.namesrv, consumer_group="HP", hooks=[seen], trace=True, client_rebalance=False, **FIRST
        )
        with consumer:
            consumer.subscribe("Popped")
            consumer.listen(lambda messages, context: ids.extend(one.receipt_handle for one in messages))
            consumer.start()
            eventually(lambda: len(seen.consumed) == 1, "a call")
        assert [one.msg_id for one in seen.consumed[0].messages] == ids[:1]
        assert ids[1:] != [""]  # it was popped
        kinds = [one.type for one in records(broker, group="HP", msg_id=ids[0])]
        assert kinds == [TraceType.SUB_BEFORE, TraceType.SUB_AFTER]


@pytest.mark.parametrize("hooks", [Seen, [Seen], [1], "hook", None])
def test_invalid_hook_is_refused(hooks: Any) -> None:
    some = {"consumer_group": "g"}
    for kind, group in ((Producer, {}), (PushConsumer, some), (SimpleConsumer, some)):
        with pytest.raises(ConfigError, match="hooks="):
            kind("127.0.0.1:9876", hooks=hooks, **group)  # type: ignore[operator]


# Traces


def test_sends_are_traced(broker: EmbeddedBroker) -> None:
    with Producer(broker.namesrv, producer_group="TG", trace=True) as producer:
        one = producer.send(Message("Traced", b"one", tags="a", keys=("k1", "k2")))
        batch = producer.send_batch([Message("Traced", b"two", keys=("k2",)), Message("Traced", b"three")])
        late = producer.send(Message("Traced", b"late", delay_ms=3_600_000))
        producer.send_oneway(Message("Traced", b"five"))
        producer.recall("Traced", late.recall_handle or "")
    found = records(broker, group="TG")
    assert [record.type for record in found] == [TraceType.PUB] * 4 + [TraceType.RECALL]
    assert [record.msg_id for record in found] == [one.msg_id, *batch.msg_id.split(","), late.msg_id, late.msg_id]
    first = found[0]
    assert (first.topic, first.tags, first.keys, first.body_size_bytes) == ("Traced", "a", "k1 k2", 3)
    assert (first.store_host, first.region_id, first.is_success) == (broker.address, "DefaultRegion", True)
    assert first.offset_msg_id == one.offset_msg_id
    assert [record.offset_msg_id for record in found[1:3]] == batch.offset_msg_id.split(",")
    assert [record.message_type for record in found] == [0, 0, 0, MessageType.DELAY, 0]
    with AdminClient(broker.namesrv) as admin:  # the way in which RocketMQ's mqadmin looks for a trace
        for key in (one.msg_id, "k1", batch.msg_id.split(",")[1]):
            assert len(admin.query_message(TRACE_TOPIC, key)) == 1


def test_transactions_are_traced_to_given_topic(broker: EmbeddedBroker) -> None:
    with TransactionProducer(
        broker.namesrv, lambda message: COMMIT, producer_group="TT", trace="MyTraces", namespace="ns"
    ) as producer:
        sent = producer.send_in_transaction(Message("TracedHalf", b"later", tags="t"), lambda message, key: UNKNOW)
        broker.clock.advance(60_000)
        broker.wait_for_messages("ns%TracedHalf", 1)
    found = records(broker, "MyTraces")
    assert [(one.type, one.transaction_state, one.is_from_check) for one in found] == [
        (TraceType.PUB, "", False),
        (TraceType.END_TRANSACTION, "UNKNOW", False),
        (TraceType.END_TRANSACTION, "COMMIT_MESSAGE", True),
    ]
    assert {(one.msg_id, one.topic, one.tags, one.group) for one in found} == {(sent.msg_id, "TracedHalf", "t", "TT")}
    assert {one.transaction_id for one in found[1:]} == {sent.transaction_id}
    assert found[0].message_type is MessageType.TRANSACTION_HALF


def test_listener_calls_and_polls_are_traced(broker: EmbeddedBroker) -> None:
    calls: list[str] = []

    def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
        context.delay_level_when_next_consume = -1
        calls.append(messages[0].msg_id)
        if messages[0].body == b"bad":
            raise ZeroDivisionError

    with Producer(broker.namesrv) as producer:
        good = producer.send(Message("TracedIn", b"good", keys=("k",))).msg_id
        bad = producer.send(Message("TracedIn", b"bad")).msg_id
    with PushConsumer(broker.namesrv, consumer_group="TC", trace=True, **FIRST) as consumer:
        consumer.subscribe("TracedIn")
        consumer.listen(listen)
        consumer.start()
        eventually(lambda: len(calls) == 2, "both messages")
    with LitePullConsumer(broker.namesrv, consumer_group="TL", trace=True, **FIRST) as lite:
        lite.subscribe("TracedIn")
        eventually(lambda: calls.extend(one.msg_id for one in lite.poll(100)) or len(calls) == 4, "both messages")
    by_kind = {(one.group, one.msg_id, one.type): one for one in records(broker) if one.group in ("TC", "TL")}
    assert set(by_kind) == {
        (group, msg_id, kind)
        for group in ("TC", "TL")
        for msg_id in (good, bad)
        for kind in (TraceType.SUB_BEFORE, TraceType.SUB_AFTER)
    }
    for group in ("TC", "TL"):
        before, after = (by_kind[group, good, kind] for kind in (TraceType.SUB_BEFORE, TraceType.SUB_AFTER))
        assert before.request_id == after.request_id != ""
        assert (before.keys, before.region_id, before.retry_times) == ("k", "DefaultRegion", 0)
        assert (after.is_success, after.context_code, after.keys) == (True, 0, "k")
    failed = by_kind["TC", bad, TraceType.SUB_AFTER]
    assert (failed.is_success, failed.context_code) == (False, ConsumeReturnType.EXCEPTION)


def test_broker_setting_disables_traces() -> None:
    with EmbeddedBroker(settings={"traceOn": False}) as broker:
        with Producer(broker.namesrv, trace=True) as producer:
            producer.send(Message("Untraced", b"x"))
        with LitePullConsumer(broker.namesrv, consumer_group="U", trace=True, **FIRST) as lite:
            lite.subscribe("Untraced")
            assert len(lite.poll(10_000)) == 1
        assert records(broker) == []


@pytest.mark.parametrize("wrong", ["a b", "", 1, None])
def test_invalid_trace_topic_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="traceTopic="):
        Producer("127.0.0.1:9876", trace=wrong)


class Sends:
    """A producer of traces whose sends wait, and fail if they shall."""

    def __init__(self) -> None:
        self.go, self.fails = asyncio.Event(), False
        self.messages: list[Message] = []

    def start(self) -> None: ...

    async def close(self) -> None: ...

    async def send(self, message: Message) -> SendResult:
        await self.go.wait()
        if self.fails:
            raise MQClientError("no broker")
        self.messages.append(message)
        return None  # type: ignore[return-value]


def traced(count: int, **fields: Any) -> Iterable[TraceRecord]:
    return [TraceRecord(TraceType.PUB, msg_id=f"ID{number}", **fields) for number in range(count)]


@pytest.mark.asyncio
async def test_unsendable_traces_are_dropped_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    sends = Sends()
    dispatcher = TraceDispatcher("Traces", lambda: sends)
    dispatcher.append(traced(trace.MAX_RECORDS + 5))
    dispatcher.start()
    assert dispatcher.dropped == 5
    sends.go.set()
    await dispatcher.close()
    assert sum(len(decode_traces(bytes(one.body).decode())[0]) for one in sends.messages) == trace.MAX_RECORDS
    assert [key for one in sends.messages for key in one.keys] == [f"ID{n}" for n in range(trace.MAX_RECORDS)]
    assert "trace records were dropped" in caplog.text
    dispatcher.append(traced(1))
    assert dispatcher.dropped == 6


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_unreferenced_producer_sends_its_traces(broker: EmbeddedBroker) -> None:
    producer: Any = Producer(broker.namesrv, producer_group="TD", trace=True)
    msg_id = producer.send(Message("TracedAtLast", b"x")).msg_id
    del producer
    gc.collect()
    eventually(lambda: [one.msg_id for one in records(broker, group="TD")] == [msg_id], "the record")


@pytest.mark.asyncio
async def test_refused_traces_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    sends = Sends()
    sends.fails = True
    sends.go.set()
    dispatcher = TraceDispatcher("Traces", lambda: sends)
    dispatcher.start()
    dispatcher.append(traced(3))
    await dispatcher.close()
    assert dispatcher.dropped == 3
    assert "trace records were not sent" in caplog.text


@pytest.mark.asyncio
async def test_close_of_traces_has_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_CLOSE_WITHIN_S", 0.05)
    dispatcher = TraceDispatcher("Traces", Sends)
    dispatcher.start()
    dispatcher.append(traced(3))
    await dispatcher.close()
    assert dispatcher.dropped == 3


@pytest.mark.asyncio
async def test_trace_message_stays_below_limits_of_message() -> None:
    sends = Sends()
    sends.go.set()
    dispatcher = TraceDispatcher("Traces", lambda: sends)
    dispatcher.append(traced(60, keys="k" * 10_000))
    dispatcher.append(traced(1, keys=" ".join(f"{number:05}" for number in range(5000))))
    dispatcher.start()
    await dispatcher.close()
    assert len(sends.messages) > 2
    for message in sends.messages:
        assert len(message.body) <= trace.MAX_BODY_BYTES
        assert len(" ".join(message.keys)) < 32_000
    assert sends.messages[-1].keys == ["ID0"]
