"""``config/users.json`` and ``config/acls.json``: the durable form of a directory.

    {"users": {"alice": {"password": "…", "userType": "Normal", "userStatus": "enable"}}}
    {"acls": {"User:alice": {"policies": [{"policyType": "Custom", "entries": [{"resource": "Topic:orders",
        "actions": ["Pub"], "sourceIps": ["10.0.0.0/8"], "decision": "Allow"}]}]}}}

Each file is replaced in one step, is readable by its owner only, and has no backup: an old version could let in a user
that was deleted. For the same reason a file that cannot be used stops a start, and stays as it is. A missing file is an
empty one: no user, or no policy, so requests are refused.

RocketMQ keeps the same in two RocksDB databases, ``config/users`` and ``config/acls``.

Thread rule: one thread at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from gantrymq.auth.directory import AccessDirectory, subject_of, user_of
from gantrymq.auth.policies import Acl, Action, Policy, PolicyEntry, PolicyType, parse_entry
from gantrymq.auth.users import User, UserStatus, UserType, check_password, check_username
from gantrymq.errors import AccessError, StoreError
from gantrymq.format.names import ACLS, USERS
from gantrymq.fs.api import FileSystem
from gantrymq.fs.replaced_file import MAX_BYTES, ReplacedFile

Value = TypeVar("Value")
_ENTRY = ("resource", "actions", "sourceIps", "decision")


class AccessFiles:
    """The two files below ``directory``. They know what they hold, so that a save writes what has changed."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._users = ReplacedFile(fs, directory / USERS, is_private=True)
        self._acls = ReplacedFile(fs, directory / ACLS, is_private=True)
        self._held_users: Mapping[str, User] | None = None
        self._held_acls: Mapping[str, Acl] | None = None

    def load(self) -> AccessDirectory:
        """Read both files. Raises StoreError, with line and column, for one that is cut, blank or has another shape."""
        users, acls = self._read(self._users, "users", _user), self._read(self._acls, "acls", _acl)
        self._held_users, self._held_acls = users, acls
        return AccessDirectory(users, acls)

    def save(self, directory: AccessDirectory) -> None:
        """Write what has changed. Returns when it is durable. Raises DiskFullError.

        Policies come first: after a crash in between, a deleted user is left without them, and never the other way
        round.
        """
        users, acls = directory.users, directory.acls
        if acls is not self._held_acls:
            self._held_acls = None  # until it is known what the file holds
            self._write(self._acls, {"acls": {subject_of(name): acl_value(acl) for name, acl in acls.items()}})
            self._held_acls = acls
        if users is not self._held_users:
            self._held_users = None
            self._write(self._users, {"users": {user.name: _user_value(user) for user in users.values()}})
            self._held_users = users

    def _write(self, file: ReplacedFile, value: Mapping[str, Any]) -> None:
        file.replace(json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n")

    def _read(self, file: ReplacedFile, name: str, parse: Callable[[str, Any], tuple[str, Value]]) -> dict[str, Value]:
        raw = self._raw(file.path)
        if raw is None:
            return {}
        try:
            return _items(raw, name, parse)
        except ValueError as error:
            raise StoreError(
                file.path, f"does not contain {name} ({error}); correct it, or move it away to start without {name}"
            ) from error

    def _raw(self, path: Path) -> bytes | None:
        try:
            file = self._fs.open(path)
        except FileNotFoundError:
            return None
        try:
            size = file.size()
            if size > MAX_BYTES:
                raise StoreError(path, f"is {size} bytes long, more than the {MAX_BYTES} that are read")
            return file.read_at(0, size)
        finally:
            file.close()


def _items(raw: bytes, name: str, parse: Callable[[str, Any], tuple[str, Value]]) -> dict[str, Value]:
    """The parsed items of the object ``name`` in a file. Raises ValueError with line and column."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        at = _position(raw.decode("latin-1"), error.start)
        raise ValueError(f"it is not UTF-8: {at}") from None
    try:
        value = json.loads(text, object_pairs_hook=_Pairs)
    except RecursionError:
        raise ValueError("it is nested too deeply: line 1 column 1") from None
    pairs = dict(value).get(name) if isinstance(value, _Pairs) else None
    if not isinstance(pairs, _Pairs):
        raise ValueError(f'it is not an object with "{name}": line 1 column 1')
    items: dict[str, Value] = {}
    for key, item in pairs:
        try:
            parsed, parsed_item = parse(key, item)
            if parsed in items:
                raise AccessError("is there twice")
            items[parsed] = parsed_item
        except AccessError as error:
            at = _position(text, max(text.find(json.dumps(key, ensure_ascii=False)), 0))
            raise ValueError(f"{json.dumps(key[:64])}: {error}: {at}") from None
    return items


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs, because of two users with one name it must not depend on luck which one counts."""


def _position(text: str, at: int) -> str:
    line_begin = text.rfind("\n", 0, at) + 1
    return f"line {text.count(chr(10), 0, at) + 1} column {at - line_begin + 1}"


def _fields(value: Any, *known: str) -> dict[str, Any]:
    """The fields of an object. Raises AccessError for another value, a field that is unknown or there twice."""
    if not isinstance(value, _Pairs):
        raise AccessError("is not an object")
    fields = dict(value)
    unknown = set(fields) - set(known)
    if unknown or len(fields) < len(value):
        raise AccessError(f"has the field {min(unknown)[:64]}" if unknown else "has a field twice")
    return fields


def _texts(value: Any, name: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or isinstance(value, _Pairs) or not all(isinstance(text, str) for text in value):
        raise AccessError(f"{name} is not a list of texts")
    return value


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list) or isinstance(value, _Pairs):
        raise AccessError(f"{name} is not a list")
    return value


def _user(name: str, value: Any) -> tuple[str, User]:
    fields = _fields(value, "password", "userType", "userStatus")
    check_username(name)
    password = fields.get("password")
    if not isinstance(password, str):
        raise AccessError("password is not a text")
    check_password(password)
    user_type, status = UserType.of(fields.get("userType")), UserStatus.of(fields.get("userStatus"))
    if user_type is None:
        raise AccessError("userType is not Super or Normal")
    if status is None:
        raise AccessError("userStatus is not enable or disable")
    return name, User(name, password, user_type, status)


def _user_value(user: User) -> dict[str, Any]:
    return {"password": user.password, "userType": user.type.value, "userStatus": user.status.value}


def _acl(subject: str, value: Any) -> tuple[str, Acl]:
    name = user_of(subject)
    if name is None:
        raise AccessError("is not User:NAME")
    check_username(name)
    policies: dict[PolicyType, Policy] = {}
    for policy_value in _list(_fields(value, "policies").get("policies"), "policies"):
        fields = _fields(policy_value, "policyType", "entries")
        policy_type = PolicyType.of(fields.get("policyType"))
        if policy_type is None or policy_type in policies:
            raise AccessError("policyType is not Custom or Default, or there twice")
        entries = [_fields(entry, *_ENTRY) for entry in _list(fields.get("entries"), "entries")]
        parsed = [_entry(entry) for entry in entries]
        policies[policy_type] = Policy(policy_type, tuple(parsed))
    return name, Acl(tuple(policies.values()))


def _entry(fields: dict[str, Any]) -> PolicyEntry:
    resource, decision = fields.get("resource"), fields.get("decision")
    if not isinstance(resource, str) or not isinstance(decision, str):
        raise AccessError("resource or decision is not a text")
    actions = _texts(fields.get("actions"), "actions")
    unknown = next((name for name in actions if Action.of(name) is None), None)
    if unknown is not None:  # a request drops it; of a file that decides who may do what it is a mistake
        raise AccessError(f"{unknown[:64]} is no action")
    return parse_entry(resource, actions, _texts(fields.get("sourceIps"), "sourceIps"), decision)


def acl_value(acl: Acl) -> dict[str, Any]:
    """Policies in the shape of RocketMQ's JSON. Without addresses an entry has no sourceIps."""
    return {
        "policies": [
            {"policyType": policy.type.value, "entries": [*map(entry_value, policy.entries)]} for policy in acl.policies
        ]
    }


def entry_value(entry: PolicyEntry) -> dict[str, Any]:
    """An entry in the shape of RocketMQ's JSON."""
    value = {
        "resource": entry.resource.key,
        "actions": [action.value for action in entry.actions],
        "decision": entry.decision.value,
    }
    return value | ({"sourceIps": [source.text for source in entry.sources]} if entry.sources else {})
