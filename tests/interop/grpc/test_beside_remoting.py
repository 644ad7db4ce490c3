"""gRPC at full rate does not keep the remoting clients of the same server from their work.

With ``-s`` the test prints the latencies of the remoting sends, alone and beside gRPC, as docs/perf/grpc.md has them.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

from gantrymq import AdminClient, ConsumeFromWhere, Message, Producer, PushConsumer, ReceivedMessage
from gantrymq.grpc.protocol.codes import Code
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from grpc_client import GrpcClient

from ..java import Line, java_program
from .conftest import SERVERS, require, server_of
from .scene import eventually
from .sdks import built_by_maven
from .servers import Server, await_broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LOADED, EMPTY, REMOTING, GROUP = "loaded", "empty", "remoting", "group"
FILLED, BATCH, BODY = 60_000, 100, b"x" * 512
SDK_CONSUMERS, SDK_SECONDS, WARM_UP_SECONDS = 8, 20, 5
WAITING, CHANNELS = 200, 10
ALONE_SECONDS = 10
POLLING_MS = 20_000


@pytest.mark.parametrize("kind", SERVERS)
def test_remoting_sends_succeed_beside_grpc_at_full_rate(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every send succeeds within its timeout, and every message comes to a push consumer."""
    require("java")
    with server_of(kind, tmp_path_factory) as server, await_broker(server.namesrv) as admin, ExitStack() as stack:
        prepare(server, admin)
        remoting = stack.enter_context(Remoting.at(server))
        alone_ms = remoting.send_until(time.monotonic() + ALONE_SECONDS)
        waiting = stack.enter_context(receives_that_wait(server))
        sdk = stack.enter_context(ThreadPoolExecutor(1)).submit(
            received_by_the_sdk, server, tmp_path_factory.mktemp("sdk")
        )
        beside_ms = remoting.send_until(sdk)
        load = sdk.result()
        print(f"{kind}: alone {figures(alone_ms)}, beside gRPC {figures(beside_ms)}, the SDK {load}")

        eventually(remoting.missing, lambda missing: not missing)
    assert load["failed"] == 0
    assert load["messages"] > 0
    assert {code for codes in waiting for code in codes} == {Code.MESSAGE_NOT_FOUND}


class Remoting:
    """A producer that does not retry, and a push consumer of its messages."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._sent: set[str] = set()
        self._received: set[str] = set()

    @classmethod
    @contextmanager
    def at(cls, server: Server) -> Iterator[Remoting]:
        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        with (
            Producer(server.namesrv, retry_times_when_send_failed=0) as producer,
            PushConsumer(server.namesrv, consumer_group="remoting", consume_from_where=first) as consumer,
        ):
            made = cls(producer)
            consumer.subscribe(REMOTING)
            consumer.listen(made._take)
            consumer.start()
            yield made

    def send_until(self, end: float | Future[Line]) -> list[float]:
        """Send one message after the other until a time, or until a future is done. Returns what each took, in ms."""
        took_ms = []
        while not end.done() if isinstance(end, Future) else time.monotonic() < end:
            key = str(len(self._sent))
            begin = time.perf_counter()
            self._producer.send(Message(REMOTING, BODY, keys=[key]))
            took_ms.append((time.perf_counter() - begin) * 1000)
            self._sent.add(key)
        return took_ms

    def missing(self) -> set[str]:
        return self._sent - self._received

    def _take(self, messages: Sequence[ReceivedMessage], context: object) -> None:
        self._received.update(key for message in messages for key in message.keys)


def prepare(server: Server, admin: AdminClient) -> None:
    """The topics, and messages for the SDK in one of them."""
    for topic in (LOADED, EMPTY, REMOTING):
        admin.create_topic(topic, read_queue_nums=8, write_queue_nums=8)
    admin.create_subscription_group(GROUP, SubscriptionGroupConfig())
    with Producer(server.namesrv, send_msg_timeout_ms=60_000) as producer:
        for _ in range(FILLED // BATCH):
            producer.send_batch([Message(LOADED, BODY) for _ in range(BATCH)])


@contextmanager
def receives_that_wait(server: Server) -> Iterator[list[list[int]]]:
    """Receives of an empty topic, each begun again when it ends. Yields the codes of those that ended, by receiver."""
    codes: list[list[int]] = []
    stop = threading.Event()

    def receive(client: GrpcClient, ended: list[int]) -> None:
        while not stop.is_set():
            try:
                ended.append(client.receive(GROUP, EMPTY, polling_ms=POLLING_MS, timeout_s=2 * POLLING_MS / 1000)[0])
            except grpc.RpcError:
                if not stop.is_set():
                    raise

    with ExitStack() as stack, ThreadPoolExecutor(WAITING) as threads:
        clients = [stack.enter_context(GrpcClient(server.endpoints)) for _ in range(CHANNELS)]
        for client in clients:
            client.be_consumer(GROUP, EMPTY)
        running = []
        for number in range(WAITING):
            codes.append([])
            running.append(threads.submit(receive, clients[number % CHANNELS], codes[-1]))
        try:
            yield codes
        finally:
            stop.set()
            for client in clients:
                client.close()
        for one in running:
            one.result()


def received_by_the_sdk(server: Server, home: Path) -> Line:
    """Receive and acknowledge with the Java SDK as fast as it can, for a while."""
    target = built_by_maven("java")
    words = [java_program(), "-Xmx256m", f"-Duser.home={home}", "-cp", f"{target}/client.jar:{target}/lib/*"]
    words += ["org.gantrymq.interop.grpc.Load", "--endpoints", server.endpoints, "--mode", "receive"]
    words += ["--topic", LOADED, "--group", GROUP, "--batch", "32", "--threads", str(SDK_CONSUMERS)]
    words += ["--warm-up", str(WARM_UP_SECONDS), "--seconds", str(SDK_SECONDS)]
    words += ["--server-pid", str(os.getpid())]  # for a figure that is not used here
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result: Line = json.loads(done.stdout)
    return result


def figures(took_ms: list[float]) -> str:
    ranked = sorted(took_ms)
    part = {name: ranked[int(len(ranked) * share)] for name, share in {"p50": 0.5, "p99": 0.99}.items()}
    return f"{len(ranked)} sends, " + ", ".join(f"{name} {value:.2f} ms" for name, value in part.items())
