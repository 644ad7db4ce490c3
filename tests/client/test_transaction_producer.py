"""Our transactional producers at our own broker, whose clock is moved; at the real one: tests/interop."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from client_cases import eventually

from gantrymq import (
    AsyncTransactionProducer,
    EmbeddedBroker,
    LocalTransactionState,
    Message,
    MQClientError,
    ReceivedMessage,
    TransactionProducer,
    TransactionSendResult,
)

COMMIT, ROLLBACK = LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE
UNKNOW = LocalTransactionState.UNKNOW
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        yield made


class Ledger:
    """The states of local transactions by their id, and what the brokers asked about."""

    def __init__(self) -> None:
        self.states: dict[str, Any] = {}
        self.asked: list[ReceivedMessage] = []

    def execute(self, *states: Any) -> Any:
        """A local transaction that notes its id, and returns the first state; the check finds the last."""

        def run(message: Message, transaction_id: str) -> Any:
            self.states[transaction_id] = states[-1]
            return states[0]

        return run

    def check(self, message: ReceivedMessage) -> Any:
        self.asked.append(message)
        return self.states[message.msg_id]


def test_only_committed_message_is_delivered(broker: EmbeddedBroker) -> None:
    ledger = Ledger()
    with TransactionProducer(broker.namesrv, ledger.check, producer_group="A") as producer:
        message = Message("Commit", b"yes" * 5_000, tags="t", keys=("k",))
        done = producer.send_in_transaction(message, ledger.execute(COMMIT))
        gone = producer.send_in_transaction(Message("Commit", b"no"), ledger.execute(ROLLBACK))
        (stored,) = broker.wait_for_messages("Commit", 1)
    assert isinstance(done, TransactionSendResult)
    assert (done.local_transaction_state, gone.local_transaction_state) == (COMMIT, ROLLBACK)
    assert list(ledger.states) == [done.transaction_id, gone.transaction_id] == [done.msg_id, gone.msg_id]
    assert (stored.body, stored.tags, stored.keys) == (b"yes" * 5_000, "t", ["k"])
    assert stored.queue_id == done.queue.queue_id
    assert ledger.asked == []


def test_unknown_transaction_is_checked_and_committed(broker: EmbeddedBroker) -> None:
    ledger = Ledger()
    with TransactionProducer(broker.namesrv, ledger.check, producer_group="B") as producer:
        for body, state in ((b"yes" * 5_000, COMMIT), (b"no", ROLLBACK)):
            producer.send_in_transaction(Message("Unknown", body, properties={"p": "v"}), ledger.execute(UNKNOW, state))
        broker.clock.advance(MINUTE_MS)
        broker.wait_for_messages("Unknown", 1)
        eventually(lambda: len(ledger.asked) == 2, "the second check")
    assert [message.body for message in ledger.asked] == [b"yes" * 5_000, b"no"]
    assert {(message.topic, message.properties["p"]) for message in ledger.asked} == {("Unknown", "v")}
    assert broker.bodies("Unknown") == [b"yes" * 5_000]


def test_idle_producer_answers_transaction_checks_of_group(broker: EmbeddedBroker) -> None:
    """The one that sent it is gone, as after a crash."""
    ledger = Ledger()
    with TransactionProducer(broker.namesrv, ledger.check, producer_group="C") as producer:
        producer.send_in_transaction(Message("Restart", b"body"), ledger.execute(UNKNOW, COMMIT))
    with TransactionProducer(broker.namesrv, ledger.check, producer_group="C"):
        eventually(lambda: "C" in broker._life.pair.broker.sessions.producers.groups, "the heart-beat")
        broker.clock.advance(MINUTE_MS)
        broker.wait_for_messages("Restart", 1)


@pytest.mark.parametrize("returned", [None, True, "COMMIT_MESSAGE", ZeroDivisionError])
def test_listener_result_other_than_state_is_unknown(broker: EmbeddedBroker, returned: Any) -> None:
    topic, answers = f"Odd-{str(returned)[:4].strip('<')}", [returned, COMMIT]

    def check(message: ReceivedMessage) -> Any:
        answer = answers.pop(0)
        if answer is ZeroDivisionError:
            raise ZeroDivisionError
        return answer

    with TransactionProducer(broker.namesrv, check, producer_group=topic) as producer:
        sent = producer.send_in_transaction(Message(topic, b"body"), lambda message, key: returned)
        assert sent.local_transaction_state is UNKNOW
        broker.clock.advance(MINUTE_MS)
        eventually(lambda: len(answers) == 1, "the first check")
        broker.clock.advance(MINUTE_MS)
        broker.wait_for_messages(topic, 1)


def test_exception_of_local_transaction_is_raised_and_checked_later(broker: EmbeddedBroker) -> None:
    asked = threading.Event()

    def check(message: ReceivedMessage) -> LocalTransactionState:
        asked.set()
        return ROLLBACK

    def fail(message: Message, transaction_id: str) -> LocalTransactionState:
        raise ZeroDivisionError

    with TransactionProducer(broker.namesrv, check, producer_group="D") as producer:
        with pytest.raises(ZeroDivisionError):
            producer.send_in_transaction(Message("Raises", b"body"), fail)
        broker.clock.advance(MINUTE_MS)
        assert asked.wait(60)
    assert broker.bodies("Raises") == []


@pytest.mark.asyncio
async def test_async_producer_accepts_coroutine_and_plain_callbacks(broker: EmbeddedBroker) -> None:
    ledger = Ledger()

    async def check(message: ReceivedMessage) -> LocalTransactionState:
        await asyncio.sleep(0)
        return ledger.check(message)  # type: ignore[no-any-return]

    async def execute(message: Message, transaction_id: str) -> LocalTransactionState:
        await asyncio.sleep(0)
        return ledger.execute(UNKNOW, COMMIT)(message, transaction_id)  # type: ignore[no-any-return]

    async with AsyncTransactionProducer(broker.namesrv, check, producer_group="E") as producer:
        await producer.send_in_transaction(Message("Async", b"later"), execute)
        await producer.send_in_transaction(Message("Async", b"now"), ledger.execute(COMMIT))
        broker.clock.advance(MINUTE_MS)
        await asyncio.to_thread(broker.wait_for_messages, "Async", 2)
    assert [message.body for message in ledger.asked] == [b"later"]


@pytest.mark.asyncio
async def test_namespace_is_in_requests_but_not_in_callbacks(broker: EmbeddedBroker) -> None:
    ledger = Ledger()
    async with AsyncTransactionProducer(
        broker.namesrv, ledger.check, producer_group="F", namespace="ns", topics=["Inside"]
    ) as producer:
        await producer.send_in_transaction(Message("Inside", b"now"), ledger.execute(COMMIT))
        await producer.send_in_transaction(Message("Inside", b"later"), ledger.execute(UNKNOW, COMMIT))
        broker.clock.advance(MINUTE_MS)
        await asyncio.to_thread(broker.wait_for_messages, "ns%Inside", 2)
    assert [message.topic for message in ledger.asked] == ["Inside"]


@pytest.mark.parametrize(
    ("message", "execute", "wrong"),
    [
        (Message("T", b"x", delay_level=1), lambda *_: COMMIT, "do not support delayed delivery"),
        (Message("T", b"x", properties={"TIMER_DELAY_SEC": "1"}), lambda *_: COMMIT, "do not support delayed delivery"),
        (Message("T", b"x"), None, "execute=None is not allowed"),
        (b"x", lambda *_: COMMIT, "a Message is sent, not b'x'"),
    ],
)
def test_message_unfit_for_transaction_is_refused(
    broker: EmbeddedBroker, message: Any, execute: Any, wrong: str
) -> None:
    with (
        TransactionProducer(broker.namesrv, lambda message: COMMIT) as producer,
        pytest.raises(MQClientError, match=wrong),
    ):
        producer.send_in_transaction(message, execute)


def test_transaction_producer_without_check_is_refused(broker: EmbeddedBroker) -> None:
    with pytest.raises(MQClientError, match="check=None is not allowed"):
        TransactionProducer(broker.namesrv, None)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_unreferenced_producer_is_closed(broker: EmbeddedBroker) -> None:
    producer: Any = TransactionProducer(broker.namesrv, lambda message: COMMIT, producer_group="G")
    groups = broker._life.pair.broker.sessions.producers.groups
    eventually(lambda: "G" in groups, "the heart-beat")
    del producer
    gc.collect()
    eventually(lambda: "G" not in groups, "the goodbye")
