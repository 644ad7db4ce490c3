"""How clients end that are closed from within, twice, by a signal, at the end of the program, or never."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from client_cases import FIRST, eventually

from gantrymq import (
    AdminClient,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    Producer,
    PullClient,
    PushConsumer,
)
from gantrymq.client.consumer.push.async_push import AsyncPushConsumer
from gantrymq.client.producer.async_producer import AsyncProducer
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.errors import AlreadyStartedError, MQClientError

MESSAGES, ENOUGH = 20, 5


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        running.create_topic("Closing", 1)
        with Producer(running.namesrv) as producer:
            producer.send_batch([Message("Closing", b"%d" % number) for number in range(MESSAGES)])
        yield running


def client_threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("gantrymq-") and "broker" not in one.name}


@pytest.mark.parametrize("way", ["listen", "listen_orderly"])
@pytest.mark.parametrize("kind", ["plain", "coroutine", "awaited by a thread"])
def test_listener_stopped_after_n_messages_commits_them_and_gets_no_more(
    broker: EmbeddedBroker, way: str, kind: str
) -> None:
    group = f"{way}-{kind.replace(' ', '-')}"
    seen, returned = list[int](), threading.Event()

    def plain(messages: Sequence[ReceivedMessage], context: Any) -> None:
        seen.append(messages[0].queue_offset)
        if len(seen) == ENOUGH:
            consumer.close()
            returned.set()

    async def coroutine(messages: Sequence[ReceivedMessage], context: Any) -> None:
        plain(messages, context)

    def returning(messages: Sequence[ReceivedMessage], context: Any) -> Any:
        return coroutine(messages, context)

    listeners: dict[str, Any] = {"plain": plain, "coroutine": coroutine, "awaited by a thread": returning}
    with PushConsumer(broker.namesrv, consumer_group=group, consume_thread_max=1, **FIRST) as consumer:
        consumer.subscribe("Closing")
        getattr(consumer, way)(listeners[kind])
        consumer.start()
        assert returned.wait(60)
    assert (len(seen), broker.consumer_offsets(group, "Closing")) == (ENOUGH, {0: ENOUGH})
    assert not client_threads()


def test_coroutine_listener_awaiting_close_does_not_deadlock(
    broker: EmbeddedBroker,
) -> None:
    """With one call at a time the others wait for the call that closes."""

    async def scenario() -> None:
        seen, closed = list[int](), asyncio.Event()

        async def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            await asyncio.sleep(0)
            seen.append(messages[0].queue_offset)
            if len(seen) == ENOUGH:
                await consumer.close()
                closed.set()

        async with AsyncPushConsumer(
            broker.namesrv, consumer_group="room", consume_thread_max=1, await_termination_ms_when_shutdown=600_000,
            **FIRST,
        ) as consumer:  # fmt: skip
            consumer.subscribe("Closing")
            consumer.listen(listen)
            await consumer.start()
            async with asyncio.timeout(60):
                await closed.wait()
        assert len(seen) == ENOUGH

    asyncio.run(scenario())
    assert broker.consumer_offsets("room", "Closing") == {0: ENOUGH}


@pytest.mark.parametrize("way", ["listen", "listen_orderly"])
@pytest.mark.parametrize("fails", [False, True])
def test_message_of_coroutine_listener_awaiting_close_is_committed_at_return(
    broker: EmbeddedBroker, way: str, fails: bool
) -> None:
    group = f"awaited-{way}-{fails}"

    async def scenario() -> None:
        closed = asyncio.Event()

        async def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
            if messages[0].queue_offset == ENOUGH - 1:
                await consumer.close()
                await consumer.close()  # once more is harmless
                committed.append(broker.consumer_offsets(group, "Closing"))
                closed.set()
                await asyncio.sleep(0.05)
                if fails:
                    raise ValueError("after the close")

        async with AsyncPushConsumer(
            broker.namesrv, consumer_group=group, consume_thread_max=1, await_termination_ms_when_shutdown=60_000,
            **FIRST,
        ) as consumer:  # fmt: skip
            consumer.subscribe("Closing")
            getattr(consumer, way)(listen)
            await consumer.start()
            async with asyncio.timeout(60):
                await closed.wait()

    committed = list[dict[int, int]]()
    asyncio.run(scenario())
    assert committed == [{0: ENOUGH - 1}], "what others finished is committed when the close returns"
    assert broker.consumer_offsets(group, "Closing") == {0: ENOUGH - 1 if fails else ENOUGH}


def test_close_from_listener_waits_for_other_listeners(broker: EmbeddedBroker) -> None:
    working, closed, done = threading.Barrier(3), threading.Event(), list[int]()

    def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
        working.wait(60)
        if messages[0].queue_offset == 0:
            consumer.close()
            closed.set()
        assert closed.wait(60)
        done.append(messages[0].queue_offset)

    with PushConsumer(broker.namesrv, consumer_group="others", consume_thread_max=3, **FIRST) as consumer:
        consumer.subscribe("Closing")
        consumer.listen(listen)
        consumer.start()
        assert closed.wait(60)
    assert (sorted(done), broker.consumer_offsets("others", "Closing")) == ([0, 1, 2], {0: 3})


@pytest.mark.parametrize("client", [PushConsumer, LitePullConsumer])
def test_queue_listener_can_close_its_consumer(broker: EmbeddedBroker, client: Callable[..., Any]) -> None:
    told = threading.Event()

    def changed(*args: object) -> None:
        consumer.close()
        told.set()

    consumer = client(broker.namesrv, consumer_group=f"queues-{client.__name__}", **FIRST)
    consumer.register_message_queue_listener(changed)
    if client is PushConsumer:
        consumer.listen(lambda messages, context: None)
    consumer.subscribe("Closing")
    with suppress(MQClientError):  # where it is closed before it has started
        consumer.start()
    assert told.wait(60)
    consumer.close()
    assert not client_threads()


def test_second_close_waits_for_first() -> None:
    loop, go_on, ended = LoopThread("tester"), threading.Event(), list[str]()

    async def last() -> None:
        await asyncio.to_thread(go_on.wait)
        ended.append("last")

    def close() -> None:
        loop.close(last())
        ended.append("closed")

    threads = [threading.Thread(target=close) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: loop._closed, "the first close")
    assert not ended
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert ended == ["last", "closed", "closed", "closed"]


def test_signal_handler_may_close_client_in_use(broker: EmbeddedBroker) -> None:
    """The handler runs within the call that it interrupts, so nothing there may wait for that call."""
    before = signal.getsignal(signal.SIGUSR1)
    producer = Producer(broker.namesrv)
    signal.signal(signal.SIGUSR1, lambda number, frame: producer.close())
    try:
        send = producer._loop._until_closed

        def struck(call: Any) -> Any:
            signal.raise_signal(signal.SIGUSR1)
            return send(call)

        producer._loop._until_closed = struck  # type: ignore[method-assign]
        with pytest.raises(Exception, match="closed"):
            producer.send(Message("Closing", b"x"))
        producer = Producer(broker.namesrv)
        finish = producer._loop._finish

        def interrupted(last: Any) -> None:
            signal.raise_signal(signal.SIGUSR1)
            finish(last)

        producer._loop._finish = interrupted  # type: ignore[method-assign]
        producer.close()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not client_threads()


def test_close_waits_for_pending_sends(broker: EmbeddedBroker) -> None:
    """Whoever leaves ``with`` right after send_async has sent."""
    with Producer(broker.namesrv, send_msg_timeout_ms=20_000) as producer:
        sent = [producer.send_async(Message("Closing2", b"%d" % number)) for number in range(100)]
    assert {one.result(0).status.name for one in sent} == {"SEND_OK"}


@pytest.mark.parametrize("client", [Producer, PushConsumer, LitePullConsumer])
def test_garbage_collected_client_is_closed_with_warning(broker: EmbeddedBroker, client: Callable[..., Any]) -> None:
    with Producer(broker.namesrv) as producer:  # the broker, in this process, opens the topic's files
        producer.send(Message("Closing2", b"x"))
    descriptors = len(os.listdir("/proc/self/fd"))

    def use_and_drop() -> None:
        if client is Producer:
            Producer(broker.namesrv).send(Message("Closing2", b"x"))
            return
        consumer = client(broker.namesrv, consumer_group="dropped", **FIRST)
        consumer.subscribe("Closing")
        if client is PushConsumer:
            consumer.listen(lambda messages, context: None)
        consumer.start()

    with pytest.warns(ResourceWarning, match=f"{client.__name__} was dropped without close"):
        use_and_drop()
    eventually(lambda: not client_threads(), "its thread is gone")
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors, "its descriptors are gone")


def test_garbage_collected_async_producer_is_closed_with_warning(broker: EmbeddedBroker) -> None:
    async def use_and_drop() -> None:
        producer = AsyncProducer(broker.namesrv)
        producer.start()
        await producer.send(Message("Closing2", b"x"))

    async def scenario() -> None:
        with pytest.warns(ResourceWarning, match="AsyncProducer was dropped without close"):
            await use_and_drop()
        async with asyncio.timeout(60):
            while asyncio.all_tasks() != {asyncio.current_task()}:
                await asyncio.sleep(0.01)

    asyncio.run(scenario())


PROGRAM = """
import atexit, sys
from gantrymq import ConsumeFromWhere, MessageModel, Producer, PushConsumer, LitePullConsumer, Message

