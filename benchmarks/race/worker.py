"""Our side of a race, in its own process: ``python -m benchmarks.race.worker WORK '{"option": …}'``.

Each work prints one JSON object. Messages are those of interop's BenchWorkload: one topic with four queues, a tag, a
key and a UNIQ_KEY, one body. Making a message is part of the measured time, as on the other side.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

from gantrymq.config.properties import read_settings
from gantrymq.model.message import Message
from gantrymq.model.status import GetMessageStatus, PutMessageStatus
from gantrymq.store.log.batch import PutBatchResult
from gantrymq.store.message_store import MessageStore
from gantrymq.store.reader import StoreReader

TOPIC = "bench"
QUEUES = 4
_SEED = 1
_TABLES_BYTES = 32 << 20


def _open(store: str, settings: dict[str, Any]) -> MessageStore:
    reading = read_settings({key: str(value) for key, value in settings.items()})
    return MessageStore.open(store, reading.config, given=reading.given)


def _message(number: int, body: bytes) -> Message:
    properties = {"UNIQ_KEY": f"{number * 0x9E3779B97F4A7C15 % (1 << 128):032X}"}
    return Message(TOPIC, body, number % QUEUES, f"tag-{number % 10}", (f"key-{number}",), properties)


# Puts the messages with these numbers. Raises if one is not stored.
Producer = Callable[[range], None]


def _timed(store: MessageStore, produce: Producer, count: int, warm_up: int, threads: int) -> dict[str, Any]:
    """Let ``threads`` threads produce ``count`` messages together, after ``warm_up`` messages that are not measured."""
    _all_stored(store, produce, QUEUES + warm_up, 1)
    began = time.perf_counter()
    took = _all_stored(store, produce, count, threads)
    return {"putPerSecond": count / took, "dispatchedPerSecond": count / (time.perf_counter() - began)}


def _all_stored(store: MessageStore, produce: Producer, count: int, threads: int) -> float:
    """Put all messages. Returns the seconds until all were acknowledged, once all are in their queues, or raises."""
    before = _in_queues(store)
    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        for done in [pool.submit(produce, range(first, count, threads)) for first in range(threads)]:
            done.result()
        took = time.perf_counter() - began
    while store.dispatch_behind_bytes:
        time.sleep(0.001)
    if (stored := _in_queues(store) - before) != count:
        raise SystemExit(f"{stored} of {count} messages are in their queues")
    return took


def _in_queues(store: MessageStore) -> int:
    return sum(max_offset for _, _, _, max_offset in store.queues())


def put(store: str, count: int, threads: int, body_size: int, warm_up: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Single puts by several producers. Each waits for its message before it builds the next one."""
    body = random.Random(_SEED).randbytes(body_size)
    with _open(store, settings) as opened:

        def produce(numbers: range) -> None:
            for number in numbers:
                if opened.put(_message(number, body)).status is not PutMessageStatus.PUT_OK:
                    raise SystemExit("a put was not acknowledged")

        return _timed(opened, produce, count, warm_up, threads)


