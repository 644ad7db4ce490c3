"""All users and their policies, as one value, and the rules of each change.

A change returns another directory and leaves the old one as it is, so that a change that could not be written has
changed nothing. Texts of refusals are RocketMQ's.

Source: AuthenticationMetadataManagerImpl, AuthorizationMetadataManagerImpl, LocalAuthenticationMetadataProvider,
LocalAuthorizationMetadataProvider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gantrymq.auth.policies import NO_POLICIES, Acl, Policy, PolicyType, Resource
from gantrymq.auth.users import User, UserStatus, UserType, check_password, check_username
from gantrymq.config.auth_settings import UserSettings
from gantrymq.config.keys import MASK
from gantrymq.errors import AccessError, ConfigError

Value = TypeVar("Value")
MAX_USERS = 100_000
_SUBJECT = "User"
_ONLY_SUPER = "The super user can only be {} by super user"


def subject_of(username: str) -> str:
    """The subject of a user, as RocketMQ writes it."""
    return f"{_SUBJECT}:{username}"


def user_of(subject: str | None) -> str | None:
    """The user of a subject such as ``User:alice``; None for another type of subject."""
    kind, _, name = (subject or "").partition(":")
    return name if kind.lower() == _SUBJECT.lower() else None


@dataclass(frozen=True, slots=True)
class AccessDirectory:
    """Users by name, and their policies by the same name.

    ``by_super`` of a change says whether a super user asks for it: only such a one may create, change or delete
    super users.
    """

    users: Mapping[str, User]
    acls: Mapping[str, Acl]

    # Users

    def with_initial_users(self, settings: UserSettings) -> AccessDirectory:
        """With the super users of a server's settings, as far as no user has their names.

        Raises ConfigError for a name or a password that no user may have.
        """
        changed = self
        try:
            for name, password in settings.initial_users:
                if name not in changed.users:
                    changed = changed.create_user(User(name, password, UserType.SUPER), by_super=True)
        except (AccessError, ValueError) as error:
            raise ConfigError("initAuthenticationUser", MASK, f"the name and password of a user: {error}") from None
        return changed

    def create_user(self, user: User, *, by_super: bool) -> AccessDirectory:
        """With another user. Raises AccessError."""
        if user.is_super and not by_super:
            raise AccessError(_ONLY_SUPER.format("create"))
        check_username(user.name)
        check_password(user.password)
        if user.name in self.users:
            raise AccessError("The user is existed")
        if len(self.users) >= MAX_USERS:
            raise AccessError(f"there are {MAX_USERS} users, and no more")
        return replace(self, users={**self.users, user.name: user})

    def update_user(
        self,
        name: str,
        *,
        password: str | None,
        user_type: UserType | None,
        status: UserStatus | None,
        by_super: bool,
    ) -> AccessDirectory:
        """With another password, type or status of a user; None and a blank password change nothing.

        Raises AccessError.
        """
        if user_type is UserType.SUPER and not by_super:
            raise AccessError(_ONLY_SUPER.format("update"))
        old = self.users.get(name)
        if old is None:
            raise AccessError("The user is not exist")
        if old.is_super and not by_super:
            raise AccessError(_ONLY_SUPER.format("update"))
        if password is None or not password.strip():
            password = old.password
        check_password(password)
        changed = replace(old, password=password, type=user_type or old.type, status=status or old.status)
        return replace(self, users={**self.users, name: changed})

    def delete_user(self, name: str, *, by_super: bool) -> AccessDirectory:
        """Without a user and its policies; an unknown one is fine. Raises AccessError."""
        old = self.users.get(name)
        if old is None:
            return self
        if old.is_super and not by_super:
            raise AccessError(_ONLY_SUPER.format("update"))
        return AccessDirectory(_without(self.users, name), _without(self.acls, name))

    def users_with(self, text: str) -> list[User]:
        """The users whose name contains ``text``, in the order of RocketMQ's table."""
        return [self.users[name] for name in _sorted(self.users) if text in name]

    # Policies

    def merge_acl(self, name: str, policies: Sequence[Policy]) -> AccessDirectory:
        """With entries of a user's policies added, or replaced for the same resources. Raises AccessError."""
        if not policies:
            raise AccessError("The policies is empty.")
        if name not in self.users:
            raise AccessError(f"The subject of {subject_of(name)} is not exist.")
        return replace(self, acls={**self.acls, name: self.acls.get(name, NO_POLICIES).merged(policies)})

    def delete_acl(self, name: str, policy_type: PolicyType, resource: Resource | None) -> AccessDirectory:
        """Without a user's entry of one resource, or without all its policies. Raises AccessError."""
        acl = self.acl_of(name)
        if acl is None:
            raise AccessError("The acl is not exist.")
        left = acl.without(policy_type, resource) if resource is not None else NO_POLICIES
        acls = {**self.acls, name: left} if left.policies else _without(self.acls, name)
        return replace(self, acls=acls)

    def acl_of(self, name: str) -> Acl | None:
        """The policies of a user, or None. Raises AccessError if there is no such user."""
        if name not in self.users:
            raise AccessError("The subject is not exist.")
        return self.acls.get(name)

    def acls_with(self, subject: str, resource: str) -> list[tuple[str, Acl]]:
        """The policies of the subjects that contain ``subject``, with the entries that contain ``resource``."""
        filtered = [
            (name, self.acls[name].filtered(resource)) for name in _sorted(self.acls) if subject in subject_of(name)
        ]
        return [(name, acl) for name, acl in filtered if acl.policies]


NO_USERS = AccessDirectory({}, {})


def _sorted(table: Mapping[str, object]) -> list[str]:
    """The names in the order of their UTF-8 bytes."""
    return sorted(table, key=str.encode)


def _without(table: Mapping[str, Value], name: str) -> dict[str, Value]:
    return {key: value for key, value in table.items() if key != name}
