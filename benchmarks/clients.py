"""The processor time of a message in Python: read from a store, with a PullClient, with consumers, and sent.

    .venv/bin/python -m benchmarks.clients                                      # this checkout
    .venv/bin/python -m benchmarks.clients --against ../other/.venv/bin/python  # in turn with another one
    .venv/bin/python -m benchmarks.clients --only lite-pull --sizes 100 --rounds 5

Every figure is microseconds of processor time a message, of the client's process alone, from before the client is made
until it has its last message or result. A store or a broker in another process has the messages. With ``--against``
both interpreters run each client in turn; the smallest figure of the rounds counts. A kind without a number has the
default settings. ``benchmarks.race.races.clients`` runs the same beside Kafka's clients.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_TOPIC, _SENT, _QUEUES = "orders", "sent", 4
SENDERS = 64
_GET = 32


def _touch(message) -> int:  # type: ignore[no-untyped-def]
    return len(message.body)


def _store_get(store: str, count: int, touch: Callable[[object], object] | None) -> None:
    from gantrymq import StoreReader

    with StoreReader.open(store, trusts_writer=True) as reader:
        began, total = time.process_time(), 0
        while total < count:
            for queue_id in range(_QUEUES):
                offset = 0
                while total < count:
                    result = reader.get(_TOPIC, queue_id, offset, max_msgs=_GET)
                    if not result.messages:
                        break
                    if touch is not None:
                        for message in result.messages:
                            touch(message)
                    total += len(result.messages)
                    offset = result.next_begin_offset
        _tell(began, total)


def _store_query(store: str, count: int) -> None:
    from gantrymq import StoreReader

    with StoreReader.open(store, trusts_writer=True) as reader:
        reader.query(_TOPIC, "k0", max_num=64)
        began, total = time.process_time(), 0
        while total < count:
            messages = reader.query(_TOPIC, f"k{total // 64 % 100}", max_num=64)
            total += len(messages)
        _tell(began, total)


def _pull_client(name_server: str, count: int) -> None:
    from gantrymq import PullClient, decode_records

    began, total = time.process_time(), 0
    with PullClient(name_server) as client:
        for queue in client.queues(_TOPIC):
            for pulled in client.read(queue, client.min_offset(queue), client.max_offset(queue)):
                for message in decode_records(pulled.records):
                    total += _touch(message) > 0
    _tell(began, total)


def _group(batch: int | None) -> dict[str, Any]:
    """The settings of a new group that reads from the first message on, in pulls of ``batch`` if that is given."""
    size = {} if batch is None else {"pull_batch_size": batch}
    return {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET", "consumer_group": f"group{time.time_ns()}", **size}


def _lite_pull(name_server: str, count: int, batch: int | None) -> None:
    from gantrymq import LitePullConsumer

    began, total = time.process_time(), 0
    with LitePullConsumer(name_server, **_group(batch)) as consumer:
        consumer.subscribe(_TOPIC)
        while total < count:
            for message in consumer.poll():
                total += _touch(message) > 0
        _tell(began, total)


def _async_lite_pull(name_server: str, count: int, batch: int | None) -> None:
    from gantrymq import AsyncLitePullConsumer

    async def run() -> None:
        began, total = time.process_time(), 0
        async with AsyncLitePullConsumer(name_server, **_group(batch)) as consumer:
            await consumer.subscribe(_TOPIC)
            while total < count:
                for message in await consumer.poll():
                    total += _touch(message) > 0
            _tell(began, total)

    asyncio.run(run())


def _async_push(name_server: str, count: int, batch: int) -> None:
    from gantrymq import AsyncPushConsumer

    async def run() -> None:
        began, total, done = time.process_time(), 0, asyncio.Event()

        async def listener(messages, context) -> None:  # type: ignore[no-untyped-def]
            nonlocal total
            for message in messages:
                total += _touch(message) > 0
            if total >= count:
                done.set()

        consumer = AsyncPushConsumer(name_server, consume_message_batch_max_size=batch, **_group(None))
        consumer.subscribe(_TOPIC)
        consumer.listen(listener)
        await consumer.start()
        await done.wait()
        _tell(began, total)
        await consumer.close()

    asyncio.run(run())


def _push(name_server: str, count: int, batch: int) -> None:
    import threading

    from gantrymq import PushConsumer

    began, total, done = time.process_time(), [0] * 64, threading.Event()
    threads: dict[int, int] = {}

    def listener(messages, context) -> None:  # type: ignore[no-untyped-def]
        number = threads.setdefault(threading.get_ident(), len(threads))
        for message in messages:
            total[number] += _touch(message) > 0
        if sum(total) >= count:
            done.set()

    with PushConsumer(name_server, consume_message_batch_max_size=batch, **_group(None)) as consumer:
        consumer.subscribe(_TOPIC)
        consumer.listen(listener)
        consumer.start()
        done.wait()
        _tell(began, sum(total))


def _send_and_wait(name_server: str, count: int, body: bytes, **settings: Any) -> None:
    from gantrymq import AsyncProducer, Message

    async def run() -> None:
        began = time.process_time()
        async with AsyncProducer(name_server, producer_group="senders", **settings) as producer:

            async def send() -> None:
                for _ in range(count // SENDERS):
                    await producer.send(Message(_SENT, body))

            await asyncio.gather(*(send() for _ in range(SENDERS)))
            _tell(began, count // SENDERS * SENDERS)

    asyncio.run(run())


def _send_async(name_server: str, count: int, body: bytes, **settings: Any) -> None:
    from gantrymq import Message, Producer

    began = time.process_time()
    with Producer(name_server, producer_group="senders", **settings) as producer:
        for sent in [producer.send_async(Message(_SENT, body)) for _ in range(count)]:
            sent.result()
        _tell(began, count)


_OF_STORE: dict[str, Callable[[str, int], None]] = {
    "get untouched": lambda store, count: _store_get(store, count, None),
    "get body": lambda store, count: _store_get(store, count, _touch),
    "get body tags keys": lambda store, count: _store_get(
        store,
        count,
        lambda message: (message.body, message.tags, message.keys),  # type: ignore[attr-defined]
    ),
    "query": _store_query,
}
_OF_BROKER: dict[str, Callable[[str, int], None]] = {
    "pull-client": _pull_client,
    "lite-pull": lambda servers, count: _lite_pull(servers, count, None),
    "lite-pull 10": lambda servers, count: _lite_pull(servers, count, 10),
    "lite-pull 512": lambda servers, count: _lite_pull(servers, count, 512),
    "async-lite-pull": lambda servers, count: _async_lite_pull(servers, count, None),
    "async-lite-pull 10": lambda servers, count: _async_lite_pull(servers, count, 10),
    "async-lite-pull 512": lambda servers, count: _async_lite_pull(servers, count, 512),
    "async-push 1": lambda servers, count: _async_push(servers, count, 1),
    "async-push 512": lambda servers, count: _async_push(servers, count, 512),
    "push 1": lambda servers, count: _push(servers, count, 1),
    "push 512": lambda servers, count: _push(servers, count, 512),
}


# Sends messages with a body of a size in bytes.
_OF_PRODUCER: dict[str, Callable[[str, int, bytes], None]] = {
    "async-producer 64": _send_and_wait,
    "async-producer 64, auto-batch": lambda servers, count, body: _send_and_wait(servers, count, body, auto_batch=True),
    "send_async": _send_async,
    "send_async, auto-batch": lambda servers, count, body: _send_async(servers, count, body, auto_batch=True),
}


def _tell(began_s: float, count: int) -> None:
    print(json.dumps({"us": (time.process_time() - began_s) / count * 1e6}), flush=True)


def _messages(count: int, size: int) -> Iterator[list[object]]:
    from gantrymq import Message

    body = b"x" * size
    for begin in range(0, count, 100):
        yield [Message(_TOPIC, body, tags="TagA", keys=[f"k{(begin + i) % 100}"]) for i in range(100)]


def _serve(count: int, size: int) -> None:
    """Run a broker with the messages until the input ends; prints the name server's address as ``namesrv``."""
    from gantrymq import EmbeddedBroker, Producer

    with EmbeddedBroker() as broker:
        for topic in (_TOPIC, _SENT):
            broker.create_topic(topic, queues=_QUEUES)
        with Producer(broker.namesrv, producer_group="filler") as producer:
            for messages in _messages(count, size):
                producer.send_batch(messages)  # type: ignore[arg-type]
        print(json.dumps({"namesrv": broker.namesrv}), flush=True)
        sys.stdin.read()


