"""Users and policies on disk: what is read again, what a damaged file does, and who may read it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gantrymq.auth.directory import NO_USERS, AccessDirectory
from gantrymq.auth.files import AccessFiles
from gantrymq.auth.policies import Policy, PolicyType, parse_entry
from gantrymq.auth.users import User, UserStatus, UserType
from gantrymq.errors import AccessError, StoreError
from gantrymq.format.names import ACLS, USERS
from gantrymq.fs.real import RealFileSystem
from memory_file_system import MemoryFileSystem


def directory() -> AccessDirectory:
    made = NO_USERS.create_user(User("root", "rootpw", UserType.SUPER), by_super=True)
    made = made.create_user(User("ü%\u2603", 'p"w\\', UserType.NORMAL, UserStatus.DISABLE), by_super=False)
    entries = (
        parse_entry("Topic:T*", ["Pub", "Sub"], ["10.0.0.0/8", "::1"], "Allow"),
        parse_entry("*", ["All"], None, "Deny"),
    )
    return made.merge_acl("ü%\u2603", [Policy(PolicyType.CUSTOM, entries), Policy(PolicyType.DEFAULT, entries[:1])])


def test_saved_users_and_policies_are_read_again(tmp_path: Path) -> None:
    files, wanted = AccessFiles(RealFileSystem(), tmp_path / "config"), directory()
    files.save(wanted)
    assert files.load() == wanted
    for name in (USERS, ACLS):
        assert (tmp_path / "config" / name).stat().st_mode & 0o777 == 0o600
    files.save(NO_USERS)
    assert files.load() == NO_USERS
    assert {path.name for path in (tmp_path / "config").iterdir()} == {USERS, ACLS}  # no backup of what was removed


def test_file_that_was_open_to_others_is_private_after_change(tmp_path: Path) -> None:
    files, wanted = AccessFiles(RealFileSystem(), tmp_path), directory()
    files.save(wanted)
    (tmp_path / USERS).chmod(0o644)
    files.save(wanted.delete_user("root", by_super=True))
    assert (tmp_path / USERS).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", [USERS, ACLS])
@pytest.mark.parametrize("damage", ["cut", "empty", "zeros", "text", "list", "latin", "blank"])
def test_damaged_file_stops_start_and_stays(tmp_path: Path, name: str, damage: str) -> None:
    files = AccessFiles(RealFileSystem(), tmp_path)
    files.save(directory())
    raw = (tmp_path / name).read_bytes()
    damaged = {
        "cut": raw[: len(raw) // 2],
        "empty": b"",
        "zeros": bytes(len(raw)),
        "text": b"users",
        "list": b"[]",
        "latin": raw[:20] + b"\xfc" + raw[20:],
        "blank": b" \n",
    }[damage]
    (tmp_path / name).write_bytes(damaged)
    (tmp_path / f"{name}.bak").write_bytes(raw)
    with pytest.raises(StoreError, match=rf"{re.escape(str(tmp_path / name))}.*line \d+ column \d+") as refused:
        files.load()
    assert "rootpw" not in str(refused.value)
    assert (tmp_path / name).read_bytes() == damaged


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"users": {"a": {"password": "x", "userType": "Normal", "userStatus": "enable"},\n "a": {}}}', "line 1"),
        ('{"users": {\n"a": {"password": "x", "userType": "Big", "userStatus": "enable"}}}', "line 2 column 1"),
        ('{"users": {"a": {"userType": "Super", "userStatus": "enable"}}}', "password is not a text"),
        ('{"users": {"a*": {"password": "x", "userType": "Normal", "userStatus": "enable"}}}', r"holds a \*"),
        ('{"users": {"a": {"password": "x", "userType": "Super", "userStatus": "enable", "b": 1}}}', "the field b"),
        ('{"users": 3}', 'not an object with "users"'),
        ("[" * 100_000, "line 1 column 1"),
    ],
)
def test_users_of_another_shape_stop_start(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / USERS).write_text(text)
    with pytest.raises(StoreError, match=reason):
        AccessFiles(RealFileSystem(), tmp_path).load()


@pytest.mark.parametrize(
    "value",
    [
        {"Robot:a": {"policies": []}},
        {"User:a": {"policies": [{"policyType": "Wild", "entries": []}]}},
        {"User:a": {"policies": [{"policyType": "Custom", "entries": [{"resource": "*", "actions": ["Fly"]}]}]}},
        {"User:a": {"policies": 3}},
        {"User:a": []},
    ],
)
def test_policies_of_another_shape_stop_start(tmp_path: Path, value: object) -> None:
    (tmp_path / ACLS).write_text(json.dumps({"acls": value}))
    with pytest.raises(StoreError, match=r"line 1 column \d+"):
        AccessFiles(RealFileSystem(), tmp_path).load()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
def test_power_cut_leaves_saved_directory_or_newer_one(seed: int, fraction: float) -> None:
    fs, first = MemoryFileSystem(), directory()
    fs.make_directory(Path("/store/config"))
    files = AccessFiles(fs.as_file_system() if hasattr(fs, "as_file_system") else fs, Path("/store/config"))
    files.save(first)
    left = AccessFiles(fs.crash_clone(fraction, seed), Path("/store/config")).load()
    assert left == first


@pytest.mark.parametrize(
    ("name", "password", "text"),
    [
        ("", "pw", "username can not be blank"),
        ("a*", "pw", "username holds a *"),
        ("a\nb", "pw", "username holds a line end or another control character"),
        ("a\u2028b", "pw", "username holds a line end or another control character"),
        ("a" * 1_000_000, "pw", "username has 1000000 characters, more than 255"),
        ("a", " ", "password can not be blank"),
        ("a", "p" * 1_000_000, "password has more than 4096 characters"),
    ],
)
def test_user_that_is_not_accepted_raises(name: str, password: str, text: str) -> None:
    with pytest.raises(AccessError) as refused:
        NO_USERS.create_user(User(name, password), by_super=True)
    assert str(refused.value) == text


def test_deleted_user_leaves_with_its_policies_only() -> None:
    made = directory()
    left = made.delete_user("ü%\u2603", by_super=False)
    assert set(left.users) == {"root"}
    assert not left.acls
    assert made.acls
    assert made.delete_user("nobody", by_super=False) is made
    with pytest.raises(AccessError, match="only be update by super user"):
        made.delete_user("root", by_super=False)
