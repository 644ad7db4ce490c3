"""The thread of a plain client: what is under way when it is closed ends, and says why."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from typing import Any

import pytest

from gantrymq import ConsumeFromWhere, EmbeddedBroker, LitePullConsumer, Message, Producer, PushConsumer
from gantrymq.client.consumer.async_lite_pull import AsyncLitePullConsumer
from gantrymq.client.consumer.settings import LitePullConsumerConfig
from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.errors import ConfigError, MQClientError, RemotingConnectError


async def nothing() -> None: ...


def test_closing_loop_cancels_running_calls() -> None:
    loop, begun = LoopThread("tester"), threading.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    call = loop.submit(wait())
    assert begun.wait(60)
    loop.close(nothing())
    with pytest.raises(MQClientError, match="the tester was closed meanwhile"):
        call.result(60)
    with pytest.raises(MQClientError, match="the tester is closed"):
        loop.run(nothing())
    loop.close(nothing())


def test_call_cancelled_before_its_start_never_runs() -> None:
    loop = LoopThread("tester")
    call = loop.submit(asyncio.Event().wait())
    assert call.cancel()
    with pytest.raises(CancelledError):
        call.result(60)
    loop.close(nothing())


@pytest.mark.parametrize(
    "call",
    [
        lambda producer: producer.send(Message("CalledBack", b"x")),
        lambda producer: producer.send_batch([Message("CalledBack", b"x")]),
        lambda producer: producer.send_oneway(Message("CalledBack", b"x")),
        lambda producer: producer.queues("CalledBack"),
        lambda producer: producer.close(),
    ],
    ids=["send", "send_batch", "send_oneway", "queues", "close"],
)
def test_callback_blocking_on_its_own_thread_raises(call: Callable[[Producer], object]) -> None:
    told = Future[str]()

    def call_back(sent: Future[Any]) -> None:
        try:
            call(producer)
        except MQClientError as error:
            told.set_result(str(error))

    with socket.create_server(("127.0.0.1", 0)) as deaf:  # whose end is the end of the send, and no sooner
        producer = Producer(f"127.0.0.1:{deaf.getsockname()[1]}")
        producer.send_async(Message("CalledBack", b"x")).add_done_callback(call_back)
    assert "within the producer's own thread" in told.result(60)
    producer.close()


def test_loop_thread_after_fork_raises_instead_of_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = LoopThread("tester")
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        with pytest.raises(MQClientError, match="the tester was made before a fork"):
            loop.run(asyncio.sleep(0, "done"))
        loop.close(nothing())
    assert loop.run(asyncio.sleep(0, "done")) == "done"
    loop.close(nothing())


class TimeLimitError(Exception):
    """What a signal's handler raises in the midst of a call."""


def test_interrupt_cancels_awaited_call() -> None:
    loop, ended = LoopThread("tester"), threading.Event()

    def strike(number: int, frame: object) -> None:
        raise TimeLimitError

    async def work() -> None:
        try:
            await asyncio.sleep(0.01)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            await asyncio.sleep(60)
        finally:
            ended.set()

    before = signal.signal(signal.SIGUSR1, strike)
    try:
        with pytest.raises(TimeLimitError):
            loop.run(work())
        assert ended.wait(60)
    finally:
        signal.signal(signal.SIGUSR1, before)
        loop.close(nothing())


def raising(*args: object) -> None:
    raise TimeLimitError


