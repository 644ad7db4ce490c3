"""What a subject may do: entries of resource, actions, addresses and decision, in policies of two types.

====================  ==========================================================
resource              matches
====================  ==========================================================
``*``                 every topic, group and cluster
``Topic:*``           every topic
``Topic:orders-*``    the topics whose name begins with ``orders-``
``Topic:orders``      this topic
====================  ==========================================================

The same with ``Group:`` and ``Cluster:``. ``Namespace:`` is known and matches nothing, because no request names one.

Source: Resource, PolicyEntry, Policy, Acl, Environment, AuthorizationMetadataManagerImpl, IPAddressUtils.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from gantrymq.auth.users import NamedEnum, wrong_name
from gantrymq.errors import AccessError

MAX_ENTRIES = 10_000  # of one subject
MAX_SOURCE_IPS = 1_000  # of one entry
_ANY = "*"
_ADDRESSES_KNOWN = 4096


class Action(NamedEnum):
    """What a request does to a resource. ``ALL`` in an entry means every action; ``ANY`` is in no entry."""

    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class ResourceType(NamedEnum):
    """The kind of a resource. ``ANY`` stands for every kind."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class ResourcePattern(NamedEnum):
    """Whether a resource is one name, all names with a prefix, or every name."""

    ANY = "Any"
    LITERAL = "Literal"
    PREFIXED = "Prefixed"


class PolicyDecision(NamedEnum):
    """What an entry says of what it matches."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(NamedEnum):
    """Entries of the default policy count only where none of the custom policy matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Resource(NamedTuple):
    """A resource of a request, or the pattern of an entry. ``name`` is empty for the pattern ANY."""

    type: ResourceType
    name: str
    pattern: ResourcePattern = ResourcePattern.LITERAL

    @property
    def key(self) -> str:
        """The resource as RocketMQ writes it, as ``Topic:orders-*``."""
        if self.type is ResourceType.ANY:
            return _ANY
        star = "" if self.pattern is ResourcePattern.LITERAL else _ANY
        return f"{self.type.value}:{self.name}{star}"

    def matches(self, resource: Resource) -> bool:
        """Whether the pattern of an entry matches a resource of a request."""
        if self.type is ResourceType.ANY:
            return True
        if self.type is not resource.type:
            return False
        if self.pattern is ResourcePattern.LITERAL:
            return self.name == resource.name
        return resource.name.startswith(self.name)


def parse_resource(key: str) -> Resource | None:
    """The resource of a text; None for a blank one or one of an unknown type.

    Raises AccessError for a name that no resource can have. RocketMQ takes ``Topic:a*b*`` for the prefix ``a``.
    """
    type_name, _, name = key.partition(":")
    resource_type = ResourceType.ANY if key == _ANY else ResourceType.of(type_name)
    if resource_type is None:
        return None
    if resource_type is ResourceType.ANY:
        return Resource(ResourceType.ANY, "", ResourcePattern.ANY)
    if name == _ANY:
        return Resource(resource_type, "", ResourcePattern.ANY)
    pattern = ResourcePattern.PREFIXED if name.endswith(_ANY) else ResourcePattern.LITERAL
    name = name[:-1] if pattern is ResourcePattern.PREFIXED else name
    wrong = wrong_name(name)
    if wrong is not None:
        raise AccessError(f"The resource name {wrong}.")
    return Resource(resource_type, name, pattern)


class AddressRange(NamedTuple):
    """The addresses from ``low`` to ``high``, as numbers.

    As in RocketMQ an IPv4 address is its 32-bit number in an IPv6 network, too, so that ``::/0`` is every address.
    """

    text: str
    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> AddressRange | None:
        """The range of an address or a network (CIDR), or None for another text."""
        address, slash, prefix = text.partition("/")
        try:
            number, bits = _number(ipaddress.ip_address(address))
            if slash and not (prefix.isascii() and prefix.isdigit() and len(prefix) <= 3 and int(prefix) <= bits):
                return None
        except ValueError:
            return None
        size = 1 << (bits - int(prefix)) if slash else 1
        low = number - number % size
        return cls(text, low, low + size - 1)


