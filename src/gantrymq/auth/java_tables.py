"""Users and policies of RocketMQ's broker: the RocksDB databases ``config/users`` and ``config/acls``.

===============  =====================================================================================================
key              value
===============  =====================================================================================================
``alice``        ``{"username":"alice","password":"…","userType":2,"userStatus":1,"subjectType":1}``
``User:alice``   ``{"subject":{…},"policies":[{"policyType":1,"entries":[{"actions":[3],"decision":1,"environment":{
                 "sourceIps":["10.0.0.0/8"]},"resource":{"resourceName":"T","resourcePattern":2,"resourceType":4}}]}]}``
===============  =====================================================================================================

Reading needs rocksdict (the extra ``rocksdb``). Even a database that it opens for reading gets a file from it, so it
opens a directory of links, and the store stays as it is. A log of changes after a kill is read as well.

Source: LocalAuthenticationMetadataProvider, LocalAuthorizationMetadataProvider, User, Acl (5.5.0).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

from gantrymq.auth.directory import MAX_USERS, user_of
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
    parse_entry,
)
from gantrymq.auth.users import NamedEnum, User, UserStatus, UserType, wrong_name
from gantrymq.errors import AccessError, StoreError
from gantrymq.fs.replaced_file import MAX_BYTES

Item = TypeVar("Item", bound=NamedEnum)
JAVA_USERS, JAVA_ACLS = "users", "acls"  # below config/
_USER_TYPES = {1: UserType.SUPER, 2: UserType.NORMAL}
_STATUSES = {1: UserStatus.ENABLE, 2: UserStatus.DISABLE}
_POLICY_TYPES = {1: PolicyType.CUSTOM, 2: PolicyType.DEFAULT}
_DECISIONS = {1: PolicyDecision.ALLOW, 2: PolicyDecision.DENY}
_PATTERNS = {1: ResourcePattern.ANY, 2: ResourcePattern.LITERAL, 3: ResourcePattern.PREFIXED}
_RESOURCES = dict(
    enumerate(
        (ResourceType.ANY, ResourceType.CLUSTER, ResourceType.NAMESPACE, ResourceType.TOPIC, ResourceType.GROUP), 1
    )
)
_ACTIONS = dict(enumerate(Action, 1))


def has_java_tables(config: Path) -> bool:
    """Whether there are databases of users or policies below the directory ``config`` of a store."""
    return any((config / name / "CURRENT").is_file() for name in (JAVA_USERS, JAVA_ACLS))


def read_java_tables(config: Path) -> ImportSource:
    """The users and policies below the directory ``config`` of a store on which no broker runs.

    Raises StoreError for a database that cannot be read, and ModuleNotFoundError without rocksdict.
    """
    source = ImportSource()
    for key, value in _rows(config / JAVA_USERS):
        _add(source, key, value, lambda name, fields: source.add_user(_user(name, fields)))
    for key, value in _rows(config / JAVA_ACLS):
        _add(source, user_of(key) or key, value, lambda name, fields: _add_acl(source, name, fields))
    return source


def _add(source: ImportSource, name: str, raw: bytes, add: Callable[[str, dict[str, Any]], None]) -> None:
    try:
        fields = json.loads(raw)
        if not isinstance(fields, dict):
            raise AccessError("its value is no JSON object")
        add(name, fields)
    except AccessError as error:
        source.problem(name, f"is not taken: {error}")
    except (ValueError, RecursionError):  # the text of the error could show the value
        source.problem(name, "is not taken: its value is no JSON")


def _rows(directory: Path) -> list[tuple[str, bytes]]:
    """The rows of a database, in the order of keys; none if it does not exist."""
    if not (directory / "CURRENT").is_file():
        return []
    from rocksdict import AccessType, Options, Rdict

    rows, length = [], 0
    with tempfile.TemporaryDirectory(prefix="gantrymq-") as links:
        for path in directory.resolve().iterdir():
            (Path(links) / path.name).symlink_to(path)
        try:
            database = Rdict(links, options=Options(raw_mode=True), access_type=AccessType.read_only())
            try:
                for key, value in cast("Iterable[tuple[bytes, bytes]]", database.items()):  # in raw mode
                    rows.append((key.decode(), value))
                    length += len(key) + len(value)
                    if len(rows) > MAX_USERS or length > MAX_BYTES:
                        raise StoreError(directory, f"has more than {MAX_USERS} rows or {MAX_BYTES} bytes")
            finally:
                database.close()
        except StoreError:
            raise
        except Exception as error:  # rocksdict has no class of its own
            reason = str(error).replace(links, str(directory)).partition("\n")[0]
            raise StoreError(directory, f"cannot be read as RocksDB: {reason}") from None
    if not rows and any(path.stat().st_size for path in directory.glob("*.sst")):
        raise StoreError(directory, "has tables, and its list of files names none of them: it is damaged")
    return rows


def _user(name: str, fields: dict[str, Any]) -> User:
    if fields.get("username") != name:
        raise AccessError("its value is of another user")
    user_type, status = _item(_USER_TYPES, fields, "userType"), _item(_STATUSES, fields, "userStatus")
    return User(name, str(fields.get("password") or ""), user_type, status)


def _add_acl(source: ImportSource, name: str, fields: dict[str, Any]) -> None:
    subject = fields.get("subject")
    if not isinstance(subject, dict) or subject.get("username") != name:
        raise AccessError("its policies are those of another subject")
    source.add_policies(name, lambda: [_policy(policy) for policy in _objects(fields, "policies")])


def _policy(fields: dict[str, Any]) -> Policy:
    return Policy(
        _item(_POLICY_TYPES, fields, "policyType"), tuple(_entry(entry) for entry in _objects(fields, "entries"))
    )


def _entry(fields: dict[str, Any]) -> PolicyEntry:
    environment = fields.get("environment")
    sources = _list(environment, "sourceIps") if isinstance(environment, dict) else []
    actions = [_item(_ACTIONS, {"action": number}, "action") for number in _list(fields, "actions")]
    resource = _resource(fields.get("resource"))
    decision = _item(_DECISIONS, fields, "decision").value
    return parse_entry(resource.key, [action.value for action in actions], [str(ip) for ip in sources], decision)


def _resource(fields: Any) -> Resource:
    """A resource. A star in its name is no wildcard, so such a name is refused before it becomes a text."""
    if not isinstance(fields, dict):
        raise AccessError("an entry has no resource")
    kind, pattern = _item(_RESOURCES, fields, "resourceType"), _item(_PATTERNS, fields, "resourcePattern")
    if kind is ResourceType.ANY or pattern is ResourcePattern.ANY:
        return Resource(kind, "", ResourcePattern.ANY)
    name = str(fields.get("resourceName") or "")
    wrong = wrong_name(name)
    if wrong is not None:
        raise AccessError(f"The resource name {name[:64]!r} {wrong}.")
    return Resource(kind, name, pattern)


def _item(items: dict[int, Item], fields: dict[str, Any], name: str) -> Item:
    number = fields.get(name)
    item = items.get(number) if isinstance(number, int) else None
    if item is None:
        raise AccessError(f"{name} {str(number)[:20]} is not known")
    return item


def _list(fields: dict[str, Any], name: str) -> list[Any]:
    value = fields.get(name) or []
    if not isinstance(value, list):
        raise AccessError(f"{name} is no list")
    return value


def _objects(fields: dict[str, Any], name: str) -> Iterable[dict[str, Any]]:
    for value in _list(fields, name):
        if not isinstance(value, dict):
            raise AccessError(f"{name} has something else than objects")
        yield value
