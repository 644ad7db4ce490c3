"""``plain_acl.yml``: accounts with their secrets, permissions and allowed addresses.

    globalWhiteRemoteAddresses: [10.10.103.*]
    accounts:
      - accessKey: orders
        secretKey: a-long-secret
        whiteRemoteAddress: 192.168.0.*
        admin: false
        defaultTopicPerm: DENY
        defaultGroupPerm: SUB
        topicPerms: [orders=PUB|SUB]
        groupPerms: [billing=SUB]

What the file does not allow is denied. Patterns of addresses:

================================  ================================================================
pattern                           addresses
================================  ================================================================
``*``                             all; so are ``*.*.*.*`` and ``*:*:*:*:*:*:*:*``
``10.1.2.3``, ``2001::1``         this one
``10.1.*``, ``2001:*``            those with this begin: a star at the end stands for all remaining parts
``10.1.2.1-9``, ``2001::1-ff``    those with a part from one number to the other; more parts may follow
``10.1.2.{3,4}``, ``2001::{1,2}`` those with one of these parts
``10.1.2.3,10.1.2.4``             those of each pattern in a list
``10.1.0.0/16``, ``2001::/16``    those of a network
================================  ================================================================

All patterns but networks are RocketMQ's, which rejects some combinations of them.

Source: PlainPermissionManager, Permission, RemoteAddressStrategyFactory, AclUtils (4.9.8).
"""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from gantrymq.broker import names
from gantrymq.errors import ConfigError

AddressRule = Callable[[str], bool]

_ALL = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_WILD = re.compile("[*{-]")
_commas = re.compile(r",(?![^{]*})").split  # not those between braces
_ADDRESSES_KNOWN = 1024

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Fits = Callable[[_Address], bool]
PUB, SUB = 4, 8  # Permission.PUB, Permission.SUB
_PERMISSIONS = {"DENY": 0, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
_MIN_KEY, _MIN_SECRET = 6, 6  # AclConstants' minimal lengths


class _Version(NamedTuple):
    """The notation of the addresses of one IP version, and the packed form of their numbers."""

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
    """A function that tests whether an address matches one of the patterns.

    Raises ConfigError for an invalid pattern.
    """
    single = [address.strip() for pattern in patterns for address in _commas(pattern) if address.strip()]
    if any(address in _ALL for address in single):
        return lambda _: True
    rules = [_rule(address) for address in single]

    def fits(text: str) -> bool:
        address = _parsed(text) if rules else None
        return address is not None and any(rule(address) for rule in rules)

    return fits


@lru_cache(maxsize=_ADDRESSES_KNOWN)  # called for each request, mostly with the same few addresses
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
    """The parts of a pattern, one for each part of an address. Expands ``::`` and a star at the end.

    Raises ValueError.
    """
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
    """The numbers that a part of a pattern allows. Raises ValueError for an invalid part."""
    if part == "*":
        return written.numbers
    if part.startswith("{") and part.endswith("}"):
        return [_number(number, written) for number in part[1:-1].split(",")]
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


@dataclass(frozen=True)
class Account:
    """One account. Permissions are sums of PUB and SUB; 0 denies.

    ``mixed_topics`` hold messages of other topics, in addition to those that are known by name. ``white_patterns`` are
    the addresses of ``is_white`` as text.
    """

    access_key: str
    secret_key: str = field(repr=False)
    is_white: AddressRule = field(repr=False)
    admin: bool = False
    default_topic: int = 0
    default_group: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    mixed_topics: frozenset[str] = frozenset()
    white_patterns: tuple[str, ...] = ()

    def may(self, name: str, wanted: int, *, group: bool) -> bool:
        """Whether the account has ``wanted``, or one bit of it, on a topic or a group."""
        if self.admin:
            return True
        listed = (self.groups if group else self.topics).get(name)
        if listed is not None:
            return listed & wanted != 0
        if group:
            return self.default_group & wanted != 0
        return self._default_topic(name) & wanted != 0

    def _default_topic(self, name: str) -> int:
        """The permission on a topic that is not listed.

        A system topic that holds messages of other topics is read only by accounts that list it, and the dead letters
        of a group only by accounts that may consume as that group.
        """
        if name.startswith(names.DLQ_PREFIX):
            return self.default_topic if self.may(name[len(names.DLQ_PREFIX) :], SUB, group=True) else 0
        if name in self.mixed_topics or names.is_mixed_topic(name):
            return self.default_topic & ~SUB
        return self.default_topic


@dataclass(frozen=True)
class Accounts:
    """All accounts of a file, and the rule for addresses that need no account."""

    is_white: AddressRule
    by_key: dict[str, Account]
    white_patterns: tuple[str, ...] = ()


def parse_accounts(raw: bytes, path: str, mixed_topics: frozenset[str] = frozenset()) -> Accounts:
    """Parse the file. Raises ConfigError if it is invalid. ``mixed_topics`` as in :class:`Account`."""
    try:
        value = msgspec.yaml.decode(raw) or {}
    except ImportError as error:
        raise ConfigError(
            "aclEnable", "true", "false, unless PyYAML is installed (pip install 'gantrymq[acl]')"
        ) from error
    except (msgspec.DecodeError, ValueError) as error:  # ValueError for an invalid date
        raise ConfigError(path, "", f"YAML ({error})") from error
    if not isinstance(value, dict) or not isinstance(value.get("accounts") or [], list):
        raise ConfigError(path, "", "globalWhiteRemoteAddresses and accounts")
    accounts = [_account(entry, path, mixed_topics) for entry in value.get("accounts") or []]
    white = tuple(_texts(value.get("globalWhiteRemoteAddresses")))
    return Accounts(address_rule(white), {account.access_key: account for account in accounts}, white)


def _account(value: Any, path: str, mixed_topics: frozenset[str]) -> Account:
    if not isinstance(value, dict):
        raise ConfigError(path, value, "an account with accessKey and secretKey")
    key, secret = str(value.get("accessKey") or ""), str(value.get("secretKey") or "")
    if len(key) <= _MIN_KEY or len(secret) <= _MIN_SECRET:
        raise ConfigError("accessKey", key, f"more than {_MIN_KEY} characters, in the key and in its secret")
    white = str(value.get("whiteRemoteAddress") or "")
    return Account(
        access_key=key,
        secret_key=secret,
        is_white=address_rule([white] if white else []),
        admin=value.get("admin") is True,
        default_topic=_permission("defaultTopicPerm", value.get("defaultTopicPerm")),
        default_group=_permission("defaultGroupPerm", value.get("defaultGroupPerm")),
        topics=_permissions("topicPerms", value.get("topicPerms")),
        groups=_permissions("groupPerms", value.get("groupPerms")),
        mixed_topics=mixed_topics,
        white_patterns=(white,) if white else (),
    )


def _permissions(name: str, value: Any) -> dict[str, int]:
    table = {}
    for entry in _texts(value):
        resource, separator, permission = entry.partition("=")
        if not separator:
            raise ConfigError(name, entry, "NAME=DENY, PUB, SUB or PUB|SUB")
        table[resource.strip()] = _permission(name, permission)
    return table


def _permission(name: str, value: Any) -> int:
    text = str(value or "DENY").replace(" ", "").upper()
    if text not in _PERMISSIONS:
        raise ConfigError(name, value, "one of DENY, PUB, SUB, PUB|SUB")
    return _PERMISSIONS[text]


def _texts(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
