"""What the tests of the store share: small files, odd messages, and a store's content in comparable shapes."""

import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gantrymq.clock import ManualClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.record import QUEUE_ID_AT, SECTOR, Layout, read_layout
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.model import flags
from gantrymq.model.host import Host
from gantrymq.model.message import Message, StoredMessage
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.message_store import MessageStore
from gantrymq.store.put_result import PutMessageResult
from gantrymq.store.reader import StoreReader
from memory_file_system import MemoryFileSystem

Line = dict[str, Any]
QueueKey = tuple[str, int]

ROOT = Path("/store")
NOON_MS = 1_700_000_000_000
SMALL = MessageStoreConfig(
    mapped_file_size_commit_log=16_384,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=200,
)
# The same for Java.
SMALL_KEYS: dict[str, str | int | float | bool] = {
    "mappedFileSizeCommitLog": 16_384,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
}
GEOMETRY_KEYS = frozenset(SMALL_KEYS)
BARE = replace(SMALL, message_index_enable=False)

TOPICS = ("orders", "%RETRY%billing", "主题", "t" * 127, "long-" + "x" * 200)
TAGS = ("", "paid", "Aa", "BB", "标签", "🏷", "two words", "t" * 300)
KEYS = ("AaAa", "BBBB", "AaBB", "ключ", "订单-7", "🔑", "k" * 200)
HOST_V4 = Host(bytes([10, 1, 2, 3]), 10911)
HOST_V6 = Host(bytes.fromhex("20010db8000000000000000000000001"), 65535)


def open_store(
    fs: FileSystem | None = None, path: Path = ROOT, config: MessageStoreConfig = SMALL, **options: Any
) -> MessageStore:
    """A store with small files whose settings all hold; nothing is deleted or delivered behind a test's back."""
    return MessageStore.open(path, config, given=GEOMETRY_KEYS, fs=fs, **{"housekeeping": False, **options})


def open_reader(path: Path, config: MessageStoreConfig = SMALL) -> StoreReader:
    """A reader with the same settings."""
    return StoreReader.open(path, config, given=GEOMETRY_KEYS)


def odd_message(rng: random.Random, *, most: int = 600) -> Message:
    """A message from the corners of what the format allows; ``most`` bounds its body."""
    body = rng.randbytes(rng.choice((0, 1, rng.randrange(most), rng.randrange(most))))
    message = Message(rng.choice(TOPICS), body, queue_id=rng.choice((0, 0, 1, 7)))
    message.tags = rng.choice(TAGS)
    message.keys = rng.sample(KEYS, rng.randrange(3))
    if rng.random() < 0.5:
        message.properties["UNIQ_KEY"] = rng.randbytes(16).hex().upper()
    if rng.random() < 0.3:
        message.properties[rng.choice(("region", "数量", "a b"))] = rng.choice(("v", "naïve 😀", "=", "w" * 500))
    if rng.random() < 0.1:
        message.delay_level = rng.randrange(1, 25)
    if rng.random() < 0.3:
        message.flag = rng.randrange(-(1 << 31), 1 << 31)
        message.reconsume_times = rng.randrange(17)
    if rng.random() < 0.15:
        message.sys_flag = rng.choice(
            (flags.TRANSACTION_PREPARED, flags.TRANSACTION_COMMIT, flags.TRANSACTION_ROLLBACK, flags.MULTI_TAGS)
        )
        message.prepared_transaction_offset = rng.randrange(1 << 40)
    if rng.random() < 0.5:
        message.born_timestamp_ms = NOON_MS - rng.randrange(10_000)
    message.born_host = rng.choice((HOST_V4, HOST_V6, Host(rng.randbytes(4), rng.randrange(65536))))
    message.store_host = rng.choice((None, HOST_V4, HOST_V6))
    return message


def fill(store: MessageStore, count: int, rng: random.Random, *, most: int = 600) -> list[PutMessageResult]:
    """Put odd messages, all of which are accepted."""
    results = [store.put(odd_message(rng, most=most)) for _ in range(count)]
    assert {result.status for result in results} == {PutMessageStatus.PUT_OK}
    return results


