"""``plain_acl.yml``: accounts, their secrets, and what each may do.

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

What is not said is denied.

Source: PlainPermissionManager, RemoteAddressStrategyFactory, Permission.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gantrymq.errors import ConfigError

PUB, SUB = 4, 8  # Permission.PUB, Permission.SUB
_PERMISSIONS = {"DENY": 0, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
_LEAST_KEY, _LEAST_SECRET = 6, 6  # AclConstants' minimal lengths

AddressRule = Callable[[str], bool]


@dataclass(frozen=True)
class Account:
    """One account; permissions are sums of PUB and SUB, 0 denies."""

    access_key: str
    secret_key: str = field(repr=False)
    is_white: AddressRule = field(repr=False)
    admin: bool = False
    default_topic: int = 0
    default_group: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)

    def may(self, name: str, wanted: int, *, group: bool) -> bool:
        """Whether the account may do that, or one of those, with a topic or a group."""
        if self.admin:
            return True
        listed = (self.groups if group else self.topics).get(name)
        held = (self.default_group if group else self.default_topic) if listed is None else listed
        return held & wanted != 0


@dataclass(frozen=True)
class Accounts:
    """All accounts of a file, and the addresses that need none."""

    is_white: AddressRule
    by_key: dict[str, Account]


def parse_accounts(raw: bytes, path: str) -> Accounts:
    """What the file says; raises ConfigError where it says something else."""
    try:
        value = msgspec.yaml.decode(raw) or {}
    except ImportError as error:
        raise ConfigError("aclEnable", "true", "false, unless PyYAML is installed (pip install pyyaml)") from error
    except (msgspec.DecodeError, ValueError) as error:  # the latter of a date that is none
        raise ConfigError(path, "", f"YAML ({error})") from error
    if not isinstance(value, dict) or not isinstance(value.get("accounts") or [], list):
        raise ConfigError(path, "", "globalWhiteRemoteAddresses and accounts")
    accounts = [_account(one, path) for one in value.get("accounts") or []]
    return Accounts(
        address_rule(_texts(value.get("globalWhiteRemoteAddresses"))), {one.access_key: one for one in accounts}
    )


def _account(value: Any, path: str) -> Account:
    if not isinstance(value, dict):
        raise ConfigError(path, value, "an account with accessKey and secretKey")
    key, secret = str(value.get("accessKey") or ""), str(value.get("secretKey") or "")
    if len(key) <= _LEAST_KEY or len(secret) <= _LEAST_SECRET:
        raise ConfigError("accessKey", key, f"more than {_LEAST_KEY} characters, in the key and in its secret")
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
    return [str(one) for one in value] if isinstance(value, list) else []


def address_rule(patterns: Iterable[str]) -> AddressRule:
    """Whether an address fits one of them: ``*``, ``10.1.2.3``, ``10.1.*``, ``10.1.2.1-9``, ``10.1.2.{3,4}``, a net."""
    rules = [_one_rule(pattern.strip()) for pattern in patterns]
    return lambda address: any(rule(address) for rule in rules)


def _one_rule(pattern: str) -> AddressRule:
    if pattern in ("*", "*.*.*.*"):
        return lambda _: True
    if "/" in pattern or ":" in pattern:
        try:
            net = ipaddress.ip_network(pattern, strict=False)
        except ValueError as error:
            raise ConfigError("whiteRemoteAddress", pattern, "an address or a pattern of one") from error
        return lambda address: ipaddress.ip_address(address) in net
    parts = pattern.split(".")
    choices = [_choice(pattern, part) for part in parts]

    def fits(address: str) -> bool:
        numbers = address.split(".")
        if len(numbers) != 4 or not all(number.isdecimal() for number in numbers):
            return False
        return all(choice is None or int(number) in choice for choice, number in zip(choices, numbers, strict=False))

    if len(parts) != 4 and choices[-1] is not None:
        raise ConfigError("whiteRemoteAddress", pattern, "an address or a pattern of one")
    return fits


def _choice(pattern: str, part: str) -> range | list[int] | None:
    """The numbers that a part of a pattern allows; None for all."""
    try:
        if part == "*":
            return None
        if part.startswith("{") and part.endswith("}"):
            return [int(one) for one in part[1:-1].split(",")]
        first, _, last = part.partition("-")
        return range(int(first), int(last or first) + 1)
    except ValueError as error:
        raise ConfigError("whiteRemoteAddress", pattern, "an address or a pattern of one") from error
