"""``gantrymq admin user`` and ``acl`` at the real broker 5.5.0 and at ours: the same outputs, decisions and imports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gantrymq import EmbeddedBroker
from gantrymq.cli.main import exit_code
from gantrymq.remoting.acl import SessionCredentials
from store_cases import open_store

from .client_cases import SETTINGS
from .java import OLD_RELEASE, release
from .java_cluster import JavaCluster
from .test_user_matrix import AUTH, ROOT, USERS, Request, Server, is_refused_by_users, ours, send_fields, theirs

__all__ = ["ours", "theirs"]  # the fixtures
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(release() != OLD_RELEASE, reason="Maven has no auth of 5.5.1"),
]
KEYS = ("--access-key", "root", "--secret-key", "rootpw")
SECRETS = [f"{name}pw" for name in ("root", *USERS)]
Run = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture
def admin(capfd: pytest.CaptureFixture[str]) -> Run:
    """``gantrymq admin … --json`` in this process: exit code, lines, and stderr. No output has a password."""

    def run(*words: object, keys: tuple[str, ...] = KEYS) -> tuple[int, list[dict[str, Any]], str]:
        capfd.readouterr()
        code = exit_code([*map(str, ("admin", *words, *keys)), "--json"])
        out, err = capfd.readouterr()
        assert [secret for secret in SECRETS if secret in out + err] == []
        return code, [json.loads(line) for line in out.splitlines()], err

    return run


def without_address(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != "address"} for line in lines]


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("user", "create", "ann", "--password", "ann-secret"),
    ("user", "create", "ann", "--password", "ann-secret"),
    ("user", "update", "ann", "--status", "disable", "-b", "broker-a"),
    ("user", "get", "ann"),
    ("user", "list", "--filter", "ann"),
    ("user", "get", "ghost"),
    ("acl", "create", "User:ann", "--resource", "Topic:TT", "--resource", "Group:G*", "--action", "Pub", "--action",
     "Sub", "--decision", "Allow", "--source-ip", "10.0.0.0/8"),
    ("acl", "get", "User:ann"),
    ("acl", "update", "User:ann", "--resource", "Topic:TT", "--action", "Pub", "--decision", "Deny"),
    ("acl", "list", "--subject", "ann"),
    ("acl", "create", "User:ann", "--resource", "Topic:T", "--action", "Pub", "--decision", "Deny", "--source-ip", "x"),
    ("acl", "create", "User:ghost", "--resource", "Topic:T", "--action", "Pub", "--decision", "Allow"),
    ("acl", "delete", "User:ann", "--resource", "Topic:TT"),
    ("acl", "get", "User:ann"),
    ("acl", "delete", "User:ann"),
    ("acl", "get", "User:ann"),
    ("acl", "delete", "User:ann"),
    ("user", "delete", "ann"),
    ("user", "delete", "ann"),
    ("acl", "check", "ann", "--topic", "T", "--pub"),
)  # fmt: skip


def test_commands_print_same_at_both_brokers(theirs: Server, ours: Server, admin: Run) -> None:
    for words in COMMANDS:
        found = []
        for server in (theirs, ours):
            code, lines, err = admin(*words, "-n", server.namesrv)
            assert "ann-secret" not in json.dumps(lines) + err
            found.append((code, without_address(lines), err.replace(server.address, "BROKER")))
        assert found[0] == found[1], words


def test_wrong_secret_is_one_line_at_both_brokers(theirs: Server, ours: Server, admin: Run) -> None:
    for server in (theirs, ours):
        for keys in ((), ("--access-key", "root", "--secret-key", "wrong")):
            code, lines, err = admin("user", "list", "-n", server.namesrv, keys=keys)
            assert (code, lines, err.count("\n")) == (3, [], 1)
            assert "--access-key and --secret-key" in err


@pytest.mark.parametrize("name", USERS)
def test_check_decides_as_real_broker_does(theirs: Server, ours: Server, admin: Run, name: str) -> None:
    by = SessionCredentials(name, f"{name}pw")
    queue = {"queueId": "0", "timestamp": "0", "bname": "broker-a"}
    cases = [
        (("--topic", "TT", "--pub"), Request(310, send_fields("TT"), b"body")),
        (("--topic", "%RETRY%G1", "--pub"), Request(310, send_fields("%RETRY%G1"), b"body")),
        (("--topic", "OTHER", "--action", "Get"), Request(30, {"topic": "OTHER", **queue})),
        (("--group", "G1", "--sub"), Request(42, {}, b'{"consumerGroup":"G1","clientId":"c","mqSet":[]}')),
        (("--cluster", "--action", "Get"), Request(3005, {})),
    ]
    answers = theirs.ask([(by, request) for _, request in cases])
    for (words, _), answer in zip(cases, answers, strict=True):
        checks = [admin("acl", "check", name, *words, "-n", server.namesrv) for server in (theirs, ours)]
        assert checks[0] == checks[1]
        code, [line], _ = checks[0]
        assert line["decision"] == ("Deny" if is_refused_by_users(answer) else "Allow"), (line, answer)
        assert code == (line["decision"] == "Deny")


def test_users_are_imported_from_real_broker(theirs: Server, admin: Run) -> None:
    with EmbeddedBroker(settings={**SETTINGS, **AUTH}) as broker:
        target = Server(broker.address, broker.namesrv)
        words = ("acl", "import", "--from-broker", theirs.address, "-n", broker.namesrv)
        planned = admin(*words, "--dry-run")
        done = admin(*words)
        assert done[0] == 0
        assert (done[0], [{**line, "dryRun": True} for line in done[1]]) == planned[:2]
        assert {line["status"] for line in done[1] if line["username"] != "root"} == {"created"}
        assert {line["status"] for line in admin(*words)[1]} == {"same", "exists"}
        require_same_access(theirs, target)
        assert admin(*words, "--replace")[0] == 0
        require_same_access(theirs, target)


def require_same_access(theirs: Server, target: Server) -> None:
    """The same users with the same passwords, and the same policies."""
    (users, acls), shown = listed(theirs), listed(target)
    for user in users:
        password = user.pop("password")
        [answer] = target.ask([(SessionCredentials(user["username"], password), Request(9999, {}))])
        assert answer[0] == 3, (user, answer)
    assert (users, acls) == shown


def listed(server: Server) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    users, acls = (json.loads(answer[2]) for answer in server.ask([(ROOT, Request(code, {})) for code in (3005, 3010)]))
    return users, acls


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("is_killed", [False, True])
def test_users_are_imported_from_store_of_real_broker(tmp_path: Path, admin: Run, is_killed: bool) -> None:
    pytest.importorskip("rocksdict")
    with JavaCluster(tmp_path / "java", auth=AUTH) as running:
        theirs = Server(running.broker, running.namesrv)
        theirs.prepare()
        users, acls = (
            json.loads(answer[2]) for answer in theirs.ask([(ROOT, Request(3005, {})), (ROOT, Request(3010, {}))])
        )
        code, lines, err = admin("acl", "import", "--from-store", tmp_path / "java", "--to-store", tmp_path / "store")
        assert (code, lines) == (3, [])
        assert "--from-broker" in err
        running.kill() if is_killed else running.stop()
    with open_store(path=tmp_path / "store"):
        pass
    assert admin("acl", "import", "--from-store", tmp_path / "java", "--to-store", tmp_path / "store", keys=())[0] == 0
    written = json.loads((tmp_path / "store/config/users.json").read_text())["users"]
    assert {user["username"]: (user["password"], user["userType"], user["userStatus"]) for user in users} == {
        name: (user["password"], user["userType"], user["userStatus"]) for name, user in written.items()
    }
    policies = json.loads((tmp_path / "store/config/acls.json").read_text())["acls"]
    assert {acl["subject"]: acl["policies"] for acl in acls} == {
        name: acl["policies"] for name, acl in policies.items()
    }