def _fill(store: str, count: int, size: int) -> None:
    from gantrymq import MessageStore

    with MessageStore.open(store) as opened:
        for number, messages in enumerate(_messages(count, size)):
            for message in messages:
                message.queue_id = number % _QUEUES  # type: ignore[attr-defined]
                message.properties["UNIQ_KEY"] = f"7F00000100002A139A55{number:012X}"  # type: ignore[attr-defined]
                opened.put(message)  # type: ignore[arg-type]


def worker_words(kind: str, source: str, count: int, size_bytes: int, python: str = sys.executable) -> list[str]:
    """The command that runs a client once at a store or at a name server, and prints its figure as ``us``."""
    return [python, __file__, "--worker", kind, source, str(count), str(size_bytes)]


def serve_words(count: int, size_bytes: int) -> list[str]:
    """The command that runs a broker with ``count`` messages; it prints its name server as ``namesrv``."""
    return [sys.executable, __file__, "--serve", str(size_bytes), "--count", str(count)]


def _run(python: str, kind: str, source: str, count: int, size: int) -> float:
    words = worker_words(kind, source, count, size, python)
    output = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout
    return float(json.loads(output.splitlines()[0])["us"])


def _race(kinds: list[str], pythons: list[str], source: str, options: argparse.Namespace, size: int) -> None:
    for kind in kinds:
        best = {python: min(_run(python, kind, source, options.count, size) for _ in range(1)) for python in pythons}
        for _ in range(options.rounds - 1):
            for python in pythons:
                best[python] = min(best[python], _run(python, kind, source, options.count, size))
        figures = "  ".join(f"{best[python]:8.2f}" for python in pythons)
        print(f"{kind:22} {size:6} B  {figures}  us a message", flush=True)


def main() -> int:
    """Run the clients. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="PYTHON")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--sizes", type=lambda text: list(map(int, text.split(","))), default=[100, 1024])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="the clients whose name contains this text")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        kind, source, count, size = options.worker
        if kind in _OF_PRODUCER:
            _OF_PRODUCER[kind](source, int(count), b"x" * int(size))
        else:
            (_OF_STORE | _OF_BROKER)[kind](source, int(count))
        return 0
    if options.serve:
        _serve(options.count, options.serve)
        return 0
    pythons = [sys.executable, *([options.against] if options.against else [])]
    of_store = [kind for kind in _OF_STORE if options.only in kind]
    of_broker = [kind for kind in [*_OF_BROKER, *_OF_PRODUCER] if options.only in kind]
    for size in options.sizes:
        if of_store:
            with tempfile.TemporaryDirectory() as folder:
                store = str(Path(folder) / "store")
                _fill(store, options.count // 10, size)
                _race(of_store, pythons, store, options, size)
        if of_broker:
            with subprocess.Popen(
                serve_words(options.count, size), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as broker:
                assert broker.stdout is not None
                _race(of_broker, pythons, json.loads(broker.stdout.readline())["namesrv"], options, size)
                broker.communicate("")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
