"""Our proxy before the real broker with users and policies: it asks for both, and decides as the real proxy."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gantrymq import AdminClient
from gantrymq.client.admin.auth import policies
from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.client.settings import ClientConfig
from gantrymq.config.proxy_settings import read_proxy_config
from gantrymq.embedded.proxy import Proxy
from gantrymq.grpc.protocol import messages
from gantrymq.grpc.protocol.codes import Code
from grpc_client import message, signed
from source_address import relay_from

from .java_cluster import JavaCluster

pytestmark = pytest.mark.slow
_PACKAGE = "org.apache.rocketmq"
INNER = json.dumps({"accessKey": "inner", "secretKey": "innerpw"})
AUTH = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "rootpw"}),
    "innerClientAuthenticationCredentials": INNER,
}
OF_BROKER = {
    "authenticationMetadataProvider": f"{_PACKAGE}.auth.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_PACKAGE}.auth.authorization.provider.LocalAuthorizationMetadataProvider",
}
OF_PROXY = {
    f"{name}MetadataProvider": f"{_PACKAGE}.proxy.auth.Proxy{name.capitalize()}MetadataProvider"
    for name in ("authentication", "authorization")
}
CACHE_S = 1
TEXT = "User:{} has no permission to access {} from {}, no matched policies."


@pytest.fixture(scope="module")
def theirs(java: None) -> Iterator[JavaCluster]:
    with (
        tempfile.TemporaryDirectory(prefix="gantrymq-users-") as folder,
        JavaCluster(Path(folder) / "store", {"timerWheelEnable": True}, auth=AUTH | OF_BROKER) as running,
    ):
        with admin_of(running) as admin:
            for topic in ("orders", "secrets"):
                admin.create_topic(topic)
            for name in ("shop", "home", "brief"):
                admin.create_user(running.broker, name, f"{name}pw")
            admin.create_acl(running.broker, policies("User:shop", ["Topic:orders"], ["Pub", "Sub"], "Allow"))
            admin.update_acl(running.broker, policies("User:shop", ["Group:billing"], ["Sub"], "Allow"))
            admin.create_acl(running.broker, policies("User:home", ["Topic:orders"], ["Pub"], "Allow", ["127.0.0.2"]))
            admin.create_acl(running.broker, policies("User:brief", ["Topic:orders"], ["Pub"], "Allow"))
        yield running


@pytest.fixture(scope="module")
def proxy(theirs: JavaCluster) -> Iterator[str]:
    entries = AUTH | OF_PROXY | {"namesrvAddr": theirs.namesrv, "userCacheRefreshSeconds": str(CACHE_S)}
    server, loop = Proxy(replace(read_proxy_config(entries), grpc_server_port=0), entries=entries), LoopThread("proxy")
    loop.run(server.start())
    yield server.address
    loop.close(server.shutdown())


def admin_of(cluster: JavaCluster) -> AdminClient:
    return AdminClient(ClientConfig(cluster.namesrv, access_key="root", secret_key="rootpw"))


def test_permitted_user_sends_and_receives(proxy: str) -> None:
    with signed(proxy, "shop", "shoppw") as client:
        assert client.send(message("orders", b"by a user")).status.code == Code.OK
        client.be_consumer("billing", "orders")
        code, text, received = client.receive("billing", "orders")
        assert (code, text, [one.body for one in received]) == (Code.OK, "OK", [b"by a user"])
        assert client.ack("billing", "orders", received[0]).status.code == Code.OK


def test_user_without_permission_is_unauthorized(proxy: str) -> None:
    with signed(proxy, "shop", "shoppw") as client:
        refused = client.send(message("secrets")).status
        assert (refused.code, refused.message) == (
            Code.UNAUTHORIZED, TEXT.format("shop", "Topic:secrets", "127.0.0.1"),
        )  # fmt: skip
        route = messages.QueryRouteRequest()
        route.topic.name = "secrets"
        assert client.call("QueryRoute", route).status.code == Code.UNAUTHORIZED
        assert client.receive("other", "orders")[0] == Code.UNAUTHORIZED


@pytest.mark.parametrize(
    ("name", "password", "text"),
    [("shop", "wrong", "check signature failed."), ("nobody", "pw", "User:nobody is not found.")],
)
def test_wrong_signature_is_unauthorized(proxy: str, name: str, password: str, text: str) -> None:
    with signed(proxy, name, password) as client:
        refused = client.send(message("orders")).status
        assert (refused.code, refused.message) == (Code.UNAUTHORIZED, text)


def test_policy_counts_address_of_client(proxy: str) -> None:
    with signed(proxy, "home", "homepw") as client:
        assert client.send(message("orders")).status.message == TEXT.format("home", "Topic:orders", "127.0.0.1")
    with relay_from("127.0.0.2", proxy) as relay, signed(relay, "home", "homepw") as client:
        assert client.send(message("orders")).status.code == Code.OK


def test_deleted_user_is_refused_within_cache_time(theirs: JavaCluster, proxy: str) -> None:
    with admin_of(theirs) as admin, signed(proxy, "brief", "briefpw") as client:
        assert client.send(message("orders")).status.code == Code.OK
        admin.delete_user(theirs.broker, "brief")
        deadline_s = time.monotonic() + 30
        while client.send(message("orders")).status.message != "User:brief is not found.":
            assert time.monotonic() < deadline_s
            time.sleep(CACHE_S / 4)
