"""Any file of a store may be truncated, flipped, zeroed or lost: what opens then is right as far as it goes.

An error is always a GantrymqError. What recovery has read again is an exact prefix of what was put. Files in front of
that are not judged, as with RocketMQ: there only what was damaged itself may read differently.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gantrymq.errors import GantrymqError
from gantrymq.model.flags import is_consumable
from gantrymq.model.message import Message, StoredMessage
from gantrymq.store.message_store import MessageStore
from memory_file_system import MemoryFileSystem
from store_cases import BARE, ROOT, await_dispatch, content, files_of, killed, memory_store, odd_message, open_store

COUNT = 160
HOWS = ("flip", "zero", "noise", "truncate", "remove")
ENDS = ("clean", "killed", "killed and checkpoint lost", "killed and queues lost")


@dataclass(frozen=True)
class Whole:
    """An undamaged store, and every message in it by its physical offset."""

    fs: MemoryFileSystem
    messages: dict[int, StoredMessage]
    paths: tuple[Path, ...]


@cache
def whole(end: str) -> Whole:
    rng = random.Random(end)
    fs, store = memory_store(BARE)
    stored = []
    for _ in range(COUNT):
        stored.append(store.put(odd_message(rng, most=900)).phy_offset)
    await_dispatch(store)
    messages = {offset: store.message_at(offset) for offset in stored}
    left = killed(fs)
    store.close()
    if end == "clean":
        left = killed(fs)
    elif end != "killed":
        left.remove(ROOT / "checkpoint")
    if end == "killed and queues lost":
        for path in files_of(left, ROOT / "consumequeue"):
            left.remove(path)
    paths = tuple(path for path in files_of(left) if path.name != "lock")
    return Whole(left, {at: message for at, message in messages.items() if message is not None}, paths)


@dataclass(frozen=True)
class Damage:
    """What happens to one file; places and lengths are shares of its size, so that they fit every file."""

    file: float
    how: str
    place: float
    length: float
    seed: int

    def apply(self, fs: MemoryFileSystem, paths: tuple[Path, ...]) -> tuple[Path, int, int]:
        """Do it; returns the path and the bytes that it may have changed."""
        path = paths[int(self.file * len(paths))]
        if self.how == "remove" or not fs.exists(path):
            fs.remove(path)
            return path, 0, 1 << 40
        file = fs.open(path, writable=True)
        size = file.size()
        at = min(int(self.place * size), max(size - 1, 0))
        length = max(min(int(self.length * size), size - at), 1)
        rng = random.Random(self.seed)
        if self.how == "truncate":
            file.resize(at)
            return path, at, 1 << 40
        if self.how == "flip":
            length = 1
            file.write_at(at, bytes([(file.read_at(at, 1) or b"\0")[0] ^ 1 << self.seed % 8]))
        elif self.how == "zero":
            file.write_at(at, bytes(length))
        else:
            file.write_at(at, rng.randbytes(length))
        return path, at, at + length


damages = st.builds(
    Damage,
    file=st.floats(0, 1, exclude_max=True),
    how=st.sampled_from(HOWS),
    place=st.floats(0, 1),
    length=st.floats(0, 0.3),
    seed=st.integers(0, 1 << 30),
)


@settings(max_examples=120)
@given(st.sampled_from(ENDS), st.lists(damages, min_size=1, max_size=3))
def test_damaged_store_opens_with_expected_messages_or_not_at_all(end: str, harm: list[Damage]) -> None:
    original = whole(end)
    fs = killed(original.fs)
    touched = [one.apply(fs, original.paths) for one in harm]
    try:
        store = open_store(fs, config=BARE)
    except GantrymqError:
        return
    with store:
        check_messages(store, original, touched)
        result = store.put(Message("orders", b"afterwards"))
        await_dispatch(store)
        found = store.message_at(result.phy_offset)
        assert found is not None
        assert found.body == b"afterwards"
    assert not store.failures


def queues_of_harmed_records(
    original: Whole, delivered: dict[int, tuple[str, int]], is_touched: Callable[[StoredMessage], bool]
) -> set[Path]:
    """Where records whose head was changed belong, and where they were put: no CRC covers topic, queue and offset."""
    harmed = [(message.topic, message.queue_id) for message in original.messages.values() if is_touched(message)]
    harmed += [delivered[at] for at, message in original.messages.items() if is_touched(message) and at in delivered]
    return {ROOT / "consumequeue" / topic / str(queue_id) for topic, queue_id in harmed}


def check_messages(store: MessageStore, original: Whole, touched: list[tuple[Path, int, int]]) -> None:
    start, end = store.recovery.start_offset, store.max_phy_offset
    size = store.config.mapped_file_size_commit_log

    def is_touched(message: StoredMessage) -> bool:
        file, first = divmod(message.phy_offset, size)
        name = f"{file * size:020d}"
        return any(
            path.name == name
            and path.parent.name == "commitlog"
            and begin < first + message.size_bytes
            and first < stop
            for path, begin, stop in touched
        )

    delivered = {}
    for (topic, queue_id), messages in content(store).items():
        for message in messages.values():
            expected = original.messages.get(message.phy_offset)
            assert expected is not None, f"a message at {message.phy_offset}, where none was put"
            if not is_touched(expected):
                assert message == expected
            elif message.phy_offset >= start >= 0:
                assert message.body == expected.body, "read again with its CRC, and yet its body is wrong"
            delivered[message.phy_offset] = (topic, queue_id)
    log_is_whole = not any(path.parent.name == "commitlog" for path, _, _ in touched)
    harmed_queues = {path.parent for path, _, _ in touched} | queues_of_harmed_records(original, delivered, is_touched)
    for offset, message in original.messages.items():
        if log_is_whole:
            assert offset + message.size_bytes <= end, f"the log was whole, but {offset} was cut"
        queue = (message.topic, message.queue_id)
        is_judged = max(start, store.min_phy_offset) <= offset and offset + message.size_bytes <= end
        # A unit that was changed is believed, as RocketMQ believes it.
        if ROOT / "consumequeue" / queue[0] / str(queue[1]) in harmed_queues or is_touched(message):
            continue
        if is_judged and is_consumable(message.sys_flag):
            assert delivered.get(offset) == queue, f"{offset} is in the log, but in no queue"


@settings(max_examples=30)
@given(st.sampled_from(ENDS), st.lists(damages, min_size=1, max_size=2))
def test_second_recovery_changes_nothing(end: str, harm: list[Damage]) -> None:
    original = whole(end)
    fs = killed(original.fs)
    for one in harm:
        one.apply(fs, original.paths)
    try:
        open_store(fs, config=BARE).close()
    except GantrymqError:
        return
    once = files_of(fs)
    open_store(fs, config=BARE).close()
    again = files_of(fs)
    assert [path for path in once if once[path] != again.get(path)] == []
    assert once.keys() == again.keys()
