"""Lives of a real store in a real directory: a process that works on it until SIGKILL ends it.

``start`` forks the process from a server that has everything imported, so a life costs milliseconds. It says what was
acknowledged on a pipe, one JSON line for each put, before the next put. Each message carries a seal over its topic,
queue, body and properties: whatever a store delivers afterwards can be judged, acknowledged or not.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import threading
import time
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from gantrymq.clock import SystemClock
from gantrymq.config.properties import read_settings
from gantrymq.errors import GantrymqError
from gantrymq.model.message import Message, StoredMessage
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.log.batch import PutBatchResult
from gantrymq.store.message_store import MessageStore
from gantrymq.store.put_result import PutMessageResult
from store_cases import odd_message

SEAL = "H"
OWN = ("DELAY", "REAL_TOPIC", "REAL_QID", "__CRC32#", SEAL)
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["lives", "gantrymq.store.message_store", "gantrymq.kernels.api"])


class FastClock(SystemClock):
    """Time runs a thousand times as fast from the first look on, so that retention has its minutes."""

    def __init__(self) -> None:
        self._began_ms = super().now_ms()

    def now_ms(self) -> int:
        now_ms = super().now_ms()
        return now_ms + 1000 * (now_ms - self._began_ms)


@dataclass(frozen=True)
class Plan:
    """What a life does: ``count`` messages from each of ``threads``, ``batch`` to a put, then it closes.

    With ``as_coroutines`` they are coroutines of one thread.
    """

    path: str
    settings: dict[str, Any]
    seed: int
    threads: int = 1
    batch: int = 1
    count: int = 1 << 40
    expires: bool = False
    as_coroutines: bool = False


def seal(topic: str, queue_id: int, body: bytes, properties: dict[str, str]) -> str:
    kept = sorted((name, value) for name, value in properties.items() if name not in OWN and value)
    return sha256(repr((topic, queue_id, body, kept)).encode()).hexdigest()[:20]


def sealed_message(rng: random.Random) -> Message:
    message = odd_message(rng)
    message.sys_flag = message.delay_level = 0
    told = {**message.properties, "TAGS": message.tags, "KEYS": " ".join(message.keys)}
    message.properties[SEAL] = seal(message.topic, message.queue_id, message.body, told)
    return message


def is_whole(message: StoredMessage) -> bool:
    """Whether a message is, byte for byte, one that was put."""
    properties = message.properties
    return properties.get(SEAL) == seal(message.topic, message.queue_id, message.body, properties)


def live(plan: Plan, said: int) -> None:
    """The life: everything but its end."""
    reading = read_settings({key: str(value) for key, value in plan.settings.items()})
    clock = FastClock() if plan.expires else SystemClock()
    guard = threading.Lock()

    def say(*words: Any) -> None:
        with guard:
            os.write(said, json.dumps(words).encode() + b"\n")

    def put_many(rng: random.Random) -> None:
        for _ in range(0, plan.count, plan.batch):
            messages = [sealed_message(rng) for _ in range(plan.batch)]
            for place in put(store, messages):
                say(*place)

    async def put_many_async(rng: random.Random) -> None:
        for _ in range(0, plan.count, plan.batch):
            messages = [sealed_message(rng) for _ in range(plan.batch)]
            for place in await put_async(store, messages):
                say(*place)

    async def all_at_once() -> None:
        await asyncio.gather(*map(put_many_async, rngs))

    store = MessageStore.open(plan.path, reading.config, given=reading.given, clock=clock, housekeeping=plan.expires)
    say("open")
    rngs = [random.Random(f"{plan.seed} {number}") for number in range(plan.threads)]
    if plan.as_coroutines:
        asyncio.run(all_at_once())
    else:
        workers = [threading.Thread(target=put_many, args=(rng,)) for rng in rngs]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    say("close")
    store.close()
    say("closed")


def put(store: MessageStore, messages: list[Message]) -> list[tuple[int, int, str]]:
    """Put them; (physical offset, queue offset, seal) of each that was acknowledged."""
    return told(store.put(messages[0]) if len(messages) == 1 else store.put_batch(messages), messages)


async def put_async(store: MessageStore, messages: list[Message]) -> list[tuple[int, int, str]]:
    """The same, by a coroutine."""
    if len(messages) == 1:
        return told(await store.put_async(messages[0]), messages)
    return told(await store.put_batch_async(messages), messages)


def told(result: PutMessageResult | PutBatchResult, messages: list[Message]) -> list[tuple[int, int, str]]:
    assert result.status is PutMessageStatus.PUT_OK, result
    if isinstance(result, PutMessageResult):
        places = [(result.phy_offset, result.queue_offset)]
    else:
        places = list(zip(result.phy_offsets.tolist(), result.queue_offsets.tolist(), strict=True))
    return [(*place, message.properties[SEAL]) for place, message in zip(places, messages, strict=True)]


@dataclass
class Life:
    """A running life. ``heard`` are its lines, whole ones only, once it has ended."""

    process: Any
    pipe: int
    heard: list[list[Any]] = field(default_factory=list)

    def kill_after(self, seconds: float, *, once_open: bool = False) -> str:
        """SIGKILL, that long after the beginning, or after the store is open.

        Returns how far it had come: "opening", "working", "closing" or "closed".
        """
        opened = threading.Event()
        reader = threading.Thread(target=self._listen, args=(opened,))
        reader.start()
        if once_open:
            opened.wait()
        time.sleep(seconds)
        self.process.kill()
        self.process.join()
        reader.join()
        assert self.process.exitcode in (-9, 0), f"the life ended by itself: exit code {self.process.exitcode}"
        steps = {line[0] for line in self.heard if isinstance(line[0], str)}
        names = (("closed", "closed"), ("close", "closing"), ("open", "working"))
        return next((name for step, name in names if step in steps), "opening")

    def _listen(self, opened: threading.Event) -> None:
        with open(self.pipe, "rb") as stream:
            first = stream.readline()
            opened.set()  # or it has ended
            lines = [first, *stream.read().splitlines(keepends=True)]
        self.heard = [json.loads(line) for line in lines if line.endswith(b"\n")]

    @property
    def acknowledged(self) -> list[list[Any]]:
        return [line for line in self.heard if isinstance(line[0], int)]


def start(plan: Plan) -> Life:
    """Begin a life; call :meth:`Life.kill_after` once."""
    listen, say = os.pipe()
    process = SERVER.Process(target=_live_with, args=(plan, _Descriptor(say)))
    process.start()
    os.close(say)
    return Life(process, listen)


class _Descriptor:
    """A descriptor that goes along to another process."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (multiprocessing.reduction.DupFd(self.number),)


def _received(duplicate: Any) -> _Descriptor:
    return _Descriptor(duplicate.detach())


def _live_with(plan: Plan, said: _Descriptor) -> None:
    try:
        live(plan, said.number)
    except GantrymqError as error:
        os.write(said.number, json.dumps(["error", str(error)]).encode() + b"\n")
        raise
