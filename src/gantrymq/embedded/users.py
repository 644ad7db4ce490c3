"""The users of an embedded broker: ``EmbeddedBroker(users=…)``.

    users={"root": "a-secret", "alice": {"password": "another", "policies": [
        {"resource": "Topic:orders", "actions": ["Pub", "Sub"], "decision": "Allow"}]}}

A text is the password of a super user. An object has ``password`` and, if wanted, ``userType`` (Normal), ``userStatus``
(enable) and ``policies``: entries in the form of RocketMQ's JSON, with ``sourceIps`` if wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gantrymq.auth.directory import AccessDirectory
from gantrymq.auth.policies import Policy, PolicyType, parse_entry
from gantrymq.auth.users import User, UserStatus, UserType, check_password, check_username
from gantrymq.errors import AccessError, ConfigError

Users = Mapping[str, str | Mapping[str, Any]]
_FIELDS = {"password", "userType", "userStatus", "policies"}
_ALLOWED = "a password, or an object with password, userType, userStatus and policies"


class GivenUsers:
    """Users with their policies, from ``users``. Raises ConfigError, which shows no password."""

    def __init__(self, users: Users) -> None:
        self._users: dict[str, tuple[User, list[Policy]]] = {}
        for name, value in users.items():
            try:
                self._users[name] = _parsed(name, {"password": value, "userType": "Super"}, value)
            except (AccessError, TypeError, AttributeError) as error:
                reason = f"{_ALLOWED} ({error})" if isinstance(error, AccessError) else _ALLOWED
                raise ConfigError("users", str(name)[:64], reason) from None

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not self._users

    @property
    def super_user(self) -> User | None:
        """The first super user, or None."""
        return next((user for user, _ in self._users.values() if user.is_super and not user.is_disabled), None)

    def added_to(self, directory: AccessDirectory) -> AccessDirectory:
        """``directory`` with those of the users that it lacks. One that exists stays as it is, with its policies."""
        for name, (user, policies) in self._users.items():
            if name not in directory.users:
                directory = directory.create_user(user, by_super=True)
                directory = directory.merge_acl(name, policies) if policies else directory
        return directory


def _parsed(name: str, of_text: Mapping[str, Any], value: str | Mapping[str, Any]) -> tuple[User, list[Policy]]:
    fields = of_text if isinstance(value, str) else value
    unknown = set(fields) - _FIELDS
    if unknown:
        raise AccessError(f"{min(unknown)} is not known")
    user_type, status = UserType.of(fields.get("userType", "Normal")), UserStatus.of(fields.get("userStatus", "enable"))
    if user_type is None or status is None:
        raise AccessError("userType is Super or Normal, userStatus enable or disable")
    check_username(name)
    check_password(fields.get("password", ""))
    entries = [
        parse_entry(entry.get("resource"), entry.get("actions"), entry.get("sourceIps"), entry.get("decision"))
        for entry in fields.get("policies", ())
    ]
    policies = [Policy(PolicyType.CUSTOM, tuple(entries))] if entries else []
    return User(name, fields["password"], user_type, status), policies