def numbered(count: int, *, first: int = 0, topic: str = "orders", queue_id: int = 0) -> list[Message]:
    """Messages of equal length whose bodies are their numbers."""
    return [Message(topic, b"%08d" % number, queue_id=queue_id, tags="paid") for number in range(first, first + count)]


def bodies(store: MessageStore | StoreReader, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    """The bodies of a queue from its first offset on."""
    return [message.body for message in queue_messages(store, topic, queue_id)]


def queue_messages(store: MessageStore | StoreReader, topic: str, queue_id: int) -> Iterator[StoredMessage]:
    """Every message of a queue, as a consumer gets them."""
    offset = store.get(topic, queue_id, -1).next_begin_offset
    while found := store.get(topic, queue_id, offset):
        if found.next_begin_offset == offset or offset >= found.max_offset:
            return
        yield from found.messages
        offset = found.next_begin_offset


def await_dispatch(store: MessageStore, seconds: float = 20) -> None:
    """Return when everything that was put can be got."""
    deadline = time.monotonic() + seconds
    while store.dispatch_behind_bytes:
        assert time.monotonic() < deadline, f"{store.dispatch_behind_bytes} bytes are not dispatched: {store.failures}"
        time.sleep(0.001)


def content(store: MessageStore | StoreReader) -> dict[QueueKey, dict[int, StoredMessage]]:
    """Every message by queue and queue offset."""
    if isinstance(store, MessageStore):
        await_dispatch(store)
        keys = [(topic, queue_id) for topic, queue_id, _, _ in store.queues()]
    else:
        keys = [(queue.topic, queue.queue_id) for queue in store.consume_queues]
    return {key: {message.queue_offset: message for message in queue_messages(store, *key)} for key in keys}


def dump(reader: StoreReader) -> list[Line]:
    """The lines of ``gantrymq store dump --json``, made the plain way."""
    lines: list[Line] = [
        {"kind": "store", "minPhyOffset": reader.min_phy_offset, "maxPhyOffset": reader.max_phy_offset, "loaded": True}
    ]
    for queue in reader.consume_queues:
        place = {"topic": queue.topic, "queueId": queue.queue_id}
        lines.append({"kind": "queue", **place, "minOffset": queue.min_offset, "maxOffset": queue.max_offset})
    for queue in reader.consume_queues:
        for offset, entry, message in reader.entries(queue):
            place = {
                "topic": queue.topic,
                "queueId": queue.queue_id,
                "queueOffset": offset,
                "phyOffset": entry.phy_offset,
            }
            if message is None:
                lines.append({"kind": "unreadable", **place})
            else:
                size = {"size": entry.size_bytes, "tagsCode": queue.tags_code(entry.tags_code)}
                lines.append({"kind": "message", **place, **size, **message_fields(message)})
    return lines


def message_fields(message: StoredMessage) -> Line:
    """What a dumped line says of a record beside its place."""
    return {
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": str(message.born_host),
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": str(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": message.body_crc,
        "properties": message.properties,
        "bodyLength": len(message.body),
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
        "msgId": message.msg_id,
    }


def index_questions(lines: Iterable[Line], most: int = 500) -> set[tuple[str, str]]:
    """Each (topic, key) that dumped messages are indexed under, but of the unique keys no more than ``most``."""
    shared, unique = set(), set()
    for line in lines:
        properties = line.get("properties", {})
        shared |= {(line["topic"], key) for key in properties.get("KEYS", "").split(" ") if key}
        if properties.get("UNIQ_KEY"):
            unique.add((line["topic"], properties["UNIQ_KEY"]))
    return shared | set(sorted(unique)[:: len(unique) // most + 1])


def tree(path: Path) -> dict[str, tuple[int, str]]:
    """Every file below ``path``: its length and a hash of its bytes."""
    return {
        str(file.relative_to(path)): (file.stat().st_size, hashlib.sha256(file.read_bytes()).hexdigest())
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def files_of(fs: FileSystem, path: Path = ROOT) -> dict[Path, bytes]:
    """Every file below ``path`` of a file system, with its bytes."""
    found: dict[Path, bytes] = {}
    for entry in fs.scan(path):
        child = path / entry.name
        if entry.is_directory:
            found |= files_of(fs, child)
        else:
            found[child] = fs.open(child).read_at(0, entry.size_bytes)
    return found


def copy_files(source: FileSystem, target: FileSystem, root: Path = ROOT, to: Path = ROOT) -> None:
    """Copy a store from one file system into another."""
    for path, data in files_of(source, root).items():
        copy = to / path.relative_to(root)
        target.make_directory(copy.parent)
        file = target.open(copy, writable=True, create=True)
        file.resize(len(data))
        file.write_at(0, data)
        file.sync()
        file.close()
        target.sync_directory(copy.parent)


def to_disk(fs: MemoryFileSystem, path: Path) -> Path:
    """Copy a store out of memory, so that others can open it; returns ``path``."""
    copy_files(fs, RealFileSystem(), to=path)
    return path


def killed(fs: MemoryFileSystem) -> MemoryFileSystem:
    """The disk as the kill of the process leaves it now: everything that was written is there."""
    return fs.crash_clone(1.0, 0)


def memory_store(config: MessageStoreConfig = SMALL, **options: Any) -> tuple[MemoryFileSystem, MessageStore]:
    """A new store in memory whose clock stands still."""
    fs = MemoryFileSystem()
    return fs, open_store(fs, config=config, **{"clock": ManualClock(NOON_MS), **options})


def kill_while_putting(path: Path, after: int, **options: Any) -> list[Line]:
    """Let tests/crash/victim.py put messages into the store at ``path`` and kill it with SIGKILL.

    That is done at about ``after`` acknowledged messages; returns everything that was acknowledged. ``options`` are
    those of the victim.
    """
    victim = Path(__file__).parents[1] / "crash" / "victim.py"
    options = {"path": str(path), "settings": SMALL_KEYS, **options}
    with subprocess.Popen([sys.executable, str(victim), json.dumps(options)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(after)]
        process.kill()
        said += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL, f"the victim ended by itself: {process.returncode}"
    return [json.loads(line) for line in said if line.endswith(b"\n")]


def missing_acknowledged(acknowledged: Iterable[Line], lines: Iterable[Line]) -> list[Line]:
    """What was acknowledged and should be in a queue, but is not among dumped lines at its place with its bytes."""

    def place(line: Line) -> tuple[object, ...]:
        return line["topic"], line["queueId"], line["queueOffset"], line["phyOffset"], line["bodySha256"]

    there = {place(line) for line in lines if line["kind"] == "message"}
    return [line for line in acknowledged if flags.is_consumable(line["sysFlag"]) and place(line) not in there]


def physical(log: CommitLog, offset: int, end: int) -> Iterator[tuple[int, Layout | StopReason, MappedFile | None]]:
    """Every physical thing from ``offset`` to ``end``: (phy_offset, a layout or what stops, file).

    Goes on behind a blank with the next file and ends with the first other stop, which is yielded too; the end of the
    last file is yielded with no file. A CRC is not looked at.
    """
    while True:
        file = log.queue.find(offset)
        if file is None:
            yield offset, StopReason.NO_BLANK, None
            return
        limit = min(file.size, end - file.file_from_offset)
        found = read_layout(file.array.data, offset - file.file_from_offset, limit)
        yield offset, found, file
        if isinstance(found, Layout):
            offset += found.size
        elif found is StopReason.BLANK:
            offset = log.roll_next_file(offset)
        else:
            return


def store_of_strays(path: Path) -> list[int]:
    """A closed store with two records that name a queue which there is not; returns their physical offsets.

    The queue that is first by name has the record that is last in the log. The last record of the log is torn.
    """
    with open_store(RealFileSystem(), path) as store:
        puts = {
            (topic, number): store.put(Message(topic, b"%d" % number, queue_id=0))
            for number in range(8)
            for topic in ("b", "a")
        }
        last = store.put(Message("a", b"last", properties={"long": "x" * 4 * SECTOR}))
        await_dispatch(store)
    strays = [puts["b", 2].phy_offset, puts["a", 5].phy_offset]
    with (path / "commitlog" / f"{0:020d}").open("r+b") as file:
        for phy_offset in strays:
            file.seek(phy_offset + QUEUE_ID_AT + 3)
            file.write(b"\x08")
        file.seek(last.phy_offset + 3 * SECTOR - last.phy_offset % SECTOR)
        file.write(bytes(SECTOR))
    return strays
