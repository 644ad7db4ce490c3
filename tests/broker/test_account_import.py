"""Accounts of plain_acl.yml as users: every permission is that of the account, and what has no counterpart is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.auth.decision import ResourceAccess, Verdict, check_name
from gantrymq.auth.imports import ImportSource
from gantrymq.auth.policies import Action
from gantrymq.broker.acl.account_import import import_accounts
from gantrymq.broker.acl.accounts import PUB, SUB, Account, Accounts, parse_accounts
from gantrymq.broker.acl.permissions import group_access, topic_access

CLUSTER_TOPIC = "DefaultCluster_REPLY_TOPIC"
TOPICS = (
    *("orders", "orders2", "other", "%DLQ%readers", "%DLQ%others", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"),
    *("RMQ_SYS_TRACE_TOPIC", CLUSTER_TOPIC),
)
GROUPS = ("readers", "others", "third")
PERMISSIONS = st.sampled_from([0, PUB, SUB, PUB | SUB])


@given(
    topics=st.dictionaries(st.sampled_from(TOPICS), PERMISSIONS),
    groups=st.dictionaries(st.sampled_from(GROUPS), PERMISSIONS),
    defaults=st.tuples(PERMISSIONS, PERMISSIONS),
    admin=st.booleans(),
)
def test_imported_user_may_send_and_read_exactly_what_account_may(
    topics: dict[str, int], groups: dict[str, int], defaults: tuple[int, int], admin: bool
) -> None:
    account = Account(
        "account", "secret-1", lambda _: False, admin, *defaults, topics, groups, frozenset({CLUSTER_TOPIC})
    )
    source = import_accounts(Accounts(lambda _: False, {"account": account}))
    assert source.problems == []
    for name in TOPICS:
        for permission, action in ((PUB, Action.PUB), (SUB, Action.SUB)):
            verdict = verdict_on(source, topic_access(name, (action,)))
            assert verdict.is_allowed == account.may(name, permission, group=False), (name, action, verdict)
    for name in GROUPS:
        verdict = verdict_on(source, group_access(name, (Action.SUB,)))
        assert verdict.is_allowed == account.may(name, SUB, group=True), (name, verdict)


def verdict_on(source: ImportSource, access: ResourceAccess, ip: str = "127.0.0.1") -> Verdict:
    return check_name("account", source.users["account"], source.acls.get("account"), access, ip)


def accounts(text: str) -> ImportSource:
    return import_accounts(parse_accounts(text.encode(), "plain_acl.yml"))


def test_white_addresses_are_named_and_not_taken() -> None:
    source = accounts(
        "globalWhiteRemoteAddresses: [10.10.103.*]\n"
        "accounts:\n- {accessKey: account, secretKey: secret-1, whiteRemoteAddress: 192.168.0.*}\n"
    )
    assert [(problem.username, problem.text.partition(" is not")[0]) for problem in source.problems] == [
        ("", "globalWhiteRemoteAddresses (10.10.103.*)"),
        ("account", "whiteRemoteAddress (192.168.0.*)"),
    ]
    assert list(source.users) == ["account"]
    assert not verdict_on(source, topic_access("T", (Action.PUB,)), "192.168.0.1").is_allowed


@pytest.mark.parametrize("listed", ["orders*=SUB", "'*=SUB'", "'=SUB'"])
def test_topic_name_that_would_be_wildcard_leaves_out_all_policies(listed: str) -> None:
    source = accounts(
        f"accounts:\n- {{accessKey: account, secretKey: secret-1, topicPerms: [{listed}], defaultTopicPerm: PUB}}\n"
    )
    assert [problem.username for problem in source.problems] == ["account"]
    assert (list(source.users), source.acls) == (["account"], {})
    assert "secret-1" not in str(source)


def test_account_with_name_that_no_user_has_is_named() -> None:
    source = accounts("accounts:\n- {accessKey: 'account*', secretKey: secret-1, defaultTopicPerm: PUB}\n")
    assert [problem.username for problem in source.problems] == ["account*"]
    assert (source.users, source.acls) == ({}, {})