def _number(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> tuple[int, int]:
    """The number of an address, and how many bits it has. An IPv4 address in an IPv6 one counts as itself."""
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return (int(address), 128) if mapped is None else (int(mapped), 32)
    return int(address), 32


@lru_cache(maxsize=_ADDRESSES_KNOWN)
def _address_number(text: str) -> int | None:
    try:
        return _number(ipaddress.ip_address(text))[0]
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One entry. Without ``sources`` it holds for every address."""

    resource: Resource
    actions: tuple[Action, ...]
    decision: PolicyDecision
    sources: tuple[AddressRange, ...] = ()

    def allows_action(self, actions: Iterable[Action]) -> bool:
        """Whether the entry names one of the actions."""
        return Action.ALL in self.actions or any(action in self.actions for action in actions)

    def covers(self, ip: str) -> bool:
        """Whether the entry holds for an address."""
        if not self.sources:
            return True
        number = _address_number(ip)
        return number is not None and any(source.low <= number <= source.high for source in self.sources)


@dataclass(frozen=True, slots=True)
class Policy:
    """The entries of one type."""

    type: PolicyType
    entries: tuple[PolicyEntry, ...]


@dataclass(frozen=True, slots=True)
class Acl:
    """All policies of one user, at most one of each type."""

    policies: tuple[Policy, ...]

    def policy(self, policy_type: PolicyType) -> Policy | None:
        """The policy of a type, or None."""
        return next((policy for policy in self.policies if policy.type is policy_type), None)

    def merged(self, given: Sequence[Policy]) -> Acl:
        """With the entries of ``given``: one for the same resource is replaced, others stay. Raises AccessError."""
        policies = {policy.type: list(policy.entries) for policy in self.policies}
        for policy in given:
            if policy.type not in policies:
                policies[policy.type] = list(policy.entries)
                continue
            for entry in policy.entries:
                _replace_or_append(policies[policy.type], entry)
        if sum(map(len, policies.values())) > MAX_ENTRIES:
            raise AccessError(f"The subject has more than {MAX_ENTRIES} policy entries.")
        return Acl(tuple(Policy(policy_type, tuple(entries)) for policy_type, entries in policies.items()))

    def without(self, policy_type: PolicyType, resource: Resource) -> Acl:
        """Without the entry for a resource; a policy without entries leaves."""
        policies = []
        for policy in self.policies:
            entries = list(policy.entries)
            if policy.type is policy_type:
                at = next((i for i, entry in enumerate(entries) if entry.resource == resource), None)
                if at is not None:
                    del entries[at]
            if entries:
                policies.append(replace(policy, entries=tuple(entries)))
        return Acl(tuple(policies))

    def filtered(self, text: str) -> Acl:
        """Only the entries whose resource contains ``text``."""
        policies = [
            replace(policy, entries=tuple(entry for entry in policy.entries if text in entry.resource.key))
            for policy in self.policies
        ]
        return Acl(tuple(policy for policy in policies if policy.entries))


NO_POLICIES = Acl(())


def _replace_or_append(entries: list[PolicyEntry], entry: PolicyEntry) -> None:
    for at, old in enumerate(entries):
        if old.resource == entry.resource:
            entries[at] = entry
            return
    entries.append(entry)


def parse_entry(
    resource: str | None,
    actions: Iterable[str | None] | None,
    source_ips: Iterable[str | None] | None,
    decision: str | None,
) -> PolicyEntry:
    """An entry from the texts of a request or a file. Unknown actions are dropped. Raises AccessError."""
    parsed = parse_resource(resource or "")
    if parsed is None:
        raise AccessError("The resource is null.")
    known = tuple(dict.fromkeys(action for name in actions or () if (action := Action.of(name)) is not None))
    if not known:
        raise AccessError("The actions is empty.")
    if Action.ANY in known:
        raise AccessError("The actions can not be Any.")
    sources = tuple(_source(text or "") for text in source_ips or ())
    if len(sources) > MAX_SOURCE_IPS:
        raise AccessError(f"The entry has more than {MAX_SOURCE_IPS} source ips.")
    decided = PolicyDecision.of(decision)
    if decided is None:
        raise AccessError("The decision is null or illegal.")
    return PolicyEntry(parsed, known, decided, sources)


def _source(text: str) -> AddressRange:
    if not text.strip():
        raise AccessError("The source ip is empty.")
    source = AddressRange.parse(text)
    if source is None:
        raise AccessError("The source ip is invalid.")
    return source
