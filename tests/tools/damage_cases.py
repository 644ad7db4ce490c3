"""A small store in memory, and the means to damage exactly one thing in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gantrymq.clock import ManualClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.index import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, decode_entry, decode_header
from gantrymq.format.queue_entry import UNIT_SIZE, QueueEntry
from gantrymq.format.queue_entry import decode_entry as decode_unit
from gantrymq.format.queue_entry import encode_entry as encode_unit
from gantrymq.format.record import read_layout
from gantrymq.format.stop_reason import StopReason
from gantrymq.model.message import Message
from gantrymq.store.paths import StorePaths
from gantrymq.tools.findings import Finding
from gantrymq.tools.verify import verify_store
from memory_file_system import MemoryFileSystem
from store_cases import GEOMETRY_KEYS, NOON_MS, ROOT, SMALL, await_dispatch, open_store

PATHS = StorePaths(ROOT)
MESSAGES = 240


@dataclass
class SmallStore:
    """A closed store: three queues, several files of everything. Offsets are physical unless said otherwise."""

    fs: MemoryFileSystem
    config: MessageStoreConfig = SMALL

    # Its bytes

    def read(self, path: Path, at: int, length: int) -> bytes:
        return self.fs.open(path).read_at(at, length)

    def write(self, path: Path, at: int, data: bytes) -> None:
        self.fs.open(path, writable=True).write_at(at, data)

    def flip(self, path: Path, at: int, mask: int = 1) -> None:
        self.write(path, at, bytes([self.read(path, at, 1)[0] ^ mask]))

    def make(self, path: Path, data: bytes) -> None:
        self.fs.make_directory(path.parent)
        self.fs.open(path, writable=True, create=True).write_at(0, data)

    # The log

    def log_path(self, offset: int) -> Path:
        return PATHS.commit_log / f"{offset - offset % SMALL.mapped_file_size_commit_log:020d}"

    def log_bytes(self, offset: int, length: int) -> bytes:
        return self.read(self.log_path(offset), offset % SMALL.mapped_file_size_commit_log, length)

    def write_log(self, offset: int, data: bytes) -> None:
        self.write(self.log_path(offset), offset % SMALL.mapped_file_size_commit_log, data)

    def flip_log(self, offset: int, mask: int = 1) -> None:
        self.flip(self.log_path(offset), offset % SMALL.mapped_file_size_commit_log, mask)

    def layout(self, offset: int) -> Any:
        raw = self.log_bytes(offset, SMALL.mapped_file_size_commit_log)
        return read_layout(memoryview(raw), 0, len(raw))

    def blanks(self) -> list[int]:
        """Where the blanks at the ends of files are."""
        found = []
        for entry in self.fs.scan(PATHS.commit_log):
            offset = int(entry.name)
            while not isinstance(layout := self.layout(offset), StopReason):
                offset += layout.size
            if layout is StopReason.BLANK:
                found.append(offset)
        return found

    # The queues

    def unit_place(self, queue_offset: int, queue_id: int = 0, topic: str = "orders") -> tuple[Path, int]:
        at = queue_offset * UNIT_SIZE
        base = at - at % SMALL.mapped_file_size_consume_queue
        return PATHS.consume_queue / topic / str(queue_id) / f"{base:020d}", at - base

    def unit(self, queue_offset: int, queue_id: int = 0, topic: str = "orders") -> QueueEntry:
        path, at = self.unit_place(queue_offset, queue_id, topic)
        return decode_unit(self.read(path, at, UNIT_SIZE))

    def write_unit(self, unit: QueueEntry, queue_offset: int, queue_id: int = 0, topic: str = "orders") -> None:
        path, at = self.unit_place(queue_offset, queue_id, topic)
        self.write(path, at, encode_unit(unit))

    # The index

    def index_path(self, number: int = 0) -> Path:
        return PATHS.index / self.fs.scan(PATHS.index)[number].name

    def index_header(self, number: int = 0) -> Any:
        return decode_header(self.read(self.index_path(number), 0, HEADER_SIZE))

    @staticmethod
    def entry_at(number: int) -> int:
        return HEADER_SIZE + SMALL.max_hash_slot_num * SLOT_SIZE + number * ENTRY_SIZE

    def index_entry(self, number: int, file: int = 0) -> Any:
        return decode_entry(self.read(self.index_path(file), self.entry_at(number), ENTRY_SIZE), 0)

    # The verdict

    def findings(self, **options: Any) -> list[Finding]:
        return list(verify_store(ROOT, self.config, given=GEOMETRY_KEYS, fs=self.fs, **options))


def small_store(config: MessageStoreConfig = SMALL, messages: int = MESSAGES) -> SmallStore:
    """Queues orders/0, orders/1 and bills/0 in turn; every message has a key of its own, and a tag."""
    fs = MemoryFileSystem()
    with open_store(fs, config=config, clock=ManualClock(NOON_MS)) as store:
        for number in range(messages):
            topic, queue_id = (("orders", 0), ("orders", 1), ("bills", 0))[number % 3]
            message = Message(topic, b"%06d" % number * 30, queue_id=queue_id, tags="paid", keys=[f"key-{number}"])
            store.put(message)
        await_dispatch(store)
    return SmallStore(fs.crash_clone(1.0, 0), config)
