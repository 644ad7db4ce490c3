"""Which addresses a pattern of ``plain_acl.yml`` means.

================================  ================================================================
pattern                           addresses
================================  ================================================================
``*``                             all; so are ``*.*.*.*`` and ``*:*:*:*:*:*:*:*``
``10.1.2.3``, ``2001::1``         the one
``10.1.*``, ``2001:*``            those that begin so: a star at the end stands for all the parts that are left
``10.1.2.1-9``, ``2001::1-ff``    those with a part from one number to another, behind which more parts may come
``10.1.2.{3,4}``, ``2001::{1,2}`` those with one of these parts
``10.1.2.3,10.1.2.4``             those of each pattern in a list
``10.1.0.0/16``, ``2001::/16``    those of a net
================================  ================================================================

All but nets are RocketMQ's, which refuses some of what can be put together out of them.

Source: RemoteAddressStrategyFactory, AclUtils (4.9.8).
"""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from gantrymq.errors import ConfigError

AddressRule = Callable[[str], bool]

_ALL = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_WILD = re.compile("[*{-]")
_commas = re.compile(r",(?![^{]*})").split  # not those between braces
_ADDRESSES_KNOWN = 1024

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Fits = Callable[[_Address], bool]


class _Version(NamedTuple):
    """How the addresses of one version of IP are written, and their numbers packed."""

    separator: str
    base: int
    parts: int
    numbers: range
    packed: struct.Struct


_VERSIONS = {
    4: _Version(".", 10, 4, range(1 << 8), struct.Struct(">4B")),
    6: _Version(":", 16, 8, range(1 << 16), struct.Struct(">8H")),
}


def address_rule(patterns: Iterable[str]) -> AddressRule:
    """Whether an address fits one of them; raises ConfigError where one is no pattern."""
    single = [one.strip() for pattern in patterns for one in _commas(pattern) if one.strip()]
    if any(one in _ALL for one in single):
        return lambda _: True
    rules = [_rule(one) for one in single]

    def fits(text: str) -> bool:
        address = _parsed(text) if rules else None
        return address is not None and any(rule(address) for rule in rules)

    return fits


@lru_cache(maxsize=_ADDRESSES_KNOWN)  # each request asks, and the same clients come again and again
def _parsed(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _rule(pattern: str) -> _Fits:
    try:
        return _parts_rule(pattern) if _WILD.search(pattern) else _net_rule(pattern)
    except ValueError as error:
        raise ConfigError("whiteRemoteAddress", pattern, "an address or a pattern of one") from error


def _net_rule(pattern: str) -> _Fits:
    net = ipaddress.ip_network(pattern, strict=False)
    return lambda address: address in net


def _parts_rule(pattern: str) -> _Fits:
    version = 6 if ":" in pattern else 4
    written = _VERSIONS[version]
    choices = [_choice(part, written) for part in _parts(pattern, written)]

    def fits(address: _Address) -> bool:
        if address.version != version:
            return False
        return all(
            number in choice for number, choice in zip(written.packed.unpack(address.packed), choices, strict=True)
        )

    return fits


def _parts(pattern: str, written: _Version) -> list[str]:
    """As many as an address has, ``::`` and a star at the end written out; raises ValueError where they are not."""
    head, is_short, tail = pattern.partition("::")
    front, back = (side.split(written.separator) if side else [] for side in (head, tail))
    missing = written.parts - len(front) - len(back)
    if is_short and missing > 0:
        return front + ["0"] * missing + back
    if pattern.endswith("*"):
        front += ["*"] * missing
    if is_short or len(front) != written.parts:
        raise ValueError(f"not {written.parts} parts")
    return front


def _choice(part: str, written: _Version) -> Sequence[int]:
    """The numbers that a part of a pattern allows; raises ValueError where it is none."""
    if part == "*":
        return written.numbers
    if part.startswith("{") and part.endswith("}"):
        return [_number(one, written) for one in part[1:-1].split(",")]
    first, dash, last = part.partition("-")
    low = _number(first, written)
    high = _number(last, written) if dash else low
    if low > high:
        raise ValueError(f"{part} is from more to less")
    return range(low, high + 1)


def _number(text: str, written: _Version) -> int:
    number = int(text, written.base)
    if number not in written.numbers:
        raise ValueError(f"{text} is too large")
    return number
