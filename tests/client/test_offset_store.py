"""A consumer's offsets at the broker: what a goodbye leaves there, also where a busy broker is in the way."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gantrymq.client.consumer.group.offsets import LocalFileOffsetStore, RemoteBrokerOffsetStore
from gantrymq.errors import MQClientError, RemotingTimeoutError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.headers.offset import UpdateConsumerOffsetRequestHeader

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(3)]


class Member:
    """A member of a group whose broker lets the first ``slow`` questions wait too long.

    What was told before without waiting comes ``late`` questions later, over what it knows by then.
    """

    group = "G"

    def __init__(self, *, slow: int = 0, late: int = 0) -> None:
        self.slow, self.late = slow, late
        self.known: dict[MessageQueue, int] = {}

    async def ask(self, queue: MessageQueue, call: Any) -> int | None:
        self.slow -= 1
        is_late = self.slow >= 0
        await asyncio.sleep(0)
        if is_late:
            raise RemotingTimeoutError("127.0.0.1:10911", 3000)
        request = call.request()
        if isinstance(request.header, UpdateConsumerOffsetRequestHeader):
            self.known[queue] = request.header.commit_offset
            self.late -= 1
            if not self.late:
                self.known[queue] = 0
        return self.known.get(queue)


async def left_behind(member: Member) -> list[int]:
    store = RemoteBrokerOffsetStore(member)  # type: ignore[arg-type]
    for queue, offset in zip(QUEUES, (7, 8, 9), strict=True):
        store.update(queue, offset)
    await store.persist_at_last(QUEUES)
    return [member.known[queue] for queue in QUEUES if queue in member.known]


@pytest.mark.parametrize(("slow", "kept"), [(0, [7, 8, 9]), (1, [7, 8, 9]), (6, [7, 8, 9]), (100, [])])
def test_unregister_without_answer_is_retried(slow: int, kept: list[int]) -> None:
    assert asyncio.run(left_behind(Member(slow=slow))) == kept


def test_persist_with_failed_write_raises() -> None:
    async def scenario() -> None:
        member = Member(slow=1)
        store = RemoteBrokerOffsetStore(member)  # type: ignore[arg-type]
        for queue in QUEUES:
            store.update(queue, 7)
        with pytest.raises(RemotingTimeoutError):
            await store.persist(QUEUES, wait=True)
        assert member.known == {QUEUES[1]: 7, QUEUES[2]: 7}
        await store.persist(QUEUES, wait=True)
        assert member.known == dict.fromkeys(QUEUES, 7)

    asyncio.run(scenario())


def test_persist_raises_if_offset_file_was_not_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = LocalFileOffsetStore(tmp_path / "a file" / "offsets.json")
        store.update(QUEUES[0], 7)
        with pytest.raises(MQClientError, match=r"offsets\.json"):
            await store.persist(QUEUES, wait=True)
        await store.persist(QUEUES)
        await store.persist_at_last(QUEUES)

    (tmp_path / "a file").write_bytes(b"")
    asyncio.run(scenario())


@pytest.mark.parametrize("late", [1, 2, 3])
def test_last_persist_corrects_late_older_offset(late: int) -> None:
    assert asyncio.run(left_behind(Member(late=late))) == [7, 8, 9]


# The file of a broadcasting consumer


def spoil_parent_is_a_file(path: Path) -> None:
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    path.parent.write_bytes(b"")


def spoil_directory_in_place(path: Path) -> None:
    (path / "below").mkdir(parents=True)


def spoil_read_only(path: Path) -> None:
    """As on a file system that is mounted read-only: root may write where modes forbid it."""
    path.parent.mkdir(parents=True)
    path.with_name(f"offsets.json.{os.getpid()}.tmp").mkdir()


@pytest.mark.parametrize("spoil", [spoil_parent_is_a_file, spoil_directory_in_place, spoil_read_only])
def test_unwritable_offsets_stay_in_memory_with_one_warning_an_interval(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], None]
) -> None:
    """A queue that is given up and taken over again goes on where it was, not where the file says."""
    path = tmp_path / "client" / "group" / "offsets.json"
    spoil(path)

    async def scenario() -> None:
        store = LocalFileOffsetStore(path, 3_600_000)
        assert await store.read_from_store(QUEUES[0]) is None
        for offset in (7, 8, 9):
            store.update(QUEUES[0], offset)
            await store.persist([QUEUES[0]])
            store.forget(QUEUES[0])
            assert await store.read_from_store(QUEUES[0]) == offset
        assert await store.read_from_store(QUEUES[1]) is None

    asyncio.run(scenario())
    said = [one.getMessage() for one in caplog.records if "only in memory" in one.getMessage()]
    assert len(said) == 1
    assert str(path) in said[0]
    assert len(caplog.records) <= 2
    assert not [one for one in path.parent.glob("*") if one.is_file()]


def test_failed_offset_write_is_retried_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gantrymq")
    path = tmp_path / "group" / "offsets.json"
    spoil_parent_is_a_file(path)

    async def scenario() -> None:
        store = LocalFileOffsetStore(path)
        store.update(QUEUES[0], 7)
        await store.persist([QUEUES[0]])
        store.forget(QUEUES[0])  # the queue was given up
        path.parent.unlink()
        store.update(QUEUES[1], 8)
        await store.persist([QUEUES[1]])

    asyncio.run(scenario())
    assert asyncio.run(LocalFileOffsetStore(path).read_from_store(QUEUES[0])) == 7
    assert asyncio.run(LocalFileOffsetStore(path).read_from_store(QUEUES[1])) == 8
    assert "written again" in caplog.records[-1].getMessage()


def test_removed_offset_file_loses_no_offset_in_use(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"

    async def scenario() -> int | None:
        store = LocalFileOffsetStore(path)
        store.update(QUEUES[0], 7)
        await store.persist([QUEUES[0]])
        path.unlink()
        store.forget(QUEUES[0])
        return await store.read_from_store(QUEUES[0])

    assert asyncio.run(scenario()) == 7


@pytest.mark.parametrize("foreign", ["{", "[1]", '{"offsetTable":5}', '{"offsetTable":{{"topic":"T"}:"x"}}', "\0\1"])
def test_foreign_file_at_path_of_offsets_is_not_overwritten(tmp_path: Path, foreign: str) -> None:
    path = tmp_path / "offsets.json"
    path.write_text(foreign)

    async def scenario() -> None:
        store = LocalFileOffsetStore(path)
        assert await store.read_from_store(QUEUES[0]) is None
        store.update(QUEUES[0], 7)
        await store.persist([QUEUES[0]])

    asyncio.run(scenario())
    assert path.with_name("offsets.json.unreadable").read_text() == foreign
    assert asyncio.run(LocalFileOffsetStore(path).read_from_store(QUEUES[0])) == 7


EDITED = '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7%s}}'


@pytest.mark.parametrize("text", ["\ufeff" + EDITED % "", EDITED % ",", "// by hand\n" + EDITED % " /* 7 */"])
def test_hand_edited_offsets_are_read_as_java_reads_them(tmp_path: Path, text: str) -> None:
    """Read as foreign, they would let the consumer begin anew: all messages again, or none of those in between."""
    (tmp_path / "offsets.json").write_text(text, encoding="utf-8")
    queue = MessageQueue("T", "broker-a", 0)
    assert asyncio.run(LocalFileOffsetStore(tmp_path / "offsets.json").read_from_store(queue)) == 7


def test_offset_file_with_impossible_offset_is_not_used(tmp_path: Path) -> None:
    """Every pull with it failed, and the queue was never consumed."""
    path = tmp_path / "offsets.json"
    path.write_text((EDITED % "").replace("7", "9223372036854775808"))
    assert asyncio.run(LocalFileOffsetStore(path).read_from_store(MessageQueue("T", "broker-a", 0))) is None


def test_pipe_at_path_of_offsets_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "offsets.json")

    async def scenario() -> int | None:
        store = LocalFileOffsetStore(tmp_path / "offsets.json")
        assert await store.read_from_store(QUEUES[0]) is None
        store.update(QUEUES[0], 7)
        await store.persist([QUEUES[0]])
        return await store.read_from_store(QUEUES[0])

    assert asyncio.run(scenario()) == 7


def test_concurrent_writers_leave_no_partial_offset_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that wrote into one temporary file mixed what they wrote."""
    path, shared = tmp_path / "offsets.json", list[Path]()
    fsync = os.fsync

    def note(descriptor: int) -> None:
        shared.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    async def write(pid: int) -> None:
        monkeypatch.setattr(os, "getpid", lambda: pid)
        store = LocalFileOffsetStore(path)
        store.update(QUEUES[0], pid)
        await store.persist([QUEUES[0]], wait=True)

    monkeypatch.setattr(os, "fsync", note)
    for pid in (7, 8):
        asyncio.run(write(pid))
    assert len({one for one in shared if ".bak" not in one.name}) == 2
    assert [one.name for one in sorted(tmp_path.iterdir())] == ["offsets.json", "offsets.json.bak"]


