"""Frames of sends as producers write them, and as they might."""

from __future__ import annotations

import json
import random
import struct

from gantrymq.remoting.codes import RequestCode

NAMES = ("UNIQ_KEY", "WAIT", "TAGS", "KEYS", "DELAY", "TRAN_MSG", "TRACE_ON", "a", "ü")
NUMBERS = ("-1", "+1", "007", "x", "", "2147483648", "9" * 19, "1.0", "-0")
COMMAND = ("code", "flag", "opaque", "version")
ONEWAY = 2


def frame(header: bytes, body: bytes) -> bytes:
    """A frame with a header in JSON."""
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def fields_of(number: int, topic: str = "T", **more: str) -> dict[str, str]:
    """The extFields of a SEND_MESSAGE_V2 as the Java client has them; ``more`` by letter."""
    usual = {
        **{"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": str(number % 4), "f": "0", "g": "1700000000000"},
        **{"h": "0", "i": f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02TAGS\x01t{number}", "j": "0", "k": "false"},
        **{"m": "false", "n": "broker-a"},
    }
    return usual | more


def header_of(fields: dict[str, str], number: int, /, **more: object) -> bytes:
    """The header of a command in the Java client's words; ``more`` by name."""
    usual = {
        **{"code": int(RequestCode.SEND_MESSAGE_V2), "extFields": fields, "flag": 0, "language": "JAVA"},
        **{"opaque": number, "serializeTypeCurrentRPC": "JSON", "version": 513},
    }
    return json.dumps(usual | more, separators=(",", ":")).encode()


def send_frame(number: int, body: bytes = b"body", *, flag: int = 0, topic: str = "T", **more: str) -> bytes:
    """A usual send."""
    return frame(header_of(fields_of(number, topic, **more), number, flag=flag), body)


def properties_text(rng: random.Random) -> str:
    """Properties that may be plain, and mostly are."""
    entries = [f"UNIQ_KEY\x01{rng.getrandbits(64):x}", "WAIT\x01true", f"KEYS\x01{rng.randrange(99)} k"]
    if not rng.randrange(4):
        entry = f"{rng.choice(NAMES)}\x01{rng.choice('1ü')}"
        entries.append(rng.choice(["", "a", "a\x01", "\x01b", "a\x01b\x01c", entry]))
    rng.shuffle(entries)
    return "\x02".join(entries) + rng.choice(["", "\x02"])


def odd_frame(rng: random.Random, number: int) -> bytes:
    """A send that is plain, or differs from one in a thing or two."""
    fields = fields_of(number, i=properties_text(rng), g=str(rng.randrange(1 << 41)), h=str(rng.randrange(-9, 9)))
    fields["j"] = str(rng.randrange(4))
    flag, more = rng.choice([0, 0, ONEWAY]), {}
    for _ in range(rng.choice([0, 0, 1, 2])):
        match rng.randrange(9):
            case 0:
                del fields[rng.choice(list(fields))]
            case 1:
                fields[rng.choice("defghjl")] = rng.choice(NUMBERS)
            case 2:
                fields[rng.choice("abckmnzi")] = rng.choice(["true", "TRUE", "ü", 'a"b', "a\\b", "\n", "", "a b"])
            case 3:
                more[rng.choice(["remark", "language", "new"])] = rng.choice([None, "x", "ü", 5, True, [], {}])
            case 4:
                more[rng.choice(COMMAND)] = rng.choice([0, 1, 310, "7", None, 1 << 31, -3])
            case 5:
                fields = dict(rng.sample(list(fields.items()), len(fields)))
            case 6:
                fields["zz"] = rng.choice(["1", "a/b+c==", "ü"])
            case 7:
                fields["f"] = rng.choice(["1", "4", "8", "12", "16"])
            case 8:
                fields["b"] = "T"[: rng.randrange(2)]
    header = header_of(fields, rng.randint(-(1 << 31), (1 << 31) - 1), **({"flag": flag} | more))
    match rng.randrange(24):
        case 0:
            header = header.replace(b",", b", ", 1)
        case 1:
            header = header[: rng.randrange(len(header))]
        case 2:
            header = header.replace(b'"e":', b'"e":"1","e":')
        case 3:
            header = bytes([*header[:9], rng.randrange(256), *header[10:]])
        case 4:
            header = header.replace(b'"0"', b"0", 1)
    return frame(header, rng.randbytes(rng.randrange(60)))
