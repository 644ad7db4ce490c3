"""haAuthenticationEnabled: a slave proves a user before any byte of the log, and a master proves that it knows it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker_cases import BrokerCase, StartBroker, StartNamesrv
from test_slave import SLAVE, SMALL, fill, in_sync, until, view

from gantrymq.auth.users import User
from gantrymq.broker.acl.user_access import UserAccess
from gantrymq.errors import ConfigError, LogCopyError
from gantrymq.ha.copy import CopyState
from gantrymq.ha.frames import LOGIN_BYTES, encode_report
from gantrymq.ha.login import Credentials, LoginRefusedError, login_connect, receive_login
from gantrymq.ha.slave_state import SlaveState

pytestmark = pytest.mark.asyncio

INNER = {"inner_client_credentials": json.dumps({"accessKey": "inner", "secretKey": "innerpw"})}
WRONG = {"inner_client_credentials": json.dumps({"accessKey": "inner", "secretKey": "wrong"})}
USERS = {"authentication_enabled": True, "authentication_whitelist": "10,26,28,310,907"}
LOGIN = {"ha_authentication_enabled": True}
MASTER = {**SMALL, **USERS, **INNER, **LOGIN}
READER = Credentials("inner", "innerpw")
CLOSED = ("127.0.0.1", SlaveState.NOT_LOGGED_IN)


def closed_by(master: BrokerCase) -> list[tuple[str, SlaveState]]:
    """The slaves that the master has closed, by host and state."""
    return [(slave.address.rpartition(":")[0], slave.state) for slave in master.server.replication.closed_slaves]


def users_of(master: BrokerCase) -> UserAccess:
    assert isinstance(master.server.access, UserAccess)
    return master.server.access


def connect_to(master: BrokerCase) -> socket.socket:
    return socket.create_connection(("127.0.0.1", master.server.replication.port), 5)


async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)


def log_in(master: BrokerCase, credentials: Credentials) -> socket.socket:
    connect = login_connect(socket.create_connection, lambda: credentials)
    return connect(("127.0.0.1", master.server.replication.port), 1)


def read_all(peer: socket.socket) -> bytes:
    received = b""
    while piece := peer.recv(4096):
        received += piece
    return received


async def test_slave_with_user_copies_and_deleted_user_is_closed(
    start_namesrv: StartNamesrv, start_broker: StartBroker, tmp_path: Path
) -> None:
    namesrv = (await start_namesrv()).address
    master = await start_broker(tmp_path / "master", **MASTER, namesrv_addr=namesrv)
    slave = await start_broker(tmp_path / "slave", **SLAVE, **USERS, **INNER, **LOGIN, namesrv_addr=namesrv)
    await fill(master, 5)
    await in_sync(slave, master)
    await users_of(master).change(lambda old: old.delete_user("inner", by_super=True))
    await until(lambda: CLOSED in closed_by(master))
    assert master.server.replication.slaves == []


async def test_slave_with_wrong_password_shows_state_and_copies_nothing(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    master = await start_broker(tmp_path / "master", **MASTER)
    await fill(master, 5)
    at = {"ha_master_address": f"127.0.0.1:{master.server.replication.port}"}
    slave = await start_broker(tmp_path / "slave", **SLAVE, **USERS, **WRONG, **LOGIN, **at)
    await until(lambda: view(slave).state is CopyState.LOGIN_FAILED)
    assert view(slave).reason == "the master refuses the login: 'check signature failed.'"
    assert closed_by(master) == [CLOSED]
    assert slave.server.store.max_phy_offset <= 0


async def test_peer_without_login_gets_no_byte(start_broker: StartBroker, tmp_path: Path) -> None:
    master = await start_broker(tmp_path / "master", **MASTER)
    assert await fill(master, 2) > 128
    for sent in (encode_report(0), encode_report(1), LOGIN_BYTES + b"\0\5inner" + bytes(64)):
        with connect_to(master) as peer:
            peer.sendall(sent)
            received = await in_thread(read_all, peer)
            assert len(received) < 128  # at most a challenge and a refusal
    assert closed_by(master) == [CLOSED]


async def test_allowed_address_needs_no_login(start_broker: StartBroker, tmp_path: Path) -> None:
    master = await start_broker(tmp_path / "master", **MASTER, ha_allowed_slaves="127.0.0.0/8")
    end = await fill(master, 2)
    with connect_to(master) as peer:
        peer.sendall(encode_report(0))
        head = await in_thread(partial(peer.recv, 12, socket.MSG_WAITALL))
        assert head == bytes(8) + end.to_bytes(4, "big")
    (await in_thread(log_in, master, READER)).close()


@pytest.mark.parametrize(
    ("credentials", "text"),
    [
        (Credentials("inner", "wrong"), "check signature failed."),
        (Credentials("nobody", "pw"), "User:nobody is not found."),
        (Credentials("reader", "readerpw"), "User:reader has no permission to access Cluster:DefaultCluster"),
    ],
)
async def test_user_that_may_not_read_cluster_is_refused(
    start_broker: StartBroker, tmp_path: Path, credentials: Credentials, text: str
) -> None:
    master = await start_broker(tmp_path / "master", **MASTER)
    await users_of(master).change(lambda old: old.create_user(User("reader", "readerpw"), by_super=True))
    with pytest.raises(LogCopyError, match=text):
        await in_thread(log_in, master, credentials)


async def test_administrator_of_accounts_may_copy_and_others_not(start_broker: StartBroker, tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(
        "globalWhiteRemoteAddresses: [127.0.0.1]\naccounts:\n"
        "- {accessKey: adminKey, secretKey: adminSecret, admin: true}\n"
        "- {accessKey: otherKey, secretKey: otherSecret}\n"
    )
    acl = {"acl_enable": True, "acl_plain_file": str(file)}
    master = await start_broker(tmp_path / "master", **SMALL, **acl, **LOGIN)
    for credentials, text in (
        (Credentials("otherKey", "otherSecret"), "no administrator"),
        (Credentials("adminKey", "otherSecret"), "Check signature failed"),
        (Credentials("unknown", "otherSecret"), "No acl config"),
    ):
        with pytest.raises(LogCopyError, match=text):
            await in_thread(log_in, master, credentials)
    (await in_thread(log_in, master, Credentials("adminKey", "adminSecret"))).close()
    at = {"ha_master_address": f"127.0.0.1:{master.server.replication.port}"}
    slave = await start_broker(tmp_path / "slave", **SLAVE, **acl, **LOGIN, **at)
    await until(lambda: view(slave).state is CopyState.IN_SYNC)


async def test_slave_refuses_master_without_login(start_broker: StartBroker, tmp_path: Path) -> None:
    master = await start_broker(tmp_path / "master", **SMALL)
    with pytest.raises(LogCopyError, match="set haAuthenticationEnabled=true at the master"):
        await in_thread(log_in, master, READER)


class OneUser:
    """Users of a peer that takes every signature, as a master that does not know the password would."""

    def __init__(self, password: str) -> None:
        self._password = password

    def secret_of(self, access_key: str) -> str | None:
        return self._password

    def slave_refusal(self, ip: str, access_key: str, is_signed: Callable[[str], bool]) -> str | None:
        return None


async def test_slave_refuses_master_that_does_not_know_password() -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    ours.settimeout(5)
    login = asyncio.ensure_future(receive_login(theirs, "127.0.0.1", OneUser("guessed")))
    connect = login_connect(lambda address, timeout_s: ours, lambda: READER)
    with pytest.raises(LogCopyError, match="does not know the password"):
        await in_thread(connect, ("127.0.0.1", 1), 5.0)
    assert await login
    theirs.close()


async def test_replayed_login_is_refused(start_broker: StartBroker, tmp_path: Path) -> None:
    """What a slave has sent once is of no use for another connection."""
    master = await start_broker(tmp_path / "master", **MASTER)
    sent: list[bytes] = []

    class Recorder(socket.socket):
        def sendall(self, data: Any, flags: int = 0) -> None:
            sent.append(bytes(data))
            super().sendall(data, flags)

    def recorded(address: tuple[str, int], timeout_s: float) -> socket.socket:
        recorder = Recorder()
        recorder.settimeout(timeout_s)
        recorder.connect(address)
        return recorder

    connect = login_connect(recorded, lambda: READER)
    (await in_thread(connect, ("127.0.0.1", master.server.replication.port), 5.0)).close()
    with connect_to(master) as peer:
        peer.sendall(b"".join(sent))
        received = await in_thread(read_all, peer)
    assert received[44:45] == b"\0"
    assert received.endswith(b"check signature failed.")


async def test_login_with_too_long_name_is_refused() -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    ours.sendall(LOGIN_BYTES + b"\xff\xff")
    with pytest.raises(LoginRefusedError, match="65535 bytes"):
        await receive_login(theirs, "127.0.0.1", OneUser("pw"))
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    "settings", [{**SMALL, **LOGIN}, {**SLAVE, **LOGIN, "ha_enable": False}, {**SLAVE, **USERS, **LOGIN}]
)
async def test_half_a_configuration_is_refused(
    start_broker: StartBroker, tmp_path: Path, settings: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="haAuthenticationEnabled"):
        await start_broker(tmp_path / "store", **settings)
