"""A name server under the users of the brokers: who may register, ask for routes and change settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from client_cases import eventually

from gantrymq import AdminClient, Message, Producer
from gantrymq.broker.server import BrokerServer
from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError, GantrymqError, StoreError
from gantrymq.namesrv.server import NamesrvServer
from gantrymq.namesrv.settings import NamesrvConfig, read_namesrv_config
from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.client import RemotingClient

ROOT = json.dumps({"username": "root", "password": "rootpw"})
INNER = json.dumps({"accessKey": "inner", "secretKey": "innerpw"})
KEYS = {"authenticationEnabled": "true", "authorizationEnabled": "true", "initAuthenticationUser": ROOT}
SHOP = {
    "userType": "Normal",
    "userStatus": "enable",
    "password": "shoppw",
}
ALLOWED = {"resource": "Topic:orders", "actions": ["Pub"], "decision": "Allow"}


class ClosedCluster:
    """A closed name server, and a broker whose users it has."""

    def __init__(self, folder: Path) -> None:
        self._loop, self.directory = LoopThread("cluster"), folder / "store" / "config"
        self.directory.mkdir(parents=True)
        self.write_users({"shop": SHOP})
        acls = {"User:shop": {"policies": [{"policyType": "Custom", "entries": [ALLOWED]}]}}
        (self.directory / "acls.json").write_text(json.dumps({"acls": acls}))
        entries = KEYS | {"usersDirectory": str(self.directory), "innerClientAuthenticationCredentials": INNER}
        self._namesrv = NamesrvServer(read_namesrv_config(entries | {"listenPort": "0"}), home=folder / "namesrv")
        self._loop.run(self._namesrv.start())
        self.namesrv = self._namesrv.address
        broker = BrokerConfig(
            namesrv_addr=self.namesrv, listen_port=0, authentication_enabled=True, authorization_enabled=True,
            init_authentication_user=ROOT, inner_client_credentials=INNER,
        )  # fmt: skip
        config = LiveConfig(broker, MessageStoreConfig(mapped_file_size_commit_log=1 << 20))
        self._broker = BrokerServer(folder / "store", config)
        self._loop.run(self._broker.start())
        self.broker = self._broker.address

    def write_users(self, users: dict[str, Any]) -> None:
        (self.directory / "users.json").write_text(json.dumps({"users": users}))

    def ask(self, code: int, credentials: SessionCredentials | None, **fields: str) -> tuple[int, str | None]:
        """The answer of the name server."""
        return self.ask_all([code], credentials, **fields)[code]

    def ask_all(
        self, codes: Iterable[int], credentials: SessionCredentials | None, **fields: str
    ) -> dict[int, tuple[int, str | None]]:
        """The answers of the name server, by code."""

        async def invoke() -> dict[int, tuple[int, str | None]]:
            client, answers = RemotingClient(), {}
            for code in codes:
                request = RemotingCommand(code, ext_fields=dict(fields))
                if credentials is not None:
                    credentials.sign(request)
                response = await client.invoke(self.namesrv, request, 3_000)
                answers[int(code)] = response.code, response.remark
            await client.close()
            return answers

        return self._loop.run(invoke())

    def close(self) -> None:
        self._loop.run(self._broker.shutdown())
        self._loop.close(self._namesrv.shutdown())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClosedCluster]:
    running = ClosedCluster(tmp_path_factory.mktemp("closed"))
    with AdminClient(running.namesrv, access_key="root", secret_key="rootpw") as admin:
        for topic in ("orders", "secrets"):
            admin.create_topic(topic)
    yield running
    running.close()


def test_broker_and_clients_with_credentials_work(cluster: ClosedCluster) -> None:
    with Producer(cluster.namesrv, access_key="shop", secret_key="shoppw") as producer:
        assert producer.send(Message("orders", b"signed")).queue.broker_name
        with pytest.raises(GantrymqError, match="Topic:secrets"):
            producer.send(Message("secrets", b"not mine"))


@pytest.mark.parametrize(
    ("credentials", "text"),
    [
        (None, "username cannot be null."),
        (SessionCredentials("nobody", "pw"), "User:nobody is not found."),
        (SessionCredentials("shop", "wrong"), "check signature failed."),
    ],
)
def test_every_request_without_valid_signature_is_refused(
    cluster: ClosedCluster, credentials: SessionCredentials | None, text: str
) -> None:
    answers = cluster.ask_all([*RequestCode, 4711], credentials, topic="orders")
    assert set(answers.values()) == {(ResponseCode.NO_PERMISSION, text)}


def test_user_with_policy_of_topic_gets_nothing_but_its_route(cluster: ClosedCluster) -> None:
    shop, route = SessionCredentials("shop", "shoppw"), RequestCode.GET_ROUTEINFO_BY_TOPIC
    answers = cluster.ask_all([code for code in RequestCode if code != route], shop, topic="orders")
    denied = "User:shop has no permission to access Cluster: from 127.0.0.1, no matched policies."
    assert set(answers.values()) == {(ResponseCode.NO_PERMISSION, denied)}
    assert cluster.ask(route, shop, topic="orders")[0] == ResponseCode.SUCCESS
    assert cluster.ask(route, shop, topic="secrets")[0] == ResponseCode.NO_PERMISSION


def test_change_of_users_takes_effect_and_damaged_file_changes_nothing(
    cluster: ClosedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    brief = SessionCredentials("brief", "briefpw")
    asked = (RequestCode.GET_BROKER_CLUSTER_INFO, brief)
    before = (cluster.directory / "users.json").read_text()
    cluster.write_users({"shop": SHOP, "brief": SHOP | {"password": "briefpw", "userType": "Super"}})
    eventually(lambda: cluster.ask(*asked)[0] == ResponseCode.SUCCESS, "a new user is known")
    (cluster.directory / "users.json").write_text(before[:-9])
    eventually(lambda: "users not reloaded" in caplog.text, "a damaged file is named")
    assert cluster.ask(*asked)[0] == ResponseCode.SUCCESS
    (cluster.directory / "users.json").write_text(before)
    eventually(lambda: cluster.ask(*asked)[1] == "User:brief is not found.", "a deleted user is refused")


def test_settings_are_shown_without_passwords(cluster: ClosedCluster) -> None:
    with AdminClient(cluster.namesrv, access_key="root", secret_key="rootpw") as admin:
        shown = str(admin.name_server_config())
    assert "authenticationEnabled" in shown
    assert "pw" not in shown


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        ({"authorizationEnabled": "true"}, "authorizationEnabled"),
        ({"authenticationEnabled": "true"}, "usersDirectory"),
        ({"authenticationEnabled": "true", "usersDirectory": "/nowhere"}, "usersDirectory"),
        ({"authenticationEnabled": "true", "initAuthenticationUser": '{"username":"root"}'}, "initAuthenticationUser"),
    ],
)
def test_half_a_configuration_is_refused(entries: dict[str, str], name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=name):
        NamesrvServer(read_namesrv_config(entries), home=tmp_path)


def test_damaged_file_stops_start(tmp_path: Path) -> None:
    (tmp_path / "users.json").write_text('{"users": {"a": ')
    config = NamesrvConfig(authentication_enabled=True, users_directory=str(tmp_path), init_authentication_user=ROOT)
    with pytest.raises(StoreError, match=r"users\.json"):
        NamesrvServer(config, home=tmp_path)
    assert (tmp_path / "users.json").read_text() == '{"users": {"a": '


def test_users_of_broker_in_same_process_do_not_close_name_server() -> None:
    assert not read_namesrv_config(KEYS, of_broker=True).authentication_enabled
