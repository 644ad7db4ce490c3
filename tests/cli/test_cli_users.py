"""``gantrymq admin user`` and ``acl``: administration, the check, and imports, at an embedded broker and in a store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_cases import Outcome, Run, tree

from gantrymq import AdminClient, EmbeddedBroker
from gantrymq.auth.directory import NO_USERS
from gantrymq.auth.files import AccessFiles
from gantrymq.auth.policies import Policy, PolicyType, parse_entry
from gantrymq.auth.users import User, UserType
from gantrymq.format.names import LOCK_TEXT
from gantrymq.fs.real import RealFileSystem
from gantrymq.remoting.bodies.auth import UserInfo
from gantrymq.store.paths import StorePaths
from java_users import written_by_java
from store_cases import open_store

ROOT = ("--access-key", "root", "--secret-key", "root-secret")
SECRETS = ("root-secret", "alice-secret", "bob-secret", "secret-of-orders", "secret-of-readers", "producerpw")
ACCOUNTS = """
globalWhiteRemoteAddresses: [10.10.103.*]
accounts:
- {accessKey: ordering, secretKey: secret-of-orders, topicPerms: [orders=PUB], defaultTopicPerm: DENY}
- {accessKey: reading, secretKey: secret-of-readers, defaultTopicPerm: SUB, groupPerms: [readers=SUB]}
- {accessKey: operator, secretKey: secret-of-orders, admin: true}
"""
Admin = Callable[..., Outcome]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(users={"root": "root-secret"}) as running:
        yield running


@pytest.fixture
def admin(gantrymq: Run, broker: EmbeddedBroker) -> Admin:
    """``gantrymq admin …`` as root. No output ever has a password."""

    def run(*words: object) -> Outcome:
        outcome = gantrymq("admin", *words, "-n", broker.namesrv, *ROOT)
        assert [secret for secret in SECRETS if secret in outcome.text + outcome.err] == []
        return outcome

    return run


@pytest.fixture
def alice(admin: Admin) -> Iterator[str]:
    assert admin("user", "create", "alice", "--password", "alice-secret").code == 0
    yield "alice"
    admin("user", "delete", "alice")


def refused(outcome: Outcome, code: int, *texts: str) -> None:
    assert (outcome.code, outcome.err.count("\n")) == (code, 1), outcome.err
    assert [text for text in texts if text not in outcome.err] == []


def test_user_is_created_changed_and_deleted_without_showing_password(admin: Admin, alice: str) -> None:
    [shown] = admin("user", "get", alice, "--json").lines
    assert {name: shown[name] for name in ("username", "userType", "userStatus")} == {
        "username": "alice", "userType": "Normal", "userStatus": "enable",
    }  # fmt: skip
    assert "password" not in shown
    assert admin("user", "update", alice, "--status", "Disable", "-b", "broker-a").code == 0
    listed = {line["username"]: line for line in admin("user", "list", "--json").lines}
    assert (listed["alice"]["userStatus"], listed["root"]["userType"]) == ("disable", "Super")
    assert "alice" in admin("user", "list").text
    assert admin("user", "delete", alice).code == 0
    refused(admin("user", "get", alice), 3, "there is no user alice", "gantrymq admin user list")


def test_password_of_java_broker_is_in_no_output(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    user = UserInfo(username="eve", password="alice-secret", user_type="Normal", user_status="enable")
    monkeypatch.setattr(AdminClient, "users", lambda *_: [user])
    monkeypatch.setattr(AdminClient, "user", lambda *_: user)
    for words in (("list",), ("get", "eve")):
        assert [line["username"] for line in admin("user", *words, "--json").lines] == ["eve"]
        assert "eve" in admin("user", *words).text


def test_password_in_settings_of_java_broker_is_in_no_output(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'initAuthenticationUser={"username":"root","password":"root-secret"}\naclEnable=false'
    monkeypatch.setattr("gantrymq.client.admin.servers.decode_utf8", lambda _: text)
    [line] = admin("broker", "config", "get", "--json").lines
    assert line["config"] == {"initAuthenticationUser": "******", "aclEnable": "false"}


def test_policy_is_created_changed_and_deleted(admin: Admin, alice: str) -> None:
    words = ("User:alice", "--resource", "Topic:TT", "--action", "pub")
    assert admin("acl", "create", *words, "--decision", "Allow", "--source-ip", "10.0.0.0/8").code == 0
    [entry] = admin("acl", "get", "User:alice", "--json").lines
    names = ("policyType", "resource", "actions", "sourceIps", "decision")
    assert [entry[name] for name in names] == ["Custom", "Topic:TT", ["Pub"], ["10.0.0.0/8"], "Allow"]
    assert admin("acl", "update", *words, "--decision", "Deny").code == 0
    [entry] = admin("acl", "list", "--subject", "alice", "--json").lines
    assert (entry["sourceIps"], entry["decision"]) == ([], "Deny")
    assert admin("acl", "delete", "User:alice", "--resource", "Topic:TT").code == 0
    refused(admin("acl", "get", "User:alice"), 3, "there is no acl User:alice")
    refused(admin("acl", "get", "User:ghost"), 3, "not exist")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("user", "create", "x"), "--password"),
        (("user", "create", "x", "--password", "secret-x", "--type", "Robot"), "'Robot' is none of Super, Normal"),
        (("user", "update", "x", "--status", "off"), "'off' is none of enable, disable"),
        (("user", "update", "x"), "give --password, --type or --status"),
        (("acl", "create", "User:x", "--resource", "Topic:T", "--action", "Fly", "--decision", "Allow"), "'Fly'"),
        (("acl", "create", "User:x", "--resource", "Topic:T", "--action", "Pub", "--decision", "Yes"), "'Yes'"),
        (("acl", "check", "x", "--topic", "T"), "give one of --pub, --sub and --action"),
        (("acl", "check", "x", "--pub"), "give one of --topic, --group and --cluster"),
        (("acl", "check", "x", "--topic", "T*", "--pub"), "--topic: the name holds a *"),
        (("acl", "check", "x", "--topic", "T", "--pub", "--from", "10.1"), "'10.1' is no address"),
        (("acl", "check", "x", "--topic", "T", "--action", "All"), "'All' is none of"),
        (("acl", "import"), "give one of FILE, --from-store and --from-broker"),
        (("acl", "import", "nowhere.yml"), "nowhere.yml"),
    ],
)
def test_wrong_option_is_usage_error(admin: Admin, words: tuple[str, ...], text: str) -> None:
    refused(admin(*words), 2, text)


@pytest.mark.parametrize(
    "keys", [(), ("--access-key", "root", "--secret-key", "wrong"), ("--access-key", "no", "--secret-key", "x")]
)
def test_wrong_or_missing_secret_is_one_line(gantrymq: Run, broker: EmbeddedBroker, keys: tuple[str, ...]) -> None:
    for words in (("user", "list"), ("acl", "list"), ("acl", "check", "root", "--topic", "T", "--pub")):
        refused(gantrymq("admin", *words, "-n", broker.namesrv, *keys), 3, "NO_PERMISSION", "--secret-key")


# Check


@pytest.mark.parametrize(
    ("words", "decision", "policy", "resource"),
    [
        (("--topic", "TT", "--pub"), "Allow", "Custom", "Topic:TT"),
        (("--topic", "TU", "--pub"), "Deny", "Custom", "Topic:T*"),
        (("--topic", "TT", "--sub"), "Allow", "Default", "Topic:*"),
        (("--topic", "%RETRY%readers", "--sub", "--from", "10.9.9.9"), "Allow", "Custom", "Group:readers"),
        (("--group", "readers", "--sub", "--from", "11.0.0.1"), "Deny", None, None),
        (("--cluster", "--action", "get"), "Allow", "Custom", "Cluster:DefaultCluster"),
        (("--cluster", "--action", "Update"), "Deny", None, None),
    ],
)
def test_check_names_deciding_entry(
    admin: Admin, alice: str, words: tuple[str, ...], decision: str, policy: str | None, resource: str | None
) -> None:
    for given in (
        ("Topic:TT", "Pub", "Allow"),
        ("Topic:T*", "Pub", "Deny"),
        ("Group:readers", "Sub", "Allow", "10.0.0.0/8"),
        ("Cluster:DefaultCluster", "Get", "Allow"),
    ):
        sources = ("--source-ip", given[3]) if len(given) > 3 else ()
        options = ("--resource", given[0], "--action", given[1], "--decision", given[2], *sources)
        assert admin("acl", "create", "User:alice", *options).code == 0
    give_default(admin, parse_entry("Topic:*", ["Sub"], None, "Allow"))
    outcome = admin("acl", "check", alice, *words, "--json")
    [line] = outcome.lines
    assert (outcome.code, line["decision"], line["policy"]) == (0 if decision == "Allow" else 1, decision, policy)
    assert (line["entry"] or {}).get("resource") == resource
    assert line["reason"]
    people = admin("acl", "check", "User:alice", *words)
    assert (people.code, people.text.partition(":")[0]) == (outcome.code, decision)


def give_default(admin: Admin, entry: Any) -> None:
    """No command makes Default policies, as mqadmin has none; imports do."""
    from gantrymq.auth.bodies import acl_info

    namesrv = admin.__closure__[0].cell_contents.namesrv  # type: ignore[attr-defined]
    with AdminClient(namesrv, access_key="root", secret_key="root-secret") as client:
        [address] = client.cluster_info().broker_addr_table["broker-a"].broker_addrs.values()
        client.update_acl(address, acl_info("alice", [Policy(PolicyType.DEFAULT, (entry,))]))


def test_check_denies_unknown_and_disabled_user_and_allows_super_user(admin: Admin, alice: str) -> None:
    admin("acl", "create", "User:alice", "--resource", "*", "--action", "All", "--decision", "Allow")
    admin("user", "update", alice, "--status", "disable")
    asked = ("--topic", "T", "--pub", "--json")
    found = {name: admin("acl", "check", name, *asked) for name in ("ghost", alice, "root")}
    assert {name: outcome.code for name, outcome in found.items()} == {"ghost": 1, "alice": 1, "root": 0}
    lines = {name: outcome.lines[0] for name, outcome in found.items()}
    assert {name: line["reason"] for name, line in lines.items()} == {
        "ghost": "User:ghost is not found.",
        "alice": "User:alice is disabled.",
        "root": "a super user may do everything",
    }
    assert [(line["policy"], line["entry"]) for line in lines.values()] == [(None, None)] * 3


def test_check_at_broker_without_policies_warns(gantrymq: Run) -> None:
    with EmbeddedBroker(settings={"authorizationEnabled": "false"}, users={"root": "root-secret"}) as broker:
        outcome = gantrymq("admin", "acl", "check", "ghost", "--topic", "T", "--pub", "-n", broker.namesrv, *ROOT)
    refused(outcome, 1, "authorizationEnabled=false")


# Import


def test_import_of_accounts_creates_users_with_policies_once(admin: Admin, tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    dry = admin("acl", "import", file, "--dry-run", "--json")
    assert {line["status"] for line in dry.lines} == {"created"}
    assert "10.10.103.*" in dry.err
    assert [line["username"] for line in admin("user", "list", "--filter", "ing", "--json").lines] == []
    done = admin("acl", "import", file, "--json")
    assert done.code == 1  # because of the white addresses
    assert [{**line, "dryRun": True} for line in done.lines] == dry.lines
    assert admin("acl", "check", "ordering", "--topic", "orders", "--pub").code == 0
    assert admin("acl", "check", "ordering", "--topic", "orders", "--sub").code == 1
    assert admin("acl", "check", "reading", "--topic", "any", "--sub").code == 0
    assert admin("acl", "check", "reading", "--topic", "RMQ_SYS_TRACE_TOPIC", "--sub").code == 1
    assert admin("acl", "check", "reading", "--topic", "DefaultCluster_REPLY_TOPIC", "--sub").code == 1
    assert admin("acl", "check", "operator", "--cluster", "--action", "Update").code == 0
    again = admin("acl", "import", file, "--json")
    assert {line["status"] for line in again.lines} == {"same", "exists"}
    file.write_text(ACCOUNTS.replace("[orders=PUB]", "[orders=SUB]").replace("globalWhite", "# "))
    differs = admin("acl", "import", file, "--json")
    assert [line["entry"]["resource"] for line in differs.lines if line["status"] == "differs"] == ["Topic:orders"]
    refused(differs, 1, "1 of", "--replace")
    assert admin("acl", "import", file, "--replace").code == 0
    assert admin("acl", "check", "ordering", "--topic", "orders", "--pub").code == 1
    for name in ("ordering", "reading", "operator"):
        admin("user", "delete", name)


def test_import_from_broker_without_passwords_takes_no_user(admin: Admin, alice: str) -> None:
    outcome = admin("acl", "import", "--from-broker", "broker-a", "--json")
    assert (outcome.code, outcome.lines) == (1, [])
    assert "alice: is not taken: broker-a returns no password" in outcome.err


def test_copy_from_broker_without_passwords_creates_no_user(admin: Admin, alice: str) -> None:
    with EmbeddedBroker(users={"root": "root-secret"}) as other:
        refused(admin("user", "copy", alice, "--from", "broker-a", "--to", other.address), 1, "returns no password")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(path=tmp_path / "store"):
        pass
    (tmp_path / "store" / "config").mkdir(exist_ok=True)
    return tmp_path / "store"


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_users_of_java_store_are_imported_into_store(gantrymq: Run, store: Path, tmp_path: Path, how: str) -> None:
    pytest.importorskip("rocksdict")
    written_by_java(tmp_path / "java", how)
    before = tree(tmp_path / "java")
    words = ("admin", "acl", "import", "--from-store", tmp_path / "java", "--to-store", store, "--json")
    dry = gantrymq(*words, "--dry-run")
    assert not (store / "config/users.json").exists()
    done = gantrymq(*words)
    assert [{**line, "dryRun": True} for line in done.lines] == dry.lines
    assert tree(tmp_path / "java") == before
    assert done.code == 1
    assert sorted(line.partition(": ")[2].partition(":")[0] for line in done.err.splitlines()) == ["b*d", "ns"]
    assert [secret for secret in SECRETS if secret in done.text + done.err] == []
    found = AccessFiles(RealFileSystem(), store / "config").load()
    assert found.users["root"] == User("root", "rootpw", UserType.SUPER)
    assert found.users["producer"].password == "producerpw"
    assert found.users["dis"].is_disabled
    assert "b*d" not in found.users
    assert "ns" in found.users
    assert "ns" not in found.acls
    [custom, default] = found.acls["both"].policies
    assert (custom.entries, default.type) == ((parse_entry("Topic:TT", ["Pub"], None, "Deny"),), PolicyType.DEFAULT)
    assert found.acls["home"].policies[0].entries[1] == parse_entry("Topic:TT", ["Pub"], ["10.1.1.1"], "Deny")
    assert (store / "config/users.json").stat().st_mode & 0o777 == 0o600
    again = gantrymq(*words)
    assert {line["status"] for line in again.lines} == {"same"}


def test_existing_user_of_store_is_changed_on_request_only(gantrymq: Run, store: Path, tmp_path: Path) -> None:
    files = AccessFiles(RealFileSystem(), store / "config")
    entries = (parse_entry("Topic:orders", ["Pub"], None, "Deny"), parse_entry("Topic:mine", ["Sub"], None, "Allow"))
    old = NO_USERS.create_user(User("ordering", "another-secret"), by_super=True)
    files.save(old.merge_acl("ordering", [Policy(PolicyType.CUSTOM, entries)]))
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    words = ("admin", "acl", "import", file, "--to-store", store, "--json")
    assert [line["status"] for line in gantrymq(*words).lines if line["username"] == "ordering"] == ["differs"] * 2
    assert files.load().users["ordering"].password == "another-secret"
    assert [line["status"] for line in gantrymq(*words, "--replace").lines if line["username"] == "ordering"] == [
        "changed"
    ] * 2
    found = files.load()
    assert found.users["ordering"].password == "secret-of-orders"
    [custom] = found.acls["ordering"].policies
    assert custom.entries == (parse_entry("Topic:orders", ["Pub"], None, "Allow"), entries[1])


@pytest.mark.parametrize("damage", ["users.json", "lock", "no store", "no users"])
def test_import_into_store_that_cannot_be_written_changes_nothing(
    gantrymq: Run, store: Path, tmp_path: Path, damage: str
) -> None:
    file, target, texts = tmp_path / "plain_acl.yml", store, ["store"]
    file.write_text(ACCOUNTS)
    source: tuple[object, ...] = (file,)
    lock = None
    if damage == "users.json":
        (store / "config/users.json").write_text('{"users": {')
        texts = ["users.json", "line 1 column"]
    elif damage == "lock":
        lock, texts = RealFileSystem().lock(StorePaths(store).lock, LOCK_TEXT), ["already open"]
    elif damage == "no store":
        target = tmp_path / "empty"
        target.mkdir()
    else:
        source, texts = ("--from-store", store), ["no users of RocketMQ"]
    before = files_of(target)
    try:
        refused(gantrymq("admin", "acl", "import", *source, "--to-store", target), 3, *texts)
    finally:
        if lock is not None:
            lock.release()
    assert files_of(target) == before


def files_of(store: Path) -> dict[str, tuple[int, str]]:
    return {name: state for name, state in tree(store).items() if name != "lock"}


@pytest.mark.parametrize("name", ["000009.sst", "MANIFEST-000005", "CURRENT"])
@pytest.mark.parametrize("how", ["cut", "zeros"])
def test_damaged_database_is_named_and_nothing_is_imported(
    gantrymq: Run, store: Path, tmp_path: Path, name: str, how: str
) -> None:
    pytest.importorskip("rocksdict")
    java = written_by_java(tmp_path / "java", "stopped")
    path = java / "config/users" / name
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2] if how == "cut" else bytes(len(raw)))
    refused(gantrymq("admin", "acl", "import", "--from-store", java, "--to-store", store), 3, "config/users")
    assert not (store / "config/users.json").exists()


@pytest.mark.parametrize(("module", "extra"), [("yaml", "acl"), ("rocksdict", "rocksdb")])
def test_missing_module_names_extra(
    gantrymq: Run, store: Path, tmp_path: Path, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    source = (file,) if module == "yaml" else ("--from-store", written_by_java(tmp_path / "java", "stopped"))
    refused(gantrymq("admin", "acl", "import", *source, "--to-store", store), 3, f"pip install 'gantrymq[{extra}]'")
