"""Logs to feed to kernels: real ones (the golden stores) and random ones, whole, strange and broken.

Every random test takes its seed from :func:`seeds`.
"""

import random
import struct
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gantrymq.format.record import body_crc, encode_blank, encode_record
from gantrymq.model.host import Host
from gantrymq.model.message import StoredMessage
from golden_stores import NAMES, unpack  # noqa: F401  the names are for the tests

OF_THE_RUN = -1

TAGS = ["a", "TagA", "тег", "标签", "🏷️x", "A" * 15, "B" * 16, "C" * 17, "é" * 40, "x\x01y", "AaAa", "BBBB"]
TOPICS = ["", "t", "orders", "SCHEDULE_TOPIC_XXXX", "主题", "T" * 127, "T" * 128, "L" * 3000, "%RETRY%g", "\ud83d"]
KEYS = ["k", "k1 k2", " k  k ", "ключ 🔑", "x" * 40, " ", "same same", "k\tq", "\u00a0n"]
MALFORMED = [
    b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xed\xb0", b"\xc0\xaf", b"\xf4\x90\x80\x80",
    b"\x80\x80", b"\xe0\x80\x80", b"ok\xfe", b"\xf0\x80\x80\x80", b"\xed\xa0\x80\xed\xb0\x80", b"\xf5", b"a\xe2\x28b",
]  # fmt: skip


_FOLDERS: list[TemporaryDirectory[str]] = []  # each goes with the process


@cache
def golden_folder(name: str) -> Path:
    """Unpack the golden store ``name``; its directory, with ``store`` inside."""
    _FOLDERS.append(TemporaryDirectory(prefix=f"golden-{name}-"))
    return unpack(name, Path(_FOLDERS[-1].name))


def golden_logs(name: str) -> list[bytes]:
    """The files of the commit log of a golden store, in order."""
    return [path.read_bytes() for path in sorted((golden_folder(name) / "store" / "commitlog").iterdir())]


def seeds(count: int) -> pytest.MarkDecorator:
    """The test runs with ``count`` fixed seeds and with one of the run's."""
    return pytest.mark.parametrize("seed", [*range(count), OF_THE_RUN], indirect=True)


def random_value(rng: random.Random, name: bytes) -> bytes:
    choice = rng.random()
    if choice < 0.08:
        return b""
    if choice < 0.2:
        return rng.choice(MALFORMED) + rng.choice([b"", b"tail"])
    if name == b"DELAY":
        return rng.choice(
            [b"1", b"3", b"18", b"19", b"0", b"-1", b"+5", b"abc", b"007", b"9" * 30, b"%d" % (2**64 + 1), "٣".encode()]
        )
    if name == b"KEYS":
        return rng.choice(KEYS).encode()
    if name == b"__CRC32#":
        return rng.choice([b"1234567890", b"0", b"12x", b"0" * 30, b"1" * 11, b"5000000000"])
    return rng.choice(TAGS).encode() if rng.random() < 0.7 else rng.randbytes(rng.randrange(1, 90))


def random_properties(rng: random.Random) -> bytes:
    """Properties as a hostile client could send them."""
    names = [
        b"TAGS",
        b"KEYS",
        b"UNIQ_KEY",
        b"DELAY",
        b"__CRC32#",
        b"a",
        b"b",
        b"WAIT",
        "名".encode(),
        b"",
        b"\xff",
        b"\xfe",
    ]
    parts = []
    for _ in range(rng.choice([0, 1, 2, 3, 5, 8, 40])):
        name = rng.choice(names)
        separator = b"" if rng.random() < 0.05 else b"\x01"
        parts.append(name + separator + random_value(rng, name))
    raw = b"\x02".join(parts)
    return raw + b"\x02" if rng.random() < 0.6 else raw


def random_host(rng: random.Random, *, v6: bool) -> Host:
    ip = rng.choice([rng.randbytes(16 if v6 else 4), bytes(16 if v6 else 4)])
    return Host(ip, rng.choice([0, 9876, 65535, rng.randrange(-(2**31), 2**31)]))


def random_record(rng: random.Random, phy_offset: int, *, append_crc: bool = False) -> bytes:
    """One whole record."""
    sys_flag = rng.choice([0, 0, 1, 4, 8, 12, 0x10, 0x20, 0x30, 0x3C, 0x301])
    topic = rng.choice(TOPICS).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        topic = rng.choice(MALFORMED)
    body = rng.randbytes(rng.choice([0, 1, 3, 15, 16, 17, 63, 64, 100, 300, 1024]))
    crc = body_crc(body) if rng.random() < 0.95 else rng.randrange(-(2**31), 2**31)
    message = StoredMessage(
        topic="", queue_id=rng.choice([0, 1, 2, 3, -1, 2**31 - 1]), queue_offset=rng.choice([0, 5, 2**40, -1]),
        phy_offset=phy_offset, size_bytes=0, flag=rng.choice([0, -1, 77]), sys_flag=sys_flag,
        born_timestamp_ms=rng.choice([0, 1795244327319, -5]), born_host=random_host(rng, v6=bool(sys_flag & 0x10)),
        store_timestamp_ms=rng.choice([0, 1795244534976 + rng.randrange(10**6), -5]),
        store_host=random_host(rng, v6=bool(sys_flag & 0x20)), reconsume_times=rng.choice([0, 3, -1]),
        prepared_transaction_offset=rng.choice([0, 2**41, -1]), body_crc=crc, body=body, properties={},
        version=2 if len(topic) > 127 else rng.choice([1, 1, 2]),
    )  # fmt: skip
    return encode_record(message, topic, random_properties(rng), append_crc=append_crc)


def with_properties(rng: random.Random, topic: bytes, properties: bytes) -> bytes:
    """One record of an ordinary message."""
    host, body = random_host(rng, v6=False), rng.randbytes(20)
    message = StoredMessage("", 0, 0, 0, 0, 0, 0, 1, host, 1, host, 0, 0, body_crc(body), body, {})
    return encode_record(message, topic, properties)


def random_log(rng: random.Random, count: int, *, append_crc: bool = False) -> bytes:
    """``count`` records, then whatever may stand behind them."""
    raw = bytearray()
    for _ in range(count):
        raw += random_record(rng, len(raw), append_crc=append_crc and rng.random() < 0.9)
    rest = rng.choice([0, 0, 3, 7, 8, 9, 100])
    ends = [
        bytes(rest),
        encode_blank(rest) + bytes(max(rest - 8, 0)),
        rng.randbytes(rest),
        encode_blank(5000),
        encode_blank(-5),
        encode_blank(0),
    ]
    return bytes(raw + rng.choice(ends))


def random_messages(rng: random.Random, count: int) -> bytes:
    """``count`` records and nothing behind them."""
    raw = b""
    for _ in range(count):
        raw += random_record(rng, len(raw))
    return raw


def broken(rng: random.Random, raw: bytes) -> bytes:
    """``raw`` with bits flipped, numbers overwritten, cut short, or zeroed from some point on."""
    data = bytearray(raw)
    for _ in range(rng.randrange(3)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    for _ in range(rng.randrange(3)):
        at = rng.randrange(max(len(data) - 4, 1))
        number = rng.choice([0, -1, 1, 90, 91, 2**31 - 1, -(2**31), len(data) - at, len(data) - at + 1])
        struct.pack_into(">i", data, at, number) if at + 4 <= len(data) else None
    if rng.random() < 0.4:
        del data[rng.randrange(len(data)) :]
    if rng.random() < 0.2 and data:
        at = rng.randrange(len(data))
        data[at:] = bytes(len(data) - at)
    return bytes(data)
