"""What policies decide, against an oracle that follows RocketMQ's rules one by one and shares no code with ours."""

from __future__ import annotations

import functools
import ipaddress
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.auth.decision import ResourceAccess, UserPermissions
from gantrymq.auth.policies import (
    Acl,
    Action,
    AddressRange,
    Policy,
    PolicyDecision,
    PolicyType,
    Resource,
    ResourceType,
    parse_entry,
    parse_resource,
)
from gantrymq.auth.users import User, UserType
from gantrymq.errors import AccessError


@dataclass(frozen=True)
class Row:
    """An entry as its texts."""

    policy: str
    resource: str
    actions: tuple[str, ...]
    ips: tuple[str, ...]
    decision: str


ROWS = st.builds(
    Row,
    st.sampled_from(["Custom", "Default"]),
    st.sampled_from(
        ["*", "Topic:*", "Topic:T*", "Topic:TT*", "Topic:TT", "Topic:TTT", "Group:*", "Group:TT", "Cluster:C"]
    ),
    st.lists(st.sampled_from(["All", "Pub", "Sub", "Get", "Update"]), min_size=1, max_size=3, unique=True).map(tuple),
    st.lists(st.sampled_from(["10.0.0.0/8", "127.0.0.1", "::1", "::/0", "10.1.2.3"]), max_size=2).map(tuple),
    st.sampled_from(["Allow", "Deny"]),
)


def oracle(rows: list[Row], kind: str, name: str, actions: list[str], ip: str) -> str:
    """The answer of AclAuthorizationHandler: 'Allow', 'the decision is deny.' or 'no matched policies.'."""

    def matches(row: Row) -> bool:
        row_kind, _, row_name = row.resource.partition(":")
        if row.resource != "*":
            if row_kind != kind:
                return False
            if row_name == "*":
                pass
            elif row_name.endswith("*"):
                if not name.startswith(row_name[:-1]):
                    return False
            elif row_name != name:
                return False
        if "All" not in row.actions and not set(row.actions) & set(actions):
            return False
        return not row.ips or any(within(ip, source) for source in row.ips)

    def within(one: str, source: str) -> bool:
        if "/" not in source:
            return ipaddress.ip_address(one) == ipaddress.ip_address(source)
        network = ipaddress.ip_network(source, strict=False)
        return int(network[0]) <= int(ipaddress.ip_address(one)) <= int(network[-1])

    def compare(one: Row, other: Row) -> int:
        if (one.resource == "*") != (other.resource == "*"):
            return 1 if one.resource == "*" else -1
        if one.resource != "*":
            names = [row.resource.partition(":")[2] for row in (one, other)]
            ranks = [2 if text == "*" else 1 if text.endswith("*") else 0 for text in names]
            if ranks[0] != ranks[1]:
                return ranks[0] - ranks[1]
            if ranks[0] == 1 and len(names[0]) != len(names[1]):
                return len(names[1]) - len(names[0])
        if one.decision != other.decision:
            return -1 if one.decision == "Deny" else 1
        return 0

    for policy in ("Custom", "Default"):
        found = sorted(
            [row for row in rows if row.policy == policy and matches(row)], key=functools.cmp_to_key(compare)
        )
        if found:
            return "Allow" if found[0].decision == "Allow" else "the decision is deny."
    return "no matched policies."


def acl_of(rows: list[Row]) -> Acl:
    policies = []
    for name in ("Default", "Custom"):
        entries = [parse_entry(r.resource, r.actions, r.ips, r.decision) for r in rows if r.policy == name]
        if entries:
            policies.append(Policy(PolicyType(name), tuple(entries)))
    return Acl(tuple(policies))


@given(
    st.lists(ROWS, max_size=8),
    st.sampled_from(["Topic", "Group", "Cluster"]),
    st.sampled_from(["TT", "T", "TTT", "X", "C", ""]),
    st.lists(st.sampled_from(["Pub", "Sub", "Get", "Update", "Create"]), min_size=1, max_size=3, unique=True),
    st.sampled_from(["127.0.0.1", "10.1.2.3", "::1", "192.168.0.1"]),
)
def test_any_policies_decide_as_rocketmq(rows: list[Row], kind: str, name: str, actions: list[str], ip: str) -> None:
    access = ResourceAccess(Resource(ResourceType(kind), name), tuple(map(Action, actions)))
    permissions = UserPermissions(User("u1", "secret"), acl_of(rows))
    wanted = oracle(rows, kind, name, actions, ip)
    for _ in range(2):  # the second answer is remembered
        verdict = permissions.check([access], ip)
        assert verdict.is_allowed == (wanted == "Allow")
        prefix = f"User:u1 has no permission to access {kind}:{name} from {ip}, "
        assert verdict.refusal == ("" if verdict.is_allowed else prefix + wanted)
        assert (verdict.entry is None) == (wanted == "no matched policies.")


