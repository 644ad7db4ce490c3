"""The import of users and policies from elsewhere: what can be taken, and what that changes.

Nothing is widened in silence:

- A user with a name or a password that no user may have is a problem, and is left out with its policies.
- If one entry of a user's policies cannot be taken, none of them is, because an entry that is left out may be a Deny.
- What exists in the target and is not in the source stays. What exists and differs is changed only on request.

Thread rule: none, these are values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from gantrymq.auth.directory import MAX_USERS, AccessDirectory
from gantrymq.auth.policies import NO_POLICIES, Acl, Policy, PolicyEntry, PolicyType
from gantrymq.auth.users import User, check_password, check_username
from gantrymq.errors import AccessError


class ImportStatus(StrEnum):
    """What an import does with a user or an entry. ``EXISTS`` is a user whose password cannot be compared."""

    CREATED = "created"
    SAME = "same"
    EXISTS = "exists"
    DIFFERS = "differs"
    CHANGED = "changed"


class ImportProblem(NamedTuple):
    """Something that is not taken: the user, or an empty name for all of them, and the reason. No text has a secret."""

    username: str
    text: str


@dataclass
class ImportSource:
    """What a source has that can be taken, and what cannot be."""

    users: dict[str, User] = field(default_factory=dict)
    acls: dict[str, Acl] = field(default_factory=dict)
    problems: list[ImportProblem] = field(default_factory=list)

    def add_user(self, user: User) -> None:
        """Take a user, or note why not."""
        try:
            check_username(user.name)
            check_password(user.password)
        except AccessError as error:
            self.problem(user.name, f"is not taken: {error}")
            return
        self.users[user.name] = user

    def add_policies(self, name: str, parse: Callable[[], Iterable[Policy]]) -> None:
        """Take the policies of a user that is taken, or note why not. ``parse`` may raise AccessError."""
        if name not in self.users:
            if all(problem.username != name for problem in self.problems):
                self.problem(name, "has policies, but is no user: they are not taken")
            return
        try:
            acl = NO_POLICIES.merged([policy for policy in parse() if policy.entries])
            _refuse_repeated(acl)
        except AccessError as error:
            self.problem(name, f"none of its policies is taken: {error}")
            return
        if acl.policies:
            self.acls[name] = acl

    def problem(self, name: str, text: str) -> None:
        """Note something that is not taken."""
        self.problems.append(ImportProblem(name, text))


def _refuse_repeated(acl: Acl) -> None:
    """Raise AccessError for two entries of one resource: a later merge would replace one by the other."""
    for policy in acl.policies:
        counts = Counter(entry.resource for entry in policy.entries)
        for resource, count in counts.most_common(1):
            if count > 1:
                raise AccessError(f"The {policy.type.value} policy has two entries of {resource.key}.")


class PlannedItem(NamedTuple):
    """What is done with a user, or with one entry of its policies."""

    status: ImportStatus
    username: str
    policy_type: PolicyType | None = None
    entry: PolicyEntry | None = None


class UserChange(NamedTuple):
    """All changes of one user: the user itself if it is created or changed, and the policies to merge."""

    name: str
    user: User | None
    is_new: bool
    policies: Sequence[Policy]


@dataclass(frozen=True)
class ImportPlan:
    """What an import does, in the order of names: users first, then their entries."""

    source: ImportSource
    items: Sequence[PlannedItem]

    @property
    def changes(self) -> list[UserChange]:
        """The changes, user by user."""
        by_name: dict[str, list[PlannedItem]] = {}
        for item in self.items:
            if item.status in (ImportStatus.CREATED, ImportStatus.CHANGED):
                by_name.setdefault(item.username, []).append(item)
        return [self._change(name, items) for name, items in by_name.items()]

    def _change(self, name: str, items: list[PlannedItem]) -> UserChange:
        entries: dict[PolicyType, list[PolicyEntry]] = {}
        user, is_new = None, False
        for item in items:
            if item.policy_type is None or item.entry is None:
                user, is_new = self.source.users[name], item.status is ImportStatus.CREATED
            else:
                entries.setdefault(item.policy_type, []).append(item.entry)
        return UserChange(name, user, is_new, [Policy(kind, tuple(listed)) for kind, listed in entries.items()])


def plan_import(source: ImportSource, target: AccessDirectory, *, replace: bool) -> ImportPlan:
    """The plan for a target. A user of the target with an empty password has one that is not known."""
    items = []
    differs = ImportStatus.CHANGED if replace else ImportStatus.DIFFERS
    for name, user in sorted(source.users.items()):
        items.append(PlannedItem(_user_status(user, target.users.get(name), differs), name))
        old_acl = target.acls.get(name, NO_POLICIES)
        for policy in source.acls.get(name, NO_POLICIES).policies:
            old_policy = old_acl.policy(policy.type)
            old = {entry.resource: entry for entry in old_policy.entries} if old_policy is not None else {}
            for entry in policy.entries:
                before = old.get(entry.resource)
                status = ImportStatus.CREATED if before is None else differs
                status = ImportStatus.SAME if before is not None and _means(before) == _means(entry) else status
                items.append(PlannedItem(status, name, policy.type, entry))
    return ImportPlan(source, items)


def _user_status(user: User, old: User | None, differs: ImportStatus) -> ImportStatus:
    if old is None:
        return ImportStatus.CREATED
    if (user.type, user.status) != (old.type, old.status):
        return differs
    if not old.password:
        return ImportStatus.CHANGED if differs is ImportStatus.CHANGED else ImportStatus.EXISTS
    return ImportStatus.SAME if user.password == old.password else differs


def _means(entry: PolicyEntry) -> object:
    """What an entry says, without the order in which it says it."""
    return entry.decision, frozenset(entry.actions), frozenset((source.low, source.high) for source in entry.sources)


def with_import(target: AccessDirectory, changes: Iterable[UserChange]) -> AccessDirectory:
    """The directory after the changes. Raises AccessError if it would be too large."""
    users, acls = dict(target.users), dict(target.acls)
    for change in changes:
        if change.user is not None:
            users[change.name] = change.user
        if change.policies:
            acls[change.name] = acls.get(change.name, NO_POLICIES).merged(change.policies)
    if len(users) > MAX_USERS:
        raise AccessError(f"there are {MAX_USERS} users, and no more")
    return AccessDirectory(users, acls)
