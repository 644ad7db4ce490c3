"""The accounts of plain_acl.yml as users with policies that allow no more than the file does.

=============================  ======================================================================================
plain_acl.yml                  users and policies
=============================  ======================================================================================
``admin: true``                a super user
``topicPerms: [T=PUB]``        Custom: Allow Pub of ``Topic:T``; Default: Deny All of ``Topic:T``, because a listed
                               topic has nothing of the default permission
``topicPerms: [T=DENY]``       Custom: Deny All of ``Topic:T``
``defaultTopicPerm: PUB|SUB``  Default: Allow Pub, Sub, Get of ``Topic:*``; Deny Sub, Get of topics with the messages of
                               others, such as traces and timers, and All of dead letters of groups that it may not read
``groupPerms``, default        the same for ``Group:``, where only SUB counts
white addresses                nothing: they need no signature in 4.x, and all requests of users are signed
=============================  ======================================================================================

SUB becomes Sub and Get, because a consumer asks for the bounds of queues and the members of its group. PUB becomes Pub
alone. (RocketMQ's AuthMigrator gives Sub without Get, and a listed permission in addition to the default one.)

Source: AuthMigrator (5.5.0), PlainPermissionManager (4.9.8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from gantrymq.auth.imports import ImportSource
from gantrymq.auth.policies import (
    Action,
    Policy,
    PolicyDecision,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourcePattern,
    ResourceType,
)
from gantrymq.auth.users import User, UserType, wrong_name
from gantrymq.broker import names
from gantrymq.broker.acl.accounts import PUB, SUB, Account, Accounts, parse_accounts
from gantrymq.errors import AccessError

_READS = (Action.SUB, Action.GET)
_WHITE = "requests from them need no signature there; here every request needs one"


def read_accounts(file: Path, clusters: Iterable[str]) -> Accounts:
    """The accounts of a file, for brokers of ``clusters``. Raises OSError, and ConfigError for an invalid file."""
    mixed = frozenset(f"{cluster}{names.REPLY_TOPIC_SUFFIX}" for cluster in clusters)
    return parse_accounts(file.read_bytes(), str(file), mixed)


def import_accounts(accounts: Accounts) -> ImportSource:
    """The users and policies of accounts, and what has no counterpart."""
    source = ImportSource()
    if accounts.white_patterns:
        listed = ", ".join(accounts.white_patterns)
        source.problem("", f"globalWhiteRemoteAddresses ({listed}) is not taken: {_WHITE}")
    for name, account in accounts.by_key.items():
        source.add_user(User(name, account.secret_key, UserType.SUPER if account.admin else UserType.NORMAL))
        if account.white_patterns:
            listed = ", ".join(account.white_patterns)
            source.problem(name, f"whiteRemoteAddress ({listed}) is not taken: {_WHITE}")
        if not account.admin and name in source.users:
            source.add_policies(name, partial(_policies, account))
    return source


def _policies(account: Account) -> list[Policy]:
    """The policies of an account. Raises AccessError for a name that no resource can have."""
    custom = [
        *_listed(ResourceType.TOPIC, account.topics),
        *_listed(ResourceType.GROUP, {name: permission & SUB for name, permission in account.groups.items()}),
    ]
    default = [
        *_hidden_defaults(ResourceType.TOPIC, account.topics, account.default_topic),
        *_hidden_defaults(ResourceType.GROUP, account.groups, account.default_group & SUB),
        *_dead_letters(account),
        *_mixed_topics(account),
        *_entry(Resource(ResourceType.TOPIC, "", ResourcePattern.ANY), account.default_topic),
        *_entry(Resource(ResourceType.GROUP, "", ResourcePattern.ANY), account.default_group & SUB),
    ]
    return [Policy(PolicyType.CUSTOM, tuple(custom)), Policy(PolicyType.DEFAULT, tuple(default))]


def _actions(permission: int) -> tuple[Action, ...]:
    return ((Action.PUB,) if permission & PUB else ()) + (_READS if permission & SUB else ())


def _entry(resource: Resource, permission: int) -> Iterator[PolicyEntry]:
    """An Allow of what the permission has; nothing without one, because what no entry matches is denied."""
    if permission:
        yield PolicyEntry(resource, _actions(permission), PolicyDecision.ALLOW)


def _deny(resource: Resource, *actions: Action) -> PolicyEntry:
    return PolicyEntry(resource, actions or (Action.ALL,), PolicyDecision.DENY)


def _literal(kind: ResourceType, name: str) -> Resource:
    wrong = wrong_name(name)
    if wrong is not None:  # a star would be taken for a prefix, which 4.x does not have
        raise AccessError(f"The {kind.value.lower()} name {name[:64]!r} {wrong}.")
    return Resource(kind, name)


def _listed(kind: ResourceType, permissions: Mapping[str, int]) -> Iterator[PolicyEntry]:
    for name, permission in permissions.items():
        resource = _literal(kind, name)
        yield from _entry(resource, permission) if permission else (_deny(resource),)


def _hidden_defaults(kind: ResourceType, permissions: Mapping[str, int], default: int) -> Iterator[PolicyEntry]:
    """A Deny for each name of which the default would allow more than its own permission."""
    for name, permission in permissions.items():
        if permission and default & ~permission:
            yield _deny(_literal(kind, name))


def _dead_letters(account: Account) -> Iterator[PolicyEntry]:
    """The dead letters of a group have the default permission only if the account may read as that group."""
    default = account.default_topic
    if not default:
        return
    for group, permission in account.groups.items():
        topic = names.dlq_topic(group)
        if topic not in account.topics and (permission & SUB) != (account.default_group & SUB):
            resource = _literal(ResourceType.TOPIC, topic)
            yield from _entry(resource, default) if permission & SUB else (_deny(resource),)
    if not account.default_group & SUB:
        yield _deny(Resource(ResourceType.TOPIC, names.DLQ_PREFIX, ResourcePattern.PREFIXED))


def _mixed_topics(account: Account) -> Iterable[PolicyEntry]:
    """A Deny of reading topics that hold the messages of others, unless the account lists them."""
    if not account.default_topic & SUB:
        return []
    topics = sorted(topic for topic in names.MIXED_TOPICS | account.mixed_topics if topic not in account.topics)
    literal = [Resource(ResourceType.TOPIC, topic) for topic in topics]
    system = Resource(ResourceType.TOPIC, names.SYSTEM_TOPIC_PREFIX, ResourcePattern.PREFIXED)
    return [_deny(resource, *_READS) for resource in [*literal, system]]
