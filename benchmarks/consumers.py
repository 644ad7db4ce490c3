"""The processor time of reading a message in Python: from a store, with a PullClient, and with consumers.

    .venv/bin/python -m benchmarks.consumers                                      # this checkout
    .venv/bin/python -m benchmarks.consumers --against ../other/.venv/bin/python  # in turn with another one
    .venv/bin/python -m benchmarks.consumers --only lite-pull --sizes 100 --rounds 5

Every figure is microseconds of processor time a message, of the reading process alone, from before the reader is made
until it has the last message. A store or a broker in another process has the messages. With ``--against`` both
interpreters run each reader in turn; the smallest figure of the rounds counts. ``--pull`` is the broker's
maxTransferCountOnMessageInMemory.
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

_TOPIC, _QUEUES = "orders", 4
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


def _lite_pull(name_server: str, count: int, batch: int) -> None:
    from gantrymq import LitePullConsumer

    began, total = time.process_time(), 0
    where = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET", "consumer_group": f"lite{time.time_ns()}"}
    with LitePullConsumer(name_server, pull_batch_size=batch, **where) as consumer:
        consumer.subscribe(_TOPIC)
        while total < count:
            for message in consumer.poll():
                total += _touch(message) > 0
        _tell(began, total)


def _async_lite_pull(name_server: str, count: int, batch: int) -> None:
    from gantrymq import AsyncLitePullConsumer

    async def run() -> None:
        began, total = time.process_time(), 0
        where = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET", "consumer_group": f"lite{time.time_ns()}"}
        async with AsyncLitePullConsumer(name_server, pull_batch_size=batch, **where) as consumer:
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

        where = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET", "consumer_group": f"push{time.time_ns()}"}
        consumer = AsyncPushConsumer(name_server, consume_message_batch_max_size=batch, pull_batch_size=512, **where)
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

    where = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET", "consumer_group": f"push{time.time_ns()}"}
    with PushConsumer(name_server, consume_message_batch_max_size=batch, pull_batch_size=512, **where) as consumer:
        consumer.subscribe(_TOPIC)
        consumer.listen(listener)
        consumer.start()
        done.wait()
        _tell(began, sum(total))


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
    "lite-pull 10": lambda servers, count: _lite_pull(servers, count, 10),
    "lite-pull 512": lambda servers, count: _lite_pull(servers, count, 512),
    "async-lite-pull 10": lambda servers, count: _async_lite_pull(servers, count, 10),
    "async-lite-pull 512": lambda servers, count: _async_lite_pull(servers, count, 512),
    "async-push 1": lambda servers, count: _async_push(servers, count, 1),
    "async-push 512": lambda servers, count: _async_push(servers, count, 512),
    "push 1": lambda servers, count: _push(servers, count, 1),
    "push 512": lambda servers, count: _push(servers, count, 512),
}


def _tell(began_s: float, count: int) -> None:
    print(json.dumps({"us": (time.process_time() - began_s) / count * 1e6}), flush=True)


def _messages(count: int, size: int) -> Iterator[list[object]]:
    from gantrymq import Message

    body = b"x" * size
    for begin in range(0, count, 100):
        yield [Message(_TOPIC, body, tags="TagA", keys=[f"k{(begin + i) % 100}"]) for i in range(100)]


def _serve(count: int, size: int, pull: int) -> None:
    """Run a broker with the messages until the input ends; prints the name server's address."""
    from gantrymq import EmbeddedBroker, Producer

    settings = {"maxTransferCountOnMessageInMemory": pull, "maxTransferBytesOnMessageInMemory": 4 << 20}
    with EmbeddedBroker(settings=settings) as broker:
        broker.create_topic(_TOPIC, queues=_QUEUES)
        with Producer(broker.namesrv, producer_group="filler") as producer:
            for messages in _messages(count, size):
                producer.send_batch(messages)  # type: ignore[arg-type]
        print(broker.namesrv, flush=True)
        sys.stdin.read()


def _fill(store: str, count: int, size: int) -> None:
    from gantrymq import MessageStore

    with MessageStore.open(store) as opened:
        for number, messages in enumerate(_messages(count, size)):
            for message in messages:
                message.queue_id = number % _QUEUES  # type: ignore[attr-defined]
                message.properties["UNIQ_KEY"] = f"7F00000100002A139A55{number:012X}"  # type: ignore[attr-defined]
                opened.put(message)  # type: ignore[arg-type]


def _run(python: str, kind: str, source: str, count: int) -> float:
    command = [python, __file__, "--worker", kind, source, str(count)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    return float(json.loads(output.splitlines()[0])["us"])


def _race(kinds: list[str], pythons: list[str], source: str, options: argparse.Namespace, size: int) -> None:
    for kind in kinds:
        best = {python: min(_run(python, kind, source, options.count) for _ in range(1)) for python in pythons}
        for _ in range(options.rounds - 1):
            for python in pythons:
                best[python] = min(best[python], _run(python, kind, source, options.count))
        figures = "  ".join(f"{best[python]:8.2f}" for python in pythons)
        print(f"{kind:22} {size:6} B  {figures}  us a message", flush=True)


def main() -> int:
    """Run the readers. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="PYTHON")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--sizes", type=lambda text: list(map(int, text.split(","))), default=[100, 1024])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pull", type=int, default=512)
    parser.add_argument("--only", default="", help="the readers whose name contains this text")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        kind, source, count = options.worker
        (_OF_STORE | _OF_BROKER)[kind](source, int(count))
        return 0
    if options.serve:
        _serve(options.count, options.serve, options.pull)
        return 0
    pythons = [sys.executable, *([options.against] if options.against else [])]
    of_store = [kind for kind in _OF_STORE if options.only in kind]
    of_broker = [kind for kind in _OF_BROKER if options.only in kind]
    for size in options.sizes:
        if of_store:
            with tempfile.TemporaryDirectory() as folder:
                store = str(Path(folder) / "store")
                _fill(store, options.count // 10, size)
                _race(of_store, pythons, store, options, size)
        if of_broker:
            serve = ["--serve", str(size), "--count", str(options.count), "--pull", str(options.pull)]
            command = [sys.executable, __file__, *serve]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker:
                assert broker.stdout is not None
                _race(of_broker, pythons, broker.stdout.readline().strip(), options, size)
                broker.communicate("")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