def test_full_disk_leaves_no_partial_offset_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "offsets.json"

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def scenario() -> None:
        store = LocalFileOffsetStore(path)
        store.update(QUEUES[0], 7)
        await store.persist([QUEUES[0]])
        monkeypatch.setattr(os, "fsync", full)
        store.update(QUEUES[0], 8)
        with pytest.raises(MQClientError, match="No space left on device"):
            await store.persist([QUEUES[0]], wait=True)

    asyncio.run(scenario())
    assert [one.name for one in tmp_path.iterdir()] == ["offsets.json"]
    assert asyncio.run(LocalFileOffsetStore(path).read_from_store(QUEUES[0])) == 7


def test_empty_offset_file_has_no_offsets_and_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a full disk leaves of a file that is written in place, as RocketMQ's client does."""
    path = tmp_path / "offsets.json"
    path.touch()

    async def scenario() -> None:
        store = LocalFileOffsetStore(path)
        assert [await store.read_from_store(queue) for queue in QUEUES] == [None] * 3

    asyncio.run(scenario())
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    assert f"path='{path}' reason='it is empty'" in caplog.text


def test_simultaneous_reads_of_damaged_offsets_give_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "offsets.json").mkdir()

    async def scenario() -> None:
        store = LocalFileOffsetStore(tmp_path / "offsets.json")
        await asyncio.gather(*map(store.read_from_store, QUEUES))

    asyncio.run(scenario())
    assert len(caplog.records) == 1
