"""Signatures and TLS, at the real proxy and at ours: who is let in, and with which answer the others are refused."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gantrymq import AdminClient

from ..java_cluster import JavaCluster
from .conftest import SDKS, SERVERS, require
from .scene import Scene, keys_of
from .sdks import SdkClient, SdkError
from .servers import SETTINGS, JavaProxy, OurProxy, OurServer, Server, await_broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KEYS = {"accessKey": "rocketmq", "secretKey": "12345678"}
OTHERS = {"no": {}, "wrong": KEYS | {"secretKey": "wrong-secret"}, "unknown": KEYS | {"accessKey": "unknown-key"}}
AUTH = {
    "authenticationEnabled": "true",
    "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "initAuthenticationUser": '{"username":"rocketmq","password":"12345678"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"rocketmq","secretKey":"12345678"}',
}
PROXY_AUTH = AUTH | {
    "authenticationEnabled": True,
    "authenticationMetadataProvider": "org.apache.rocketmq.proxy.auth.ProxyAuthenticationMetadataProvider",
}
ACCOUNTS = """\
accounts:
- accessKey: rocketmq
  secretKey: "12345678"
  admin: true
"""


@dataclass(frozen=True)
class Encrypted:
    """A server and its certificate."""

    server: Server
    certificate: Path


# Accounts, and users: of our broker, of our proxy in front of our broker, and of our proxy in front of the real one.
GUARDED = (*SERVERS, "our users", "our proxy", "our proxy before java")


@pytest.fixture(scope="module", params=GUARDED)
def guarded(request: pytest.FixtureRequest, java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that serves one account or user only."""
    made: JavaProxy | OurServer | OurProxy
    folder = tmp_path_factory.mktemp("users")
    if request.param == "our users":
        made = OurServer(folder, settings=AUTH)
    elif request.param == "our proxy":
        made = OurProxy(folder, OurServer(folder, settings=AUTH), PROXY_AUTH)
    elif request.param == "our proxy before java":
        made = OurProxy(folder, JavaCluster(folder / "store", SETTINGS, auth=AUTH), PROXY_AUTH)
    elif request.param == "proxy":
        made = JavaProxy(tmp_path_factory.mktemp("guarded"), proxy=PROXY_AUTH, auth=AUTH)
    else:
        file: Path = tmp_path_factory.mktemp("acl") / "plain_acl.yml"
        file.write_text(ACCOUNTS)
        made = OurServer(tmp_path_factory.mktemp("guarded"), settings={"aclEnable": True, "aclPlainFile": str(file)})
    with made as server:
        yield server


@pytest.mark.parametrize("sdk", SDKS)
def test_only_valid_keys_are_accepted(guarded: Server, sdk: str) -> None:
    """The others are refused as UNAUTHORIZED; the SDKs for Python and Node.js keep the reason to themselves."""
    require(sdk)
    with await_broker(guarded.namesrv, access_key=KEYS["accessKey"], secret_key=KEYS["secretKey"]) as admin:
        assert exchange(guarded, sdk, admin, **KEYS) == ["key"]
        for name, keys in OTHERS.items():
            with pytest.raises(SdkError, match=".*" if sdk in {"python", "node"} else "40100|UNAUTHORIZED"):
                exchange(guarded, sdk, admin, f"-{name}", **keys)


@pytest.fixture(scope="module", params=SERVERS)
def encrypted(
    request: pytest.FixtureRequest, java: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Encrypted]:
    """A server with a certificate for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("certificate")
    certificate, key = folder / "server.crt", folder / "server.key"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True)
    made: JavaProxy | OurServer
    if request.param == "proxy":
        keys = {"tlsTestModeEnable": False, "tlsCertPath": str(certificate), "tlsKeyPath": str(key)}
        made = JavaProxy(tmp_path_factory.mktemp("encrypted"), proxy=keys)
    else:
        settings = {"tls.server.certPath": str(certificate), "tls.server.keyPath": str(key)}
        made = OurServer(tmp_path_factory.mktemp("encrypted"), settings=settings)
    with made as server:
        yield Encrypted(server, certificate)


@pytest.mark.parametrize("sdk", SDKS)
def test_tls_and_plain_text_share_port(encrypted: Encrypted, sdk: str) -> None:
    """Java's and Go's SDK speak TLS unless they are told not to."""
    require(sdk)
    with await_broker(encrypted.server.namesrv) as admin:
        for tls in (True, False):
            trusted = encrypted.certificate if tls else None
            assert exchange(encrypted.server, sdk, admin, f"-tls-{tls}", tls=tls, trusted=trusted) == ["key"]


def exchange(server: Server, sdk: str, admin: AdminClient, suffix: str = "", **options: Any) -> list[str]:
    """The keys of one message that a client of its own sends and receives."""
    with SdkClient(sdk, server.endpoints, **options) as client:
        scene = Scene("secure", sdk, server, client, admin)
        topic, group = scene.topic(suffix), scene.group(suffix)
        scene.producer(topic).send(topic, "key")
        return keys_of(scene.consumer(group, topic).gather(1))
