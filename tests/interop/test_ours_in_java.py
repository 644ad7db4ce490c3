"""Stores that we wrote open in the real RocketMQ with every message, queue offset, tags code and index answer equal."""

import random
import shutil
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from gantrymq.clock import ManualClock
from gantrymq.config.settings import FlushDiskType, MessageStoreConfig
from gantrymq.model.message import LOOPBACK, Message
from gantrymq.store.message_store import MessageStore
from store_cases import (
    GEOMETRY_KEYS,
    NOON_MS,
    SMALL,
    SMALL_KEYS,
    Line,
    await_dispatch,
    dump,
    fill,
    index_questions,
    kill_while_putting,
    missing_acknowledged,
    odd_message,
    open_reader,
    open_store,
)

from .java import JavaStore

pytestmark = pytest.mark.interop

BORN_MS = NOON_MS - 1_000


def questions_of_time(lines: Iterable[Line]) -> list[tuple[str, int, int]]:
    """(topic, queue, ms) around the first, a middle and the last message of each queue."""
    times = defaultdict(list)
    for line in lines:
        if line["kind"] == "message":
            times[line["topic"], line["queueId"]].append(line["storeTimestamp"])
    return [
        (*queue, known[place] + shift)
        for queue, known in times.items()
        for place in (0, len(known) // 2, -1)
        for shift in (-1, 0, 1)
    ]


def assert_same(
    path: Path, config: MessageStoreConfig = SMALL, *, index_is_whole: bool = True, **settings: Any
) -> list[Line]:
    """Java and our reader agree about the store at ``path``, recovered or not; returns the dump.

    After a crash Java drops index files and indexes only what it read again, so that it may miss some of what we
    answer; the last message of the files that it kept it indexes once more (IndexService asks for an offset below the
    end, not up to it).
    """
    copy = shutil.copytree(path, Path(mkdtemp(dir=path.parent)) / "store")  # Java leaves it changed
    java = JavaStore(copy, SMALL_KEYS | {"commitLogRecoverMaxNum": 1000} | settings)
    with open_reader(path, config) as reader:
        ours = dump(reader)
        times = questions_of_time(ours)
        seen = java.look(index_questions(ours), times, halt=True)
        assert seen.dump == ours
        assert seen.offsets == [reader.offset_at(*question) for question in times]
        for (topic, key), theirs in seen.answers.items():
            if index_is_whole:
                assert reader.query_offsets(topic, key) == theirs, (topic, key)
            else:
                # Two keys of one hash are two answers with one offset, so that only the offsets can be compared.
                answer = dict.fromkeys(reader.query_offsets(topic, key, max_num=10_000))
                assert list(answer)[:1] == theirs[:1], (topic, key)
                assert [offset for offset in answer if offset in theirs] == list(dict.fromkeys(theirs)), (topic, key)
    return ours


def write_everything(path: Path, config: MessageStoreConfig, rng: random.Random, count: int = 1500) -> None:
    """Puts and batches of odd messages, over many files, while the clock goes on now and then."""
    clock = ManualClock()
    with open_store(path=path, config=config, clock=clock) as store:
        for _ in range(count // 50):
            fill(store, 20, rng)
            clock.advance(rng.choice((0, 1, 700)))
            assert not store.put_batch([odd_message(rng) for _ in range(30)]).rejected
            clock.advance(rng.choice((0, 1, 700)))
    assert not store.failures


def test_java_reads_closed_store(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "store"
    write_everything(path, SMALL, rng)
    assert len(list((path / "commitlog").iterdir())) > 20
    assert len(assert_same(path)) > 1200


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (replace(SMALL, broker_ip1="2001:db8::7"), {}),
        (replace(SMALL, enabled_append_prop_crc=True), {"enabledAppendPropCRC": True, "forceVerifyPropCRC": True}),
        (replace(SMALL, flush_disk_type=FlushDiskType.SYNC_FLUSH), {"flushDiskType": "SYNC_FLUSH"}),
        (
            replace(SMALL, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=2048),
            {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 2048},
        ),
    ],
    ids=["IPv6 store host", "property CRC", "SYNC_FLUSH", "extended units"],
)
def test_java_reads_store_with_other_settings(
    tmp_path: Path, rng: random.Random, config: MessageStoreConfig, settings: dict[str, Any]
) -> None:
    path = tmp_path / "store"
    write_everything(path, config, rng, count=400)
    assert_same(path, config, **settings)


@pytest.mark.parametrize("options", [{}, {"threads": 3}, {"batch": 40}], ids=str)
def test_java_reads_store_of_killed_writer(tmp_path: Path, rng: random.Random, seed: int, options: Line) -> None:
    path = tmp_path / "store"
    acknowledged = kill_while_putting(path, rng.randrange(200, 1500), seed=seed, **options)
    assert (path / "abort").exists()
    assert missing_acknowledged(acknowledged, assert_same(path, index_is_whole=False)) == []
    open_store(path=path).close()
    recovered = JavaStore(path, SMALL_KEYS).dump(halt=True)
    assert missing_acknowledged(acknowledged, recovered) == []
    with open_reader(path) as reader:
        assert recovered == dump(reader)


def with_line(rng: random.Random) -> tuple[Message, Line]:
    """The same message for us and for Java's ingest."""
    odd = odd_message(rng)
    message = Message(
        odd.topic,
        odd.body,
        odd.queue_id,
        tags=odd.tags,
        keys=odd.keys,
        properties=odd.properties,
        delay_level=odd.delay_level,
        born_timestamp_ms=BORN_MS,
        store_host=LOOPBACK,
    )
    line = {
        "topic": odd.topic,
        "queueId": odd.queue_id,
        "bodyBase64": b64encode(odd.body).decode(),
        "tags": odd.tags,
        "keys": list(odd.keys),
        "properties": odd.properties,
        "delayLevel": odd.delay_level,
    }
    return message, line


@pytest.mark.parametrize("crc", [False, True], ids=["plain", "property CRC"])
def test_our_put_writes_bytes_of_java(tmp_path: Path, rng: random.Random, crc: bool) -> None:
    """The same messages at the same times make the same log, the same queues and the same index."""
    messages, lines = zip(*(with_line(rng) for _ in range(600)), strict=True)
    java = JavaStore(tmp_path / "java", SMALL_KEYS | {"enabledAppendPropCRC": crc})
    results = java.ingest(lines, fixed_time=BORN_MS, store_time=NOON_MS, store_time_step=7)
    assert {result["status"] for result in results} == {"PUT_OK"}
    clock = ManualClock(NOON_MS)
    config = replace(SMALL, enabled_append_prop_crc=crc)
    with open_store(path=tmp_path / "ours", config=config, clock=clock) as store:
        for message in messages:
            store.put(message)
            clock.advance(7)
    for folder in ("commitlog", "consumequeue"):
        assert bytes_below(tmp_path / "ours" / folder) == bytes_below(tmp_path / "java" / folder)
    # Java names index files after the wall clock.
    ours, theirs = (list(bytes_below(tmp_path / name / "index").values()) for name in ("ours", "java"))
    assert len(ours) == len(theirs) > 3
    assert ours == theirs


def bytes_below(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_java_reads_recreated_topic(tmp_path: Path) -> None:
    """After a kill both see the new messages alone."""
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL, given=GEOMETRY_KEYS, housekeeping=False) as store:
        store.put_batch([Message("orders", b"old %d" % number) for number in range(40)])
        store.delete_topic("orders")
        store.put_batch([Message("orders", b"new %d" % number) for number in range(30)])
        await_dispatch(store)
    (path / "abort").touch()
    lines = [line for line in assert_same(path, index_is_whole=False) if line["kind"] == "message"]
    assert [line["queueOffset"] for line in lines] == list(range(30))
    assert lines[0]["phyOffset"] > 40 * 91
