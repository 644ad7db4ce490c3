"""The plan of an import: what is created, kept or changed, and what is not taken."""

from __future__ import annotations

import pytest

from gantrymq.auth.directory import NO_USERS, AccessDirectory
from gantrymq.auth.imports import ImportSource, ImportStatus, plan_import, with_import
from gantrymq.auth.policies import Acl, Policy, PolicyEntry, PolicyType, parse_entry
from gantrymq.auth.users import User, UserStatus, UserType

ALLOW = parse_entry("Topic:T", ["Pub", "Sub"], ["10.0.0.0/8", "::1"], "Allow")
ALICE = User("alice", "alice-secret")


def custom(*entries: PolicyEntry) -> list[Policy]:
    return [Policy(PolicyType.CUSTOM, entries)]


def source(user: User = ALICE, *entries: PolicyEntry) -> ImportSource:
    made = ImportSource()
    made.add_user(user)
    made.add_policies(user.name, lambda: custom(*entries))
    return made


def target(user: User = ALICE, *entries: PolicyEntry) -> AccessDirectory:
    return AccessDirectory({user.name: user}, {user.name: Acl(tuple(custom(*entries)))} if entries else {})


@pytest.mark.parametrize(
    ("old", "status"),
    [
        (User("alice", "alice-secret"), ImportStatus.SAME),
        (User("alice", "another"), ImportStatus.DIFFERS),
        (User("alice", "alice-secret", UserType.SUPER), ImportStatus.DIFFERS),
        (User("alice", "alice-secret", status=UserStatus.DISABLE), ImportStatus.DIFFERS),
        (User("alice", ""), ImportStatus.EXISTS),  # a broker does not tell it
        (User("alice", "", UserType.SUPER), ImportStatus.DIFFERS),
    ],
)
def test_user_that_exists_is_changed_on_request_only(old: User, status: ImportStatus) -> None:
    before = target(old)
    plan = plan_import(source(), before, replace=False)
    assert ([item.status for item in plan.items], plan.changes) == ([status], [])
    replaced = plan_import(source(), before, replace=True)
    after = with_import(before, replaced.changes)
    assert after.users == ({"alice": ALICE} if status is not ImportStatus.SAME else before.users)
    assert before.users == {"alice": old}


@pytest.mark.parametrize(
    ("old", "status"),
    [
        (parse_entry("Topic:T", ["Sub", "Pub"], ["::1", "10.1.2.3/8"], "Allow"), ImportStatus.SAME),
        (parse_entry("Topic:T", ["Sub"], ["10.0.0.0/8", "::1"], "Allow"), ImportStatus.DIFFERS),
        (parse_entry("Topic:T", ["Pub", "Sub"], None, "Allow"), ImportStatus.DIFFERS),
        (parse_entry("Topic:T", ["Pub", "Sub"], ["10.0.0.0/8", "::1"], "Deny"), ImportStatus.DIFFERS),
        (parse_entry("Topic:T*", ["Pub", "Sub"], ["10.0.0.0/8", "::1"], "Deny"), ImportStatus.CREATED),
    ],
)
def test_entry_is_compared_by_what_it_says(old: PolicyEntry, status: ImportStatus) -> None:
    plan = plan_import(source(ALICE, ALLOW), target(ALICE, old), replace=False)
    assert [item.status for item in plan.items] == [ImportStatus.SAME, status]


def test_entries_that_source_lacks_stay() -> None:
    mine = parse_entry("Topic:mine", ["Pub"], None, "Deny")
    before = target(ALICE, mine)
    after = with_import(before, plan_import(source(ALICE, ALLOW), before, replace=True).changes)
    assert after.acls["alice"].policies == tuple(custom(mine, ALLOW))


@pytest.mark.parametrize("name", ["", "a*", "a\nb", "x" * 256])
def test_user_with_wrong_name_is_left_out_with_its_policies(name: str) -> None:
    made = source(User(name, "alice-secret"), ALLOW)
    assert ([problem.username for problem in made.problems], made.users, made.acls) == ([name], {}, {})
    assert "alice-secret" not in str(made.problems)


def test_policies_with_two_entries_of_resource_are_left_out() -> None:
    made = source(ALICE, ALLOW, parse_entry("Topic:T", ["Pub"], None, "Deny"))
    assert ([problem.username for problem in made.problems], list(made.users), made.acls) == (["alice"], ["alice"], {})


def test_policies_without_user_are_named() -> None:
    made = ImportSource()
    made.add_policies("ghost", lambda: custom(ALLOW))
    assert [problem.username for problem in made.problems] == ["ghost"]
    assert plan_import(made, NO_USERS, replace=True).changes == []