@pytest.mark.parametrize("moment", ["begun", "done", "told"])
def test_next_poll_returns_messages_of_interrupted_poll(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """The time limit strikes as the poll is begun, with the messages there, or as it hears of them.

    The first poll commits, so the loop's thread does it. One in the caller's thread: test_fetched.py.
    """
    begin = asyncio.run_coroutine_threadsafe

    def interrupted(work: Any, loop: asyncio.AbstractEventLoop) -> Future[Any]:
        monkeypatch.undo()
        call = begin(work, loop)
        if moment != "begun":
            wait([call])
        if moment != "told":
            raise TimeLimitError  # the caller has no future yet
        monkeypatch.setattr(call, "result", raising)
        return call

    with (
        EmbeddedBroker() as broker,
        Producer(broker.namesrv) as producer,
        LitePullConsumer(
            broker.namesrv, consumer_group="limited",
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer,
    ):  # fmt: skip
        broker.create_topic("Limited", 1)
        producer.send_batch([Message("Limited", b"%d" % number) for number in range(3)])
        consumer.subscribe("Limited")
        [queue] = consumer.assignment()
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
        with pytest.raises(TimeLimitError):
            consumer.poll(60_000)
        consumer.commit()
        assert not consumer.committed(queue)
        assert [message.body for message in consumer.poll(60_000)] == [b"0", b"1", b"2"]
        consumer.commit()
        assert consumer.committed(queue) == 3


def test_submitted_calls_end_when_loop_closes() -> None:
    loop, calls, full = LoopThread("tester"), list[Future[bool]](), threading.Event()

    def begin() -> None:
        while True:
            work = asyncio.Event().wait()
            try:
                calls.append(loop.submit(work))
            except MQClientError:
                return
            if len(calls) > 100:
                full.set()

    threads = [threading.Thread(target=begin, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert full.wait(60)
    loop.close(nothing())
    for thread in threads:
        thread.join()
    for call in calls:
        with pytest.raises(MQClientError):
            call.result(60)


@pytest.mark.parametrize("client", [Producer, PushConsumer, LitePullConsumer])
def test_failed_client_construction_leaves_no_thread(client: Callable[..., object]) -> None:
    before = set(threading.enumerate())
    settings = {"tls.enable": "true", "tls.client.certPath": "nowhere.pem"}
    group = "producer_group" if client is Producer else "consumer_group"
    with pytest.raises(ConfigError, match="nowhere"):
        client("127.0.0.1:1", tls=settings, **{group: "g"})
    assert set(threading.enumerate()) <= before


def test_failed_join_of_group_leaves_no_task() -> None:
    async def scenario() -> None:
        config = LitePullConsumerConfig("127.0.0.1:1", consumer_group="g", connect_timeout_ms=1000)
        consumer = AsyncLitePullConsumer(config)
        await consumer.subscribe("T")
        with pytest.raises(RemotingConnectError):
            async with consumer:
                pass
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_running_member_entered_again_raises_and_keeps_running() -> None:
    async def scenario(name_servers: str) -> None:
        async with AsyncLitePullConsumer(LitePullConsumerConfig(name_servers, consumer_group="awaited")) as consumer:
            with pytest.raises(MQClientError, match="maybe started once"):
                async with consumer:
                    pass
            assert await consumer.poll(0) == []
        with pytest.raises(MQClientError, match="not running"):
            await consumer.poll(0)

    with EmbeddedBroker() as broker:
        with LitePullConsumer(broker.namesrv, consumer_group="plain") as consumer:
            with pytest.raises(MQClientError, match="maybe started once"), consumer:
                pass
            assert consumer.poll(0) == []
        with pytest.raises(MQClientError, match="the lite-pull-consumer is closed"):
            consumer.poll(0)
        asyncio.run(scenario(broker.namesrv))


def test_poll_of_closed_consumer_raises() -> None:
    with EmbeddedBroker() as broker, LitePullConsumer(broker.namesrv, consumer_group="closed") as consumer:
        broker.create_topic("Silent", 1)
        consumer.subscribe("Silent")
        told: list[BaseException] = []
        begun = threading.Event()

        def poll() -> None:
            begun.set()
            try:
                consumer.poll(600_000)
            except MQClientError as error:
                told.append(error)

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        assert begun.wait(60)
        consumer.close()
        thread.join(60)
        assert not thread.is_alive()
        assert [str(error).startswith("the lite-pull-consumer") for error in told] == [True]
