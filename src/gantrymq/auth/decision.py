"""Whether a user may do something, and which entry of which policy decides it.

1. A super user may do everything, and no policy is read.
2. An entry matches if its resource, one of its actions, and one of its addresses do. Entries of the custom policy
   count; only if none of them matches, those of the default policy.
3. Of the entries that match the first decides, in this order: a resource type before ``*``; a literal name, the longest
   prefix, a shorter one, every name; Deny before Allow.
4. What no entry matches is denied.

So an Allow of ``Topic:orders`` wins over a Deny of ``Topic:*``, and an entry for another address is as if absent.

Source: UserAuthorizationHandler, AclAuthorizationHandler.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gantrymq.auth.policies import (
    NO_POLICIES,
    Acl,
    Action,
    PolicyDecision,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourcePattern,
    ResourceType,
)
from gantrymq.auth.users import User, standing_refusal

_MAX_KNOWN = 4096  # verdicts of one user that are kept until a policy changes
_RANK = {ResourcePattern.LITERAL: 0, ResourcePattern.PREFIXED: 1, ResourcePattern.ANY: 2}


class ResourceAccess(NamedTuple):
    """What a request wants: any one of ``actions`` on the resource."""

    resource: Resource
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to one access. ``policy`` and ``entry`` are None if none decided.

    ``reason`` tells people why. ``refusal`` is RocketMQ's text for a denied request, empty for an allowed one.
    """

    decision: PolicyDecision
    access: ResourceAccess | None
    policy: PolicyType | None
    entry: PolicyEntry | None
    reason: str
    refusal: str = ""

    @property
    def is_allowed(self) -> bool:
        """Whether the access is allowed."""
        return self.decision is PolicyDecision.ALLOW


_SUPER = Verdict(PolicyDecision.ALLOW, None, None, None, "a super user may do everything")
_NOTHING_ASKED = Verdict(PolicyDecision.ALLOW, None, None, None, "every user may do this")


class UserPermissions:
    """A user with its policies. The policies do not change: a change makes another object.

    Thread rule: one thread, because verdicts are remembered.
    """

    def __init__(self, user: User, acl: Acl | None) -> None:
        self.user = user
        self._acl = acl or NO_POLICIES
        self._known: dict[tuple[ResourceAccess, str], Verdict] = {}

    def check(self, accesses: Iterable[ResourceAccess], ip: str) -> Verdict:
        """The verdict on all ``accesses`` from an address: that of the first that is denied, or of the last."""
        if self.user.is_super:
            return _SUPER
        verdict = _NOTHING_ASKED
        for access in accesses:
            verdict = self._decide(access, ip)
            if not verdict.is_allowed:
                break
        return verdict

    def _decide(self, access: ResourceAccess, ip: str) -> Verdict:
        known = self._known.get((access, ip))
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[access, ip] = decide(self.user.name, self._acl, access, ip)
        return known


def check_name(name: str, user: User | None, acl: Acl | None, access: ResourceAccess, ip: str) -> Verdict:
    """The verdict on one access by the user ``name``. A user that is unknown (None) or disabled may do nothing."""
    refused = standing_refusal(name, user)
    if user is None or refused is not None:
        return Verdict(PolicyDecision.DENY, access, None, None, refused or "", refused or "")
    return UserPermissions(user, acl).check([access], ip)


def decide(username: str, acl: Acl, access: ResourceAccess, ip: str) -> Verdict:
    """The verdict of a normal user's policies on one access from an address."""
    refused = f"User:{username} has no permission to access {access.resource.key} from {ip}, "
    for policy_type in PolicyType:
        policy = acl.policy(policy_type)
        matching = [entry for entry in policy.entries if _matches(entry, access, ip)] if policy is not None else []
        if matching:
            entry = min(matching, key=_order)
            is_allowed = entry.decision is PolicyDecision.ALLOW
            return Verdict(
                entry.decision,
                access,
                policy_type,
                entry,
                f"{entry.decision.value} of {entry.resource.key} in the {policy_type.value} policy is the first of "
                f"{len(matching)} that match",
                "" if is_allowed else f"{refused}the decision is deny.",
            )
    return Verdict(PolicyDecision.DENY, access, None, None, "no entry matches", f"{refused}no matched policies.")


def _matches(entry: PolicyEntry, access: ResourceAccess, ip: str) -> bool:
    return entry.resource.matches(access.resource) and entry.allows_action(access.actions) and entry.covers(ip)


def _order(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    """A key that sorts entries by their precedence. Equal ones keep the order of the policy."""
    resource = entry.resource
    prefix_length = len(resource.name) if resource.pattern is ResourcePattern.PREFIXED else 0
    return (
        resource.type is ResourceType.ANY,
        _RANK[resource.pattern],
        -prefix_length,
        entry.decision is PolicyDecision.ALLOW,
    )
