"""Damages of every kind to a store of known content: each changes one thing, and says in words what it was.

A harm that finds nothing left to change changes nothing. Two or three at a time are what a rescue has to sort out.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from loss_cases import BODY_AT, LOG_FILE, KnownStore, Put, Slot

from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.format.record import PHY_OFFSET_AT

Harm = Callable[[KnownStore, random.Random], str]
NOTHING = "nothing was left to damage"

HEAD = {
    "totalSize": (0, 4),
    "magic": (4, 4),
    "bodyCRC": (8, 4),
    "queueId": (12, 4),
    "flag": (16, 4),
    "queueOffset": (20, 8),
    "physicalOffset": (28, 8),
    "sysFlag": (36, 4),
    "bornTimestamp": (40, 8),
    "bornHost": (48, 8),
    "storeTimestamp": (56, 8),
    "storeHost": (64, 8),
    "reconsumeTimes": (72, 4),
    "preparedTransactionOffset": (76, 8),
    "bodyLength": (84, 4),
}


def victim(store: KnownStore, rng: random.Random) -> tuple[Slot, Put]:
    """A message: any, or one with nothing in front of it or behind it, in the log or in its queue."""
    ordered = sorted(store.puts.items(), key=lambda item: item[1].phy_offset)
    queue = rng.choice(ordered)[0][:2]
    of_queue = [item for item in ordered if item[0][:2] == queue]
    return rng.choice((ordered[0], ordered[-1], of_queue[0], of_queue[-1], *[rng.choice(ordered) for _ in range(6)]))


def fields(put: Put, topic: str) -> dict[str, tuple[int, int]]:
    """Where each field of a record begins, from its start, and how long it is."""
    topic_at = BODY_AT + len(put.body)
    tail = topic_at + 1 + len(topic)
    return HEAD | {
        "body": (BODY_AT, len(put.body)),
        "topicLength": (topic_at, 1),
        "topic": (topic_at + 1, len(topic)),
        "propertiesLength": (tail, 2),
        "properties": (tail + 2, put.size_bytes - tail - 2),
    }


# Of the log


def flip(store: KnownStore, rng: random.Random) -> str:
    _, put = victim(store, rng)
    at, mask = put.phy_offset + rng.randrange(put.size_bytes), 1 << rng.randrange(8)
    return _mask(store, at, mask, f"bit {mask} at {at}")


def flip_field(store: KnownStore, rng: random.Random) -> str:
    slot, put = victim(store, rng)
    places = fields(put, slot.topic)
    name = rng.choice([*places, "topic", "topic", "bodyCRC", "bodyLength", "magic"])
    at, length = places[name]
    place, mask = put.phy_offset + at + rng.randrange(length), 1 << rng.randrange(8)
    return _mask(store, place, mask, f"bit {mask} of byte {place - put.phy_offset - at} of {name} of {_name(slot)}")


def other_letter(store: KnownStore, rng: random.Random) -> str:
    slot, put = victim(store, rng)
    at = put.phy_offset + fields(put, slot.topic)["topic"][0] + rng.randrange(len(slot.topic))
    letter = rng.choice("abcdefghijklmnopqrstuvwxyzB_%0")
    return _write(store, at, letter.encode(), f"a letter of the topic of {_name(slot)} is {letter!r}")


def other_number(store: KnownStore, rng: random.Random) -> str:
    slot, put = victim(store, rng)
    name = rng.choice(("queueId", "queueOffset", "physicalOffset", "bodyCRC", "totalSize", "bodyLength"))
    at, length = HEAD[name]
    before = int.from_bytes(_read(store, put.phy_offset + at, length) or bytes(1), "big")
    number = rng.choice((0, 1, before + 1, before - 1, before ^ 0xFF, rng.randrange(1 << 31))) % (1 << 8 * length)
    return _write(store, put.phy_offset + at, number.to_bytes(length, "big"), f"{name} of {_name(slot)} is {number}")


def copy_record(store: KnownStore, rng: random.Random) -> str:
    """A whole record over the begin of another one, often one of its own length."""
    source, target = victim(store, rng), victim(store, rng)
    same = [item for item in store.puts.items() if item[1].size_bytes == source[1].size_bytes]
    if rng.random() < 0.7:
        target = rng.choice(same)
    text = f"{_name(source[0])} at {source[1].phy_offset} copied over {_name(target[0])} at {target[1].phy_offset}"
    return _write(store, target[1].phy_offset, _read(store, source[1].phy_offset, source[1].size_bytes), text)


def swap_records(store: KnownStore, rng: random.Random) -> str:
    """Two records of one length change places."""
    source = victim(store, rng)
    target = rng.choice([item for item in store.puts.items() if item[1].size_bytes == source[1].size_bytes])
    one, other = (_read(store, put.phy_offset, put.size_bytes) for _, put in (source, target))
    _write(store, source[1].phy_offset, other, "")
    return _write(store, target[1].phy_offset, one, f"{_name(source[0])} and {_name(target[0])} changed places")


def zero(store: KnownStore, rng: random.Random) -> str:
    if (path := _log_file(store, rng)) is None:
        return NOTHING
    at, length = int(path.name) + rng.randrange(LOG_FILE // 512) * 512, rng.choice((512, 512, 4096))
    return _write(store, at, bytes(length), f"{length} zeros at {at}")


def copy_part(store: KnownStore, rng: random.Random) -> str:
    source, target = _log_file(store, rng), _log_file(store, rng)
    if source is None or target is None:
        return NOTHING
    length = rng.choice((600, 4096, LOG_FILE))
    begin, at = (int(path.name) + rng.randrange(LOG_FILE - length + 1) for path in (source, target))
    return _write(store, at, _read(store, begin, length), f"{length} bytes at {begin} copied to {at}")


def swap_files(store: KnownStore, rng: random.Random) -> str:
    one, other = _log_file(store, rng), _log_file(store, rng)
    if one is None or other is None:
        return NOTHING
    raw = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(raw)
    return f"{one.name} and {other.name} changed places"


def remove_last(store: KnownStore, rng: random.Random) -> str:
    if not store.log_files:
        return NOTHING
    path = store.log_files[-1]
    if path.read_bytes()[PHY_OFFSET_AT : PHY_OFFSET_AT + 8] != int(path.name).to_bytes(8, "big"):
        return NOTHING  # without the log's first file its messages may be old ones, which retention has removed
    path.unlink()
    return f"{path.name} removed"


def zero_end(store: KnownStore, rng: random.Random) -> str:
    if not store.log_files:
        return NOTHING
    path = store.log_files[-1]
    at = int(path.name) + rng.randrange(LOG_FILE)
    return _write(store, at, bytes(LOG_FILE), f"zeros from {at} on, in the last file")


# Of what lies beside the log


def forget(store: KnownStore, rng: random.Random) -> str:
    name = rng.choice(("consumequeue", "index", "checkpoint"))
    path = store.path / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return f"{name} removed"


def damage_queue(store: KnownStore, rng: random.Random) -> str:
    """A bit, a unit of zeros or one of another slot, or the whole file."""
    paths = sorted(store.path.glob("consumequeue/*/*/*"))
    if not paths:
        return NOTHING
    path = rng.choice(paths)
    raw = bytearray(path.read_bytes())
    kind = rng.choice(("bit", "bit", "zeros", "other unit", "removed", "directory removed"))
    at, other = (rng.randrange(len(raw) // UNIT_SIZE) * UNIT_SIZE for _ in range(2))
    if kind == "bit":
        raw[rng.randrange(len(raw.rstrip(b"\0")) or 1)] ^= 1 << rng.randrange(8)
    elif kind == "zeros":
        raw[at : at + UNIT_SIZE] = bytes(UNIT_SIZE)
    elif kind == "other unit":
        raw[at : at + UNIT_SIZE] = raw[other : other + UNIT_SIZE]
    path.write_bytes(raw)
    if kind == "removed":
        path.unlink()
    elif kind == "directory removed":
        shutil.rmtree(path.parent)
    return f"{path.relative_to(store.path)}: {kind}"


def damage_rest(store: KnownStore, rng: random.Random) -> str:
    """A bit of an index file or of the checkpoint."""
    paths = [path for path in (*sorted(store.path.glob("index/*")), store.path / "checkpoint") if path.exists()]
    if not paths:
        return NOTHING
    path = rng.choice(paths)
    raw = bytearray(path.read_bytes())
    at, mask = rng.randrange(min(len(raw), 200)), 1 << rng.randrange(8)
    raw[at] ^= mask
    path.write_bytes(raw)
    return f"bit {mask} at {at} of {path.relative_to(store.path)}"


def second_file(store: KnownStore, rng: random.Random) -> str:
    """A file once more under a name of another length, or an odd one."""
    paths = [path for name in ("commitlog/*", "consumequeue/*/*/*", "index/*") for path in store.path.glob(name)]
    if not paths:
        return NOTHING
    path = rng.choice(sorted(paths))
    name = rng.choice((path.name[1:], path.name[2:], f"0{path.name}", f"{path.name}.bak", f"{path.name}.1"))
    shutil.copyfile(path, path.with_name(name))
    return f"{path.relative_to(store.path)} is there once more as {name}"


def not_closed(store: KnownStore, rng: random.Random) -> str:
    (store.path / "abort").touch()
    return "the store was not closed"


HARMS: tuple[Harm, ...] = (
    *(flip, flip_field, flip_field, flip_field, other_letter, other_letter, other_number),
    *(copy_record, copy_record, swap_records, zero, copy_part, swap_files, remove_last, zero_end),
    *(forget, damage_queue, damage_queue, damage_rest, second_file, not_closed),
)


def _name(slot: Slot) -> str:
    return f"{slot.topic}/{slot.queue_id} offset {slot.queue_offset}"


def _log_file(store: KnownStore, rng: random.Random) -> Path | None:
    files = [path for path in store.log_files if len(path.name) == 20]
    return rng.choice(files) if files else None


def _read(store: KnownStore, phy_offset: int, length: int) -> bytes:
    """Bytes of the log; none where it has no such file any more."""
    return store.read(phy_offset, length) if store.log_path(phy_offset).exists() else b""


def _mask(store: KnownStore, phy_offset: int, mask: int, text: str) -> str:
    before = _read(store, phy_offset, 1)
    return _write(store, phy_offset, bytes([before[0] ^ mask]), text) if before else NOTHING


def _write(store: KnownStore, phy_offset: int, data: bytes, text: str) -> str:
    """Write, as far as the file goes; what has no file is not written."""
    if not store.log_path(phy_offset).exists():
        return NOTHING
    store.write(phy_offset, data[: LOG_FILE - phy_offset % LOG_FILE])
    return text