def put_async(
    store: str, count: int, coroutines: int, body_size: int, warm_up: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """As :func:`put`, but the producers are coroutines of one event loop."""
    import asyncio

    body = random.Random(_SEED).randbytes(body_size)
    with _open(store, settings) as opened:

        async def produce(numbers: range) -> None:
            for number in numbers:
                if (await opened.put_async(_message(number, body))).status is not PutMessageStatus.PUT_OK:
                    raise SystemExit("a put was not acknowledged")

        async def produce_all(numbers: range) -> None:
            await asyncio.gather(*(produce(numbers[first::coroutines]) for first in range(coroutines)))

        return _timed(opened, lambda numbers: asyncio.run(produce_all(numbers)), count, warm_up, 1)


def put_list(
    store: str, count: int, batch: int, body_size: int, warm_up: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """Put lists of messages, which are made within the measured time."""
    body = random.Random(_SEED).randbytes(body_size)
    with _open(store, settings) as opened:

        def produce(numbers: range) -> None:
            for first in numbers[::batch]:
                messages = [_message(number, body) for number in numbers[first : first + batch]]
                _require_all(opened.put_batch(messages))

        return _timed(opened, produce, count, warm_up, 1)


def _require_all(result: PutBatchResult) -> None:
    if result.status is not PutMessageStatus.PUT_OK or result.rejected:
        raise SystemExit("a batch was not acknowledged")


def put_table(
    store: str, count: int, batch: int, body_size: int, warm_up: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """Arrow tables, built before the measured time: a caller with columns has them already."""
    body = random.Random(_SEED).randbytes(body_size)
    # A few tables are put repeatedly, so that expensive new memory is used only for the log.
    tables = _tables(min(count, max(batch, _TABLES_BYTES // body_size)), batch, body)
    with _open(store, settings) as opened:

        def produce(numbers: range) -> None:
            left = len(numbers)
            for table in cycle(tables):
                _require_all(opened.put_batch(table.slice(0, left)))
                left -= min(left, len(table))
                if not left:
                    return

        return _timed(opened, produce, count, warm_up, 1)


def _tables(count: int, batch: int, body: bytes) -> list[Any]:
    import pyarrow as pa

    tables = []
    for first in range(0, count, batch):
        messages = [_message(number, body) for number in range(first, min(first + batch, count))]
        columns: dict[str, Any] = {name: [getattr(one, name) for one in messages] for name in ("topic", "body", "tags")}
        columns["queue_id"] = pa.array([one.queue_id for one in messages], pa.int32())
        columns["keys"] = [list(one.keys) for one in messages]
        properties = [list(one.properties.items()) for one in messages]
        columns["properties"] = pa.array(properties, pa.map_(pa.string(), pa.string()))
        tables.append(pa.table(columns))
    return tables


def get(store: str, batch: int, warm_up: bool = False, touch: bool = False) -> dict[str, Any]:
    """Read every message of every queue; with ``warm_up`` once before the measured time.

    A field of a message is decoded at its first use. With ``touch`` the body, tags and keys of each are used.
    """
    with _open(store, {}) as opened:
        if warm_up:
            _walk(opened, batch, touch)
        began = time.perf_counter()
        messages = _walk(opened, batch, touch)
        took = time.perf_counter() - began
    return {"messages": messages, "perSecond": messages / took}


def _walk(store: MessageStore, batch: int, touch: bool) -> int:
    messages = 0
    for topic, queue_id, following, _ in store.queues():
        while (found := store.get(topic, queue_id, following, max_msgs=batch)).status is GetMessageStatus.FOUND:
            messages += len(found.messages)
            following = found.next_begin_offset
            if touch and not all(message.body and message.tags and message.keys for message in found.messages):
                raise SystemExit("a message has no body, tag or key")
    return messages


def get_each(store: str, count: int) -> dict[str, Any]:
    """The time to read and decode one message at a random place of the store."""
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


def query(store: str, messages: int, count: int, warm_up: int) -> dict[str, Any]:
    """Query random keys and check that each message has its key; some before the measurement."""
    rng = random.Random(_SEED)
    with _open(store, {}) as opened:
        _query(opened, [rng.randrange(messages) for _ in range(warm_up)])
        began = time.perf_counter()
        _query(opened, [rng.randrange(messages) for _ in range(count)])
        took = time.perf_counter() - began
    return {"perSecond": count / took}


def _query(store: MessageStore, numbers: list[int]) -> None:
    for number in numbers:
        key = f"key-{number}"
        if not any(key in found.keys for found in store.query(TOPIC, key, max_num=32)):
            raise SystemExit(f"{key} is not found")


def open_reader(store: str) -> dict[str, Any]:
    """Open a store for reading, read its end, and return the time and the memory (without page cache)."""
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
    """Run the work that the arguments name."""
    print(json.dumps(WORKS[sys.argv[1]](**json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
