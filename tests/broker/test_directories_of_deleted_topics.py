"""The directories of deleted topics: none is left, and nothing that is in use goes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from broker_cases import StartBroker

from gantrymq.fs.api import FileSystem
from gantrymq.fs.killable import KillableFileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.headers.topic import DeleteTopicRequestHeader
from gantrymq.store.message_store import MessageStore
from gantrymq.store.queue.consume_queues import ConsumeQueues
from memory_file_system import MemoryFileSystem
from store_cases import GEOMETRY_KEYS, ROOT, SMALL, await_dispatch, bodies, killed, open_store

EXT = replace(SMALL, enable_consume_queue_ext=True)


def topic_directories(fs: FileSystem, root: Path = ROOT) -> set[str]:
    """The topics that have a directory of queues, or of their extended units."""
    return {one.name for kind in ("consumequeue", "consumequeue_ext") for one in fs.scan(root / kind)}


@pytest.mark.parametrize("how", ["", "closed", "killed"])
def test_topics_created_filled_and_deleted_leave_no_directory(how: str) -> None:
    fs = MemoryFileSystem()
    options = {"given": GEOMETRY_KEYS, "housekeeping": False}
    store = MessageStore.open(ROOT, EXT, fs=fs, **options)  # type: ignore[arg-type]
    store.put(Message("stays", b"x"))
    for number in range(30):
        store.put(Message(f"gone{number}", b"x", number % 3))
    for number in range(30):
        assert store.delete_topic(f"gone{number}").queues == 1
    if how:
        fs = killed(fs) if how == "killed" else fs
        store.close()
        store = MessageStore.open(ROOT, EXT, fs=fs, **options)  # type: ignore[arg-type]
    assert topic_directories(fs) == {"stays"}
    store.put(Message("gone1", b"again", 1))
    await_dispatch(store)
    assert bodies(store, "gone1", 1) == [b"again"]
    store.close()


@pytest.mark.parametrize("seed", range(6))
def test_start_removes_directory_restored_by_power_cut(seed: int) -> None:
    """The removal is not synced; a topic that was recreated keeps its messages."""
    fs = MemoryFileSystem()
    with open_store(fs) as store:
        for topic in ("gone", "again"):
            store.put(Message(topic, b"old"))
            store.delete_topic(topic)
        store.put(Message("again", b"new"))
        store.ask_for_flush()
        while store.flushed_offset < store.max_phy_offset:
            pass
        fs = fs.crash_clone(0.5, seed)
    with open_store(fs) as after:
        assert topic_directories(fs) == {"again"}
        assert bodies(after, "again") == [b"new"]


def test_start_removes_directories_left_by_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()
    with monkeypatch.context() as patch, open_store(fs) as store:
        patch.setattr(ConsumeQueues, "remove_empty_directories", lambda queues, topic: None)
        store.put(Message("gone", b"x"))
        store.delete_topic("gone")
        fs = killed(fs)
    assert topic_directories(fs) == {"gone"}
    with open_store(fs):
        assert topic_directories(fs) == set()


def test_non_empty_directory_of_deleted_topic_is_kept(tmp_path: Path) -> None:
    with open_store(RealFileSystem(), tmp_path) as store:
        for topic in ("notes", "gone"):
            store.put(Message(topic, b"x"))
        await_dispatch(store)
        note = tmp_path / "consumequeue" / "notes" / "README"
        note.write_text("of the operator")
        for topic in ("notes", "gone"):
            store.delete_topic(topic)
    assert [one.name for one in (tmp_path / "consumequeue").iterdir()] == ["notes"]
    assert note.read_text() == "of the operator"


@pytest.mark.asyncio
async def test_clean_unused_topics_removes_only_empty_directories_of_unknown_topics(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Those that earlier versions have left. A restart alone leaves what it does not know."""
    queues = tmp_path / "store" / "consumequeue"
    broker = await start_broker()
    await broker.send("T")
    for name in ("left", "left_too/0", "foreign/notes", "lost+found"):
        (queues / name).mkdir(parents=True)
    await broker.stop()
    broker = await start_broker()
    await broker.dispatched(1)
    assert {"left", "left_too", "foreign", "lost+found", "T"} <= {one.name for one in queues.iterdir()}
    assert (await broker.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == ResponseCode.SUCCESS
    found = {one.name for one in queues.iterdir()}
    assert {"foreign", "lost+found", "T"} <= found
    assert not {"left", "left_too"} & found
    await broker.send("T")
    await broker.dispatched(2)


@pytest.mark.asyncio
async def test_topic_recreated_at_once_keeps_its_queue(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker(fs=KillableFileSystem(RealFileSystem()))
    for number in range(20):
        while (await broker.send("T", b"%d" % number)).code != ResponseCode.SUCCESS:
            await asyncio.sleep(0)
        await broker.dispatched(1)
        deleting = asyncio.ensure_future(broker.ask(DeleteTopicRequestHeader(topic="T")))
        while not broker.server.tables.topics.going and not deleting.done():
            await asyncio.sleep(0)
        others = [broker.send(f"U{number}"), broker.send("T", b"next")]
        await asyncio.gather(deleting, *others)
        assert (await deleting).code == ResponseCode.SUCCESS
        await broker.ask(DeleteTopicRequestHeader(topic="T"))
    await broker.send("T", b"last")
    await broker.dispatched(1)
    assert {one.name for one in (tmp_path / "store" / "consumequeue" / "T").iterdir()} == {"0"}
    assert broker.server.store.failures == []
