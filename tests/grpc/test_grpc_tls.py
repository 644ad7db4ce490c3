"""TLS and plain text on one port."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from uuid import uuid4

import grpc
import pytest
from grpc_client import GrpcClient, message

from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.config.proxy_settings import ProxyConfig
from gantrymq.embedded.broker import EmbeddedBroker
from gantrymq.embedded.proxy import Proxy
from gantrymq.grpc.protocol.codes import Code
from gantrymq.remoting.transport.tls import tls_server


def start(broker: EmbeddedBroker, mode: str) -> Iterator[Proxy]:
    config = ProxyConfig(namesrv_addr=broker.namesrv, grpc_server_port=0)
    tls = tls_server({"tls.server.mode": mode, "tls.test.mode.enable": "true"})
    loop = LoopThread("proxy")

    async def made() -> Proxy:
        return Proxy(config, tls=tls)

    proxy = loop.run(made())
    loop.run(proxy.start())
    yield proxy
    loop.close(proxy.shutdown())


@pytest.fixture(scope="module")
def both(broker: EmbeddedBroker) -> Iterator[Proxy]:
    yield from start(broker, "permissive")


@pytest.fixture(scope="module")
def only_tls(broker: EmbeddedBroker) -> Iterator[Proxy]:
    yield from start(broker, "enforcing")


def credentials(address: str) -> grpc.ChannelCredentials:
    host, _, port = address.rpartition(":")
    return grpc.ssl_channel_credentials(ssl.get_server_certificate((host, int(port))).encode())


def test_both_are_answered_on_one_port(broker: EmbeddedBroker, both: Proxy) -> None:
    topic = f"t-{uuid4().hex[:12]}"
    broker.create_topic(topic)
    with (
        GrpcClient(both.address, credentials=credentials(both.address)) as encrypted,
        GrpcClient(both.address) as plain,
    ):
        body = bytes(range(256)) * 1_000
        assert encrypted.send(message(topic, body)).status.code == Code.OK
        plain.be_consumer("tls", topic)
        (received,) = plain.receive("tls", topic)[2]
        assert received.body == body
        assert received.system_properties.born_host.startswith("127.0.0.1:")
        encrypted.be_consumer("tls-too", topic)
        (again,) = encrypted.receive("tls-too", topic)[2]
        assert again.body == body
        assert encrypted.ack("tls-too", topic, again).status.code == Code.OK


def test_plain_text_is_refused_where_tls_is_enforced(only_tls: Proxy) -> None:
    with (
        GrpcClient(only_tls.address) as plain,
        GrpcClient(only_tls.address, credentials=credentials(only_tls.address)) as encrypted,
    ):
        with pytest.raises(grpc.RpcError) as raised:
            plain.send(message("nowhere"))
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        assert encrypted.send(message("nowhere")).status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_a_broken_handshake_ends_its_connection_alone(both: Proxy) -> None:
    host, _, port = both.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"\x16\x03\x01\x00\x05wrong")
        while connection.recv(1024):
            pass
    with GrpcClient(both.address) as plain:
        assert plain.send(message("nowhere")).status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
