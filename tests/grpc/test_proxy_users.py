"""Users and policies through `gantrymq proxy`: the brokers decide, at once, and by the client's own address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from threading import Thread
from typing import Any

import grpc
import pytest
from client_cases import eventually
from sdk_round_trip import send_and_receive

from gantrymq import AdminClient
from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.client.settings import ClientConfig
from gantrymq.config.proxy_settings import ProxyConfig, read_proxy_config
from gantrymq.embedded.broker import EmbeddedBroker
from gantrymq.embedded.proxy import Proxy
from gantrymq.errors import ConfigError
from gantrymq.grpc.protocol import messages
from gantrymq.grpc.protocol.codes import Code, GrpcMessageType
from grpc_client import GrpcClient, message, signed
from source_address import relay_from

INNER = json.dumps({"accessKey": "proxy", "secretKey": "proxypw"})
AUTH = {"authenticationEnabled": "true", "innerClientAuthenticationCredentials": INNER}
USERS = {
    "root": "rootpw",
    "proxy": "proxypw",
    "shop": {
        "password": "shoppw",
        "policies": [
            {"resource": "Topic:orders", "actions": ["Pub", "Sub"], "decision": "Allow"},
            {"resource": "Topic:transfers", "actions": ["Pub"], "decision": "Allow"},
            {"resource": "Group:billing", "actions": ["Sub"], "decision": "Allow"},
        ],
    },
    "home": {
        "password": "homepw",
        "policies": [
            {"resource": "Topic:orders", "actions": ["Pub"], "sourceIps": ["127.0.0.2"], "decision": "Allow"},
        ],
    },
    "gone": {"password": "gonepw", "userStatus": "disable"},
}
TEXT = "User:{} has no permission to access {} from {}, no matched policies."


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(users=USERS, grpc=True, settings={"transactionCheckInterval": 1_000}) as broker:
        for topic in ("orders", "secrets"):
            broker.create_topic(topic)
        broker.create_topic("transfers", message_type="TRANSACTION")
        yield broker


@pytest.fixture(scope="module")
def proxy(guarded: EmbeddedBroker) -> Iterator[str]:
    config = replace(read_proxy_config(AUTH | {"namesrvAddr": guarded.namesrv}), grpc_server_port=0)
    server, loop = Proxy(config), LoopThread("proxy")
    loop.run(server.start())
    yield server.address
    loop.close(server.shutdown())


def admin_of(broker: EmbeddedBroker) -> AdminClient:
    return AdminClient(ClientConfig(broker.namesrv, access_key="root", secret_key="rootpw"))


def route_of(client: GrpcClient, topic: str) -> tuple[int, str]:
    request = messages.QueryRouteRequest()
    request.topic.name = topic
    status = client.call("QueryRoute", request).status
    return status.code, status.message


def test_user_sends_and_receives_with_sdk(proxy: str) -> None:
    send_and_receive(proxy, "shop", "shoppw")


@pytest.mark.parametrize(
    ("name", "password", "text"),
    [
        ("shop", "wrong", "check signature failed."),
        ("nobody", "pw", "User:nobody is not found."),
        ("gone", "gonepw", "User:gone is disabled."),
        ("", "", "username cannot be null."),
    ],
)
def test_call_without_valid_signature_is_unauthorized(proxy: str, name: str, password: str, text: str) -> None:
    with signed(proxy, name, password) if name else GrpcClient(proxy) as client:
        refused = client.send(message("orders")).status
        assert (refused.code, refused.message) == (Code.UNAUTHORIZED, text)
        assert client.receive("billing", "orders")[:2] == (Code.UNAUTHORIZED, text)
        assert route_of(client, "orders") == (Code.UNAUTHORIZED, text)
        with pytest.raises(grpc.RpcError):
            client.be_producer("orders")


def test_call_without_permission_is_unauthorized(proxy: str) -> None:
    with signed(proxy, "shop", "shoppw") as client:
        assert client.send(message("orders")).status.code == Code.OK
        for topic in ("secrets", "nowhere"):  # the answer does not tell which of them is there
            denied = (Code.UNAUTHORIZED, TEXT.format("shop", f"Topic:{topic}", "127.0.0.1"))
            refused = client.send(message(topic, b"", GrpcMessageType.FIFO)).status
            assert (refused.code, refused.message) == denied
            assert route_of(client, topic) == denied
        assert route_of(client, "orders")[0] == Code.OK
        with pytest.raises(grpc.RpcError, match="Topic:secrets"):
            client.be_producer("secrets")
    with signed(proxy, "shop", "shoppw") as client:
        assignment = messages.QueryAssignmentRequest()
        assignment.topic.name, assignment.group.name = "orders", "other"
        assert client.call("QueryAssignment", assignment).status.code == Code.UNAUTHORIZED
        client.be_consumer("billing", "orders")
        assert client.receive("billing", "secrets")[0] == Code.UNAUTHORIZED
        assert client.receive("other", "orders")[0] == Code.UNAUTHORIZED


def test_policy_counts_address_of_client(guarded: EmbeddedBroker, proxy: str) -> None:
    for address in (proxy, guarded.grpc):
        with signed(address, "home", "homepw") as client:
            assert client.send(message("orders")).status.message == TEXT.format("home", "Topic:orders", "127.0.0.1")
        with relay_from("127.0.0.2", address) as relay, signed(relay, "home", "homepw") as client:
            assert client.send(message("orders")).status.code == Code.OK
            assert client.send(message("secrets")).status.message == TEXT.format("home", "Topic:secrets", "127.0.0.2")


def test_deleted_user_is_refused_at_next_call(guarded: EmbeddedBroker, proxy: str) -> None:
    with admin_of(guarded) as admin, signed(proxy, "brief", "briefpw") as client:
        admin.create_user(guarded.address, "brief", "briefpw", "Super")
        assert client.send(message("secrets")).status.code == Code.OK
        assert route_of(client, "secrets")[0] == Code.OK
        admin.update_user(guarded.address, "brief", user_status="disable")
        for message_of in (
            lambda: client.send(message("secrets")).status.message,
            lambda: route_of(client, "secrets")[1],
        ):
            assert message_of() == "User:brief is disabled."
        admin.delete_user(guarded.address, "brief")
        refused = client.send(message("secrets")).status
        assert (refused.code, refused.message) == (Code.UNAUTHORIZED, "User:brief is not found.")


def test_deleted_producer_is_not_asked_about_transaction(guarded: EmbeddedBroker, proxy: str) -> None:
    with (
        admin_of(guarded) as admin,
        signed(proxy, "shop", "shoppw") as keeps,
        signed(proxy, "brief", "briefpw") as leaves,
    ):
        admin.create_user(guarded.address, "brief", "briefpw", "Super")
        for client in (leaves, keeps):
            client.be_producer("transfers")
        admin.delete_user(guarded.address, "brief")
        asked, asked_of_deleted = commands_of(keeps), commands_of(leaves)
        keeps.send(message("transfers", b"orphan", GrpcMessageType.TRANSACTION, recovery_s=10))

        def is_asked_twice() -> bool:
            guarded.clock.advance(60_000)
            return len(asked) >= 2

        eventually(is_asked_twice, "the producers take turns, so the other one had its turn, too")
        assert {command.recover_orphaned_transaction_command.message.body for command in asked} == {b"orphan"}
        assert asked_of_deleted == []


def commands_of(client: GrpcClient) -> list[Any]:
    """The commands that a client gets from now on, as they come."""
    commands: list[Any] = []

    def read() -> None:
        with suppress(grpc.RpcError):
            while True:
                commands.append(client.next_command())

    Thread(target=read, daemon=True).start()
    return commands


def test_proxy_that_is_no_super_user_is_refused(guarded: EmbeddedBroker) -> None:
    weak = AUTH | {"innerClientAuthenticationCredentials": json.dumps({"accessKey": "shop", "secretKey": "shoppw"})}
    config = replace(read_proxy_config(weak | {"namesrvAddr": guarded.namesrv}), grpc_server_port=0)
    server, loop = Proxy(config), LoopThread("proxy")
    loop.run(server.start())
    try:
        with signed(server.address, "root", "rootpw") as client:
            refused = client.send(message("orders")).status
            assert refused.code != Code.OK
            assert refused.message == "only a super user passes on requests of others"
    finally:
        loop.close(server.shutdown())


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"authentication_enabled": True}, "innerClientAuthenticationCredentials"),
        ({"authorization_enabled": True}, "authorizationEnabled"),
        ({"authentication_enabled": True, "acl_enable": True, "acl_plain_file": "a.yml"}, "aclEnable"),
    ],
)
def test_half_a_configuration_is_refused(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Proxy(ProxyConfig(namesrv_addr="127.0.0.1:1", **settings))
