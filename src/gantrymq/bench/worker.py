"""Our side of a race, in a process of its own: ``python -m gantrymq.bench.worker WORK '{"option": …}'``.

Each work prints one JSON object. Messages are those of interop's BenchWorkload: one topic with four queues, a tag, a
key and a UNIQ_KEY, one body. Making a message is part of the time, as it is on the other side.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gantrymq.config.properties import read_settings
from gantrymq.model.message import Message
from gantrymq.model.status import GetMessageStatus, PutMessageStatus
from gantrymq.store.message_store import MessageStore
from gantrymq.store.reader import StoreReader

TOPIC = "bench"
QUEUES = 4
_SEED = 1


def _open(store: str, settings: dict[str, Any]) -> MessageStore:
    reading = read_settings({key: str(value) for key, value in settings.items()})
    return MessageStore.open(store, reading.config, given=reading.given)


def _message(number: int, body: bytes) -> Message:
    properties = {"UNIQ_KEY": f"{number * 0x9E3779B97F4A7C15 % (1 << 128):032X}"}
    return Message(TOPIC, body, number % QUEUES, f"tag-{number % 10}", (f"key-{number}",), properties)


def _await_dispatch(store: MessageStore) -> None:
    while store.dispatch_behind_bytes:
        time.sleep(0.001)


def put(store: str, count: int, threads: int, body_size: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Single puts by so many producers, each of which waits for its message before it makes the next one."""
    body = random.Random(_SEED).randbytes(body_size)
    with _open(store, settings) as opened:
        for number in range(QUEUES):
            opened.put(_message(number, body))

        def produce(first: int) -> None:
            for number in range(first, count, threads):
                if opened.put(_message(number, body)).status is not PutMessageStatus.PUT_OK:
                    raise SystemExit("a put was not acknowledged")

        return _timed(opened, count, [threading.Thread(target=produce, args=(first,)) for first in range(threads)])


def put_async(store: str, count: int, coroutines: int, body_size: int, settings: dict[str, Any]) -> dict[str, Any]:
    """As :func:`put`, but the producers are coroutines of one event loop."""
    import asyncio

    body = random.Random(_SEED).randbytes(body_size)
    with _open(store, settings) as opened:
        for number in range(QUEUES):
            opened.put(_message(number, body))

        async def produce(first: int) -> None:
            for number in range(first, count, coroutines):
                if (await opened.put_async(_message(number, body))).status is not PutMessageStatus.PUT_OK:
                    raise SystemExit("a put was not acknowledged")

        async def produce_all() -> None:
            await asyncio.gather(*(produce(first) for first in range(coroutines)))

        return _timed(opened, count, [threading.Thread(target=asyncio.run, args=(produce_all(),))])


def _timed(store: MessageStore, count: int, producers: Sequence[threading.Thread]) -> dict[str, Any]:
    began = time.perf_counter()
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join()
    took = time.perf_counter() - began
    _await_dispatch(store)
    dispatched = time.perf_counter() - began
    return {"putPerSecond": count / took, "dispatchedPerSecond": count / dispatched}


def put_list(store: str, count: int, batch: int, body_size: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Lists of messages, made within the time."""
    body = random.Random(_SEED).randbytes(body_size)
    with _open(store, settings) as opened:
        opened.put_batch([_message(number, body) for number in range(QUEUES)])

        def produce() -> None:
            for first in range(0, count, batch):
                opened.put_batch([_message(number, body) for number in range(first, min(first + batch, count))])

        return _timed(opened, count, [threading.Thread(target=produce)])


def put_table(store: str, count: int, batch: int, body_size: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Arrow tables, made before: who has columns has them already."""
    import pyarrow as pa

    body = random.Random(_SEED).randbytes(body_size)
    tables = []
    for first in range(0, count, batch):
        messages = [_message(number, body) for number in range(first, min(first + batch, count))]
        columns: dict[str, Any] = {name: [getattr(one, name) for one in messages] for name in ("topic", "body", "tags")}
        columns["queue_id"] = pa.array([one.queue_id for one in messages], pa.int32())
        columns["keys"] = [list(one.keys) for one in messages]
        properties = [list(one.properties.items()) for one in messages]
        columns["properties"] = pa.array(properties, pa.map_(pa.string(), pa.string()))
        tables.append(pa.table(columns))
    with _open(store, settings) as opened:
        opened.put_batch(tables[0].slice(0, QUEUES))

        def produce() -> None:
            for table in tables:
                opened.put_batch(table)

        return _timed(opened, count, [threading.Thread(target=produce)])


def get(store: str, batch: int) -> dict[str, Any]:
    """Every message of every queue, decoded."""
    with _open(store, {}) as opened:
        began, messages = time.perf_counter(), 0
        for topic, queue_id, following, _ in opened.queues():
            while (found := opened.get(topic, queue_id, following, max_msgs=batch)).status is GetMessageStatus.FOUND:
                messages += len(found.messages)
                following = found.next_begin_offset
        took = time.perf_counter() - began
    return {"messages": messages, "perSecond": messages / took}


def get_each(store: str, count: int) -> dict[str, Any]:
    """Single messages anywhere in the store, decoded: how long one takes."""
    rng = random.Random(_SEED)
    with _open(store, {}) as opened:
        queues = [queue for queue in opened.queues() if queue[3] > queue[2]]
        wanted = [
            (topic, number, rng.randrange(low, high)) for topic, number, low, high in rng.choices(queues, k=count)
        ]
        opened.get(*wanted[0], max_msgs=1)
        began = time.perf_counter()
        for topic, number, offset in wanted:
            if len(opened.get(topic, number, offset, max_msgs=1).messages) != 1:
                raise SystemExit(f"{topic} {number} {offset} is not found")
        took = time.perf_counter() - began
    return {"getMicros": took / count * 1e6}


def query(store: str, messages: int, count: int) -> dict[str, Any]:
    """Random keys, each with the messages found under it."""
    rng = random.Random(_SEED)
    with _open(store, {}) as opened:
        opened.query(TOPIC, "key-0")
        began = time.perf_counter()
        for _ in range(count):
            key = f"key-{rng.randrange(messages)}"
            if not any(key in found.keys for found in opened.query(TOPIC, key, max_num=32)):
                raise SystemExit(f"{key} is not found")
        took = time.perf_counter() - began
    return {"perSecond": count / took}


def open_reader(store: str) -> dict[str, Any]:
    """Open a store for reading, look at its end, and say what that took of time and memory (without page cache)."""
    began = time.perf_counter()
    with StoreReader.open(Path(store)) as reader:
        end = reader.max_phy_offset
        took_ms = (time.perf_counter() - began) * 1000
        anonymous = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "openMs": took_ms,
        "maxPhyOffset": end,
        "rssAnonMib": int(anonymous[0].split()[1]) / 1024,
        "peakMib": peak_mib,
    }


WORKS: dict[str, Callable[..., dict[str, Any]]] = {
    work.__name__: work for work in (put, put_async, put_list, put_table, get, get_each, query, open_reader)
}


def main() -> None:
    """Do what the arguments say."""
    print(json.dumps(WORKS[sys.argv[1]](**json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
