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

What is not said is denied; addresses are as :mod:`gantrymq.broker.acl.addresses` has them.

Source: PlainPermissionManager, Permission.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from gantrymq.broker import names
from gantrymq.broker.acl.addresses import AddressRule, address_rule
from gantrymq.errors import ConfigError

PUB, SUB = 4, 8  # Permission.PUB, Permission.SUB
_PERMISSIONS = {"DENY": 0, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
_LEAST_KEY, _LEAST_SECRET = 6, 6  # AclConstants' minimal lengths


@dataclass(frozen=True)
class Account:
    """One account; permissions are sums of PUB and SUB, 0 denies.

    ``mixed_topics`` hold messages of other topics, beside those of which that is known by their names.
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

    def may(self, name: str, wanted: int, *, group: bool) -> bool:
        """Whether the account may do that, or one of those, with a topic or a group."""
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
    """All accounts of a file, and the addresses that need none."""

    is_white: AddressRule
    by_key: dict[str, Account]


def parse_accounts(raw: bytes, path: str, mixed_topics: frozenset[str] = frozenset()) -> Accounts:
    """What the file says; raises ConfigError where it says something else. ``mixed_topics`` as in :class:`Account`."""
    try:
        value = msgspec.yaml.decode(raw) or {}
    except ImportError as error:
        raise ConfigError("aclEnable", "true", "false, unless PyYAML is installed (pip install pyyaml)") from error
    except (msgspec.DecodeError, ValueError) as error:  # the latter of a date that is none
        raise ConfigError(path, "", f"YAML ({error})") from error
    if not isinstance(value, dict) or not isinstance(value.get("accounts") or [], list):
        raise ConfigError(path, "", "globalWhiteRemoteAddresses and accounts")
    accounts = [_account(one, path, mixed_topics) for one in value.get("accounts") or []]
    return Accounts(
        address_rule(_texts(value.get("globalWhiteRemoteAddresses"))), {one.access_key: one for one in accounts}
    )


def _account(value: Any, path: str, mixed_topics: frozenset[str]) -> Account:
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
        mixed_topics=mixed_topics,
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