def entry(resource: str, decision: str, *ips: str, actions: tuple[str, ...] = ("All",), policy: str = "Custom") -> Row:
    return Row(policy, resource, actions, ips, decision)


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([], "no matched policies."),
        ([entry("*", "Deny"), entry("Topic:T*", "Deny"), entry("Topic:TT", "Allow")], "Allow"),
        ([entry("*", "Allow"), entry("Topic:T*", "Deny")], "the decision is deny."),
        ([entry("Topic:TT", "Allow"), entry("Topic:TT", "Deny")], "the decision is deny."),
        ([entry("Topic:T*", "Allow"), entry("Topic:*", "Deny")], "Allow"),
        ([entry("Topic:TT", "Deny", "10.0.0.0/8"), entry("Topic:*", "Allow")], "Allow"),
        ([entry("Topic:TT", "Allow", "10.0.0.0/8")], "no matched policies."),
        ([entry("Topic:TT", "Allow", actions=("Sub",))], "no matched policies."),
        ([entry("*", "Allow"), entry("Topic:TT", "Deny", policy="Default")], "Allow"),
        ([entry("Group:TT", "Allow"), entry("Topic:TT", "Deny", policy="Default")], "the decision is deny."),
    ],
)
def test_first_entry_in_order_decides(rows: list[Row], wanted: str) -> None:
    assert oracle(rows, "Topic", "TT", ["Pub"], "127.0.0.1") == wanted
    access = ResourceAccess(Resource(ResourceType.TOPIC, "TT"), (Action.PUB,))
    verdict = UserPermissions(User("u1", "secret"), acl_of(rows)).check([access], "127.0.0.1")
    assert verdict.refusal.rpartition(", ")[2] == ("" if wanted == "Allow" else wanted)


def test_super_user_needs_no_policy() -> None:
    denied = acl_of([entry("*", "Deny")])
    access = ResourceAccess(Resource(ResourceType.TOPIC, "TT"), (Action.PUB,))
    verdict = UserPermissions(User("root", "secret", UserType.SUPER), denied).check([access], "127.0.0.1")
    assert verdict.is_allowed
    assert verdict.entry is None


def test_second_access_that_is_denied_refuses_request() -> None:
    acl = acl_of([entry("Topic:TT", "Allow")])
    accesses = [
        ResourceAccess(Resource(kind, "TT"), (Action.SUB,)) for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]
    verdict = UserPermissions(User("u1", "secret"), acl).check(accesses, "127.0.0.1")
    assert verdict.refusal == "User:u1 has no permission to access Group:TT from 127.0.0.1, no matched policies."
    assert UserPermissions(User("u1", "secret"), acl).check([], "127.0.0.1").decision is PolicyDecision.ALLOW


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("Robot:x", ["Pub"], [], "Allow"), "The resource is null."),
        ((None, ["Pub"], [], "Allow"), "The resource is null."),
        (("Topic:T", [], [], "Allow"), "The actions is empty."),
        (("Topic:T", ["Fly"], [], "Allow"), "The actions is empty."),
        (("Topic:T", ["Pub", "Any"], [], "Allow"), "The actions can not be Any."),
        (("Topic:T", ["Pub"], ["10.0.0.0/33"], "Allow"), "The source ip is invalid."),
        (("Topic:T", ["Pub"], ["10.1"], "Allow"), "The source ip is invalid."),
        (("Topic:T", ["Pub"], [" "], "Allow"), "The source ip is empty."),
        (("Topic:T", ["Pub"], [], "Maybe"), "The decision is null or illegal."),
        (("Topic:", ["Pub"], [], "Allow"), "The resource name is blank."),
        (("Topic:a*b", ["Pub"], [], "Allow"), "The resource name holds a *."),
        (("Topic:a*b*", ["Pub"], [], "Allow"), "The resource name holds a *."),
        (("Topic:a\nb", ["Pub"], [], "Allow"), "The resource name holds a line end or another control character."),
        (
            ("Topic:" + "a" * 1_000_000, ["Pub"], [], "Allow"),
            "The resource name has 1000000 characters, more than 255.",
        ),
    ],
)
def test_invalid_entry_is_refused(arguments: tuple[str | None, list[str], list[str], str], text: str) -> None:
    with pytest.raises(AccessError) as refused:
        parse_entry(*arguments)
    assert str(refused.value) == text


@pytest.mark.parametrize("text", ["*", "Topic:*", "Topic:T*", "Topic:TT", "Group:%RETRY%g", "Cluster:DefaultCluster"])
def test_resource_keeps_its_text(text: str) -> None:
    resource = parse_resource(text)
    assert resource is not None
    assert resource.key == text


@pytest.mark.parametrize(
    "text", ["10.0.0.256", "*", "01.2.3.4", "10.0.0.1/", "/8", "10.0.0.0/-1", "::1/129", "localhost/8"]
)
def test_text_that_is_no_address_has_no_range(text: str) -> None:
    assert AddressRange.parse(text) is None
