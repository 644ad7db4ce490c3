"""What the tests of the pipelines share: stores, whole and damaged, and their files in comparable shapes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from gantrymq.clock import ManualClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.index import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from gantrymq.format.record import QUEUE_ID_AT, QUEUE_OFFSET_AT
from gantrymq.fs.real import RealFileSystem
from store_cases import NOON_MS, SMALL, await_dispatch, fill, open_store, tree

LOG_FILE = SMALL.mapped_file_size_commit_log
Damage = Callable[[Path, random.Random], None]


def filled(path: Path, rng: random.Random, messages: int = 2000, config: MessageStoreConfig = SMALL) -> Path:
    """A closed store of many small files; its messages are odd ones."""
    with open_store(RealFileSystem(), path, config, clock=ManualClock(NOON_MS)) as store:
        fill(store, messages, rng)
        await_dispatch(store)
    return path


def copies(store: Path, folder: Path) -> tuple[Path, Path]:
    """Two copies, one for each engine."""
    folder.mkdir(exist_ok=True)
    return Path(shutil.copytree(store, folder / "local")), Path(shutil.copytree(store, folder / "spark"))


def files(store: Path) -> dict[str, tuple[int, str]]:
    """Every file of a store but its lock."""
    return {name: value for name, value in tree(store).items() if name != "lock"}


def log_file(store: Path, number: int) -> Path:
    return sorted((store / "commitlog").iterdir())[number]


def write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


# Each damages one thing of a store.


def no_queues(store: Path, rng: random.Random) -> None:
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")


def holes_in_the_log(store: Path, rng: random.Random) -> None:
    for _ in range(12):
        write(log_file(store, rng.randrange(20)), rng.randrange(LOG_FILE - 300), rng.randbytes(rng.randrange(1, 300)))


def files_missing(store: Path, rng: random.Random) -> None:
    for _ in range(3):
        log_file(store, rng.randrange(1, 15)).unlink()


def zeros(store: Path, rng: random.Random) -> None:
    """A whole file, and the first one's begin; and what a record says of its place in its queue has a bit too many."""
    write(log_file(store, 5), 0, bytes(LOG_FILE))
    write(log_file(store, 8), QUEUE_OFFSET_AT, b"\x40")
    write(log_file(store, 0), 0, bytes(5000))


def no_end(store: Path, rng: random.Random) -> None:
    """The log's last files are empty, and its writer was killed."""
    for number in (-1, -2):
        write(log_file(store, number), 0, bytes(LOG_FILE))
    (store / "abort").touch()


def queues_damaged(store: Path, rng: random.Random) -> None:
    """Bytes of queues changed, units swapped, a file gone, another cut."""
    queues = sorted(store.glob("consumequeue/*/*/*"))
    for path in rng.sample(queues, 10):
        write(path, rng.randrange(380), rng.randbytes(rng.randrange(1, 60)))
    one = rng.choice(queues)
    write(one, 0, one.read_bytes()[:200][::-1])
    rng.choice(queues[:-5]).unlink()
    last = queues[-1]
    last.write_bytes(last.read_bytes()[:333])
    shutil.rmtree(rng.choice(queues[:20]).parent, ignore_errors=True)


def index_damaged(store: Path, rng: random.Random) -> None:
    """Entries, slots and headers changed; one entry points far ahead."""
    found = sorted((store / "index").iterdir())
    for path in rng.sample(found, len(found) // 2):
        write(path, rng.randrange(path.stat().st_size - 40), rng.randbytes(rng.randrange(1, 40)))
    write(found[2], HEADER_SIZE + SMALL.max_hash_slot_num * SLOT_SIZE + 30 * ENTRY_SIZE + 4, b"\0\0\1\0")
    write(found[-1], 0, rng.randbytes(HEADER_SIZE))


def log_file_copied(store: Path, rng: random.Random) -> None:
    number = rng.randrange(4, 12)
    shutil.copyfile(log_file(store, number + 1), log_file(store, number))


def records_of_wrong_queues(store: Path, rng: random.Random) -> None:
    """Of the first record of some files a bit of the queue id is another one."""
    for number in rng.sample(range(2, 14), 4):
        with log_file(store, number).open("rb") as file:
            file.seek(QUEUE_ID_AT + 3)
            (last,) = file.read(1)
        write(log_file(store, number), QUEUE_ID_AT + 3, bytes([last ^ 8]))


def nothing(store: Path, rng: random.Random) -> None:
    """A healthy store."""


DAMAGES: dict[str, Damage] = {
    one.__name__: one
    for one in (
        *(nothing, no_queues, holes_in_the_log, files_missing, zeros, no_end),
        *(queues_damaged, index_damaged, log_file_copied, records_of_wrong_queues),
    )
}
