"""Users and policies of requests and answers, as values.

Source: UserConverter, AclConverter.
"""

from __future__ import annotations

from collections.abc import Iterable

from gantrymq.auth.directory import subject_of
from gantrymq.auth.policies import Policy, PolicyEntry, PolicyType, parse_entry
from gantrymq.auth.users import User, UserStatus, UserType
from gantrymq.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo


def policies_of(acl: AclInfo) -> list[Policy]:
    """The policies of a body. One without entries is left out. Raises AccessError."""
    policies = []
    for policy in acl.policies:
        entries = [parse_entry(info.resource, info.actions, info.source_ips, info.decision) for info in policy.entries]
        if entries:
            policies.append(Policy(PolicyType.of(policy.policy_type) or PolicyType.CUSTOM, tuple(entries)))
    return policies


def acl_info(name: str, policies: Iterable[Policy]) -> AclInfo:
    """The body with a user's policies."""
    return AclInfo(
        subject=subject_of(name),
        policies=[
            PolicyInfo(policy_type=policy.type.value, entries=[*map(_entry_info, policy.entries)])
            for policy in policies
        ],
    )


def _entry_info(entry: PolicyEntry) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        resource=entry.resource.key,
        actions=[action.value for action in entry.actions],
        source_ips=[source.text for source in entry.sources] or None,
        decision=entry.decision.value,
    )


def user_of_info(info: UserInfo) -> User:
    """The user of an answer. Without a password in it the user's password is empty."""
    return User(
        info.username or "",
        info.password or "",
        UserType.of(info.user_type) or UserType.NORMAL,
        UserStatus.of(info.user_status) or UserStatus.ENABLE,
    )