producer = Producer(sys.argv[1])
atexit.register(producer.close)
producer.send(Message("Closing2", b"x"))
consumer = PushConsumer(
    sys.argv[1], consumer_group="at-exit", message_model=MessageModel.BROADCASTING, local_offset_store_dir=sys.argv[2],
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
)
atexit.register(consumer.close)
seen = []
consumer.subscribe("Closing")
consumer.listen(lambda messages, context: seen.extend(messages))
consumer.start()
while len(seen) < 20:
    pass
poller = LitePullConsumer(sys.argv[1], consumer_group="at-exit-lite")
poller.start()
atexit.register(poller.close)
"""


def test_clients_close_at_interpreter_exit(broker: EmbeddedBroker, tmp_path: Any) -> None:
    """Where no thread of a pool can be had any more."""
    words = [sys.executable, "-c", textwrap.dedent(PROGRAM), broker.namesrv, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    [offsets] = tmp_path.rglob("offsets.json")
    assert ":20" in offsets.read_text()


def test_with_starts_every_client_and_further_start_is_allowed(broker: EmbeddedBroker) -> None:
    seen = threading.Event()
    consumer = PushConsumer(broker.namesrv, consumer_group="alike", **FIRST)
    consumer.subscribe("Closing")
    consumer.listen(lambda messages, context: seen.set())
    with (
        consumer,
        Producer(broker.namesrv) as producer,
        LitePullConsumer(broker.namesrv, consumer_group="alike2") as two,
    ):
        assert seen.wait(60)
        for client in (consumer, producer, two):
            client.start()
        for client in (consumer, two):
            with pytest.raises(AlreadyStartedError):
                client.start()


def test_push_consumer_without_listener_starts_in_with_block(broker: EmbeddedBroker) -> None:
    seen = threading.Event()
    with PushConsumer(broker.namesrv, consumer_group="alike3", **FIRST) as consumer:
        consumer.subscribe("Closing")
        consumer.listen(lambda messages, context: seen.set())
        consumer.start()
        assert seen.wait(60)


def test_failed_start_by_with_leaves_no_thread() -> None:
    consumer = PushConsumer("127.0.0.1:1", consumer_group="nowhere", connect_timeout_ms=500)
    consumer.subscribe("Closing")
    consumer.listen(lambda messages, context: None)
    with pytest.raises(ConnectionError), consumer:
        raise AssertionError("never")
    assert not client_threads()


@pytest.mark.parametrize("client", [AdminClient, PullClient])
def test_garbage_collected_blocking_client_leaves_no_descriptor(
    broker: EmbeddedBroker, client: Callable[..., Any]
) -> None:
    with Producer(broker.namesrv) as producer:  # the broker, in this process, opens the topic's files
        producer.send(Message("Closing2", b"x"))
    descriptors = len(os.listdir("/proc/self/fd"))

    def use_and_drop() -> None:
        client(broker.namesrv).topics()

    with pytest.warns(ResourceWarning, match="unclosed"):
        use_and_drop()
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors, "its descriptors are gone, the broker's too")


UNCLOSED = """
import sys
from gantrymq import ConsumeFromWhere, Message, Producer, PushConsumer

producer = Producer(sys.argv[1], send_msg_timeout_ms=20_000)
seen = []
consumer = PushConsumer(
    sys.argv[1], consumer_group="unclosed", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    persist_consumer_offset_interval_ms=600_000,
)
consumer.subscribe("Closing")
consumer.listen(lambda messages, context: seen.extend(messages))
consumer.start()
while len(seen) < 20:
    pass
for number in range(100):
    producer.send_async(Message("Unclosed", b"x"))
"""


def test_program_end_without_close_loses_no_message_or_offset(
    broker: EmbeddedBroker,
) -> None:
    words = [sys.executable, "-c", textwrap.dedent(UNCLOSED), broker.namesrv]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0
    assert [line.count("was dropped without close()") for line in done.stderr.splitlines()] == [1, 1]
    assert len(broker.messages("Unclosed")) == 100
    assert broker.consumer_offsets("unclosed", "Closing") == {0: MESSAGES}
