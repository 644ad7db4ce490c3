"""A user: name, password, type, status, and which of them are accepted.

RocketMQ signs requests with the password itself (HMAC-SHA1), so it is kept as it is and not as a hash.

Source: User, UserType, UserStatus, AuthenticationMetadataManagerImpl.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from gantrymq.errors import AccessError

MAX_NAME_LENGTH = 255  # characters, of a user or a resource; topics and groups are shorter
MAX_PASSWORD_LENGTH = 4096  # characters
# Cc: line ends and other control characters; Zl, Zp: the line ends of Unicode; Cs: half of a surrogate pair.
_NOT_IN_NAMES = {"Cc", "Zl", "Zp", "Cs"}


class NamedEnum(Enum):
    """An enum whose values are RocketMQ's names."""

    __hash__ = object.__hash__  # that of Enum is a method in Python, and each request hashes several items

    @classmethod
    def of(cls, name: object) -> Self | None:
        """The item with this name, in any case, or None."""
        wanted = name.lower() if isinstance(name, str) else ""
        return next((item for item in cls if item.value.lower() == wanted), None)


class UserType(NamedEnum):
    """A super user may do everything, and no policy is read for it."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(NamedEnum):
    """A disabled user may do nothing."""

    ENABLE = "enable"
    DISABLE = "disable"


@dataclass(frozen=True, slots=True)
class User:
    """One user. ``repr`` has no password."""

    name: str
    password: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        """Whether the user may do everything."""
        return self.type is UserType.SUPER

    @property
    def is_disabled(self) -> bool:
        """Whether the user may do nothing."""
        return self.status is UserStatus.DISABLE


def wrong_name(name: str) -> str | None:
    """Why ``name`` is no name of a user or a resource, or None.

    RocketMQ takes every text. A name with a star would look like a pattern, one with a line end like two log lines.
    """
    if not name.strip():
        return "is blank"
    if len(name) > MAX_NAME_LENGTH:
        return f"has {len(name)} characters, more than {MAX_NAME_LENGTH}"
    if "*" in name:
        return "holds a *"
    if any(unicodedata.category(character) in _NOT_IN_NAMES for character in name):
        return "holds a line end or another control character"
    return None


def standing_refusal(name: str, user: User | None) -> str | None:
    """Why a user of this name may do nothing, in RocketMQ's words; None for an enabled one."""
    if user is None:
        return f"User:{name} is not found."
    return f"User:{user.name} is disabled." if user.is_disabled else None


def check_username(name: str) -> None:
    """Raise AccessError for a name that no user may have."""
    if not name.strip():
        raise AccessError("username can not be blank")
    wrong = wrong_name(name)
    if wrong is not None:
        raise AccessError(f"username {wrong}")


def check_password(password: str) -> None:
    """Raise AccessError for a password that no user may have. The text does not show it."""
    if not password.strip():
        raise AccessError("password can not be blank")
    if len(password) > MAX_PASSWORD_LENGTH:
        raise AccessError(f"password has more than {MAX_PASSWORD_LENGTH} characters")
