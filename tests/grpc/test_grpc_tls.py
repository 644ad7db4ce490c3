"""TLS and plain text on one port."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import grpc
import pytest

from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.config.proxy_settings import ProxyConfig
from gantrymq.embedded.broker import EmbeddedBroker
from gantrymq.embedded.proxy import Proxy
from gantrymq.errors import RemotingError
from gantrymq.grpc.protocol.codes import Code
from gantrymq.remoting.transport.tls import tls_server
from grpc_client import GrpcClient, message


@contextmanager
def started(broker: EmbeddedBroker, mode: str, port: int = 0) -> Iterator[Proxy]:
    config = ProxyConfig(namesrv_addr=broker.namesrv, grpc_server_port=port)
    tls = tls_server({"tls.server.mode": mode, "tls.test.mode.enable": "true"})
    loop = LoopThread("proxy")

    async def made() -> Proxy:
        return Proxy(config, tls=tls)

    proxy = loop.run(made())
    try:
        loop.run(proxy.start())
        yield proxy
    finally:
        loop.close(proxy.shutdown())


@pytest.fixture(scope="module")
def both(broker: EmbeddedBroker) -> Iterator[Proxy]:
    with started(broker, "permissive") as proxy:
        yield proxy


@pytest.fixture(scope="module")
def only_tls(broker: EmbeddedBroker) -> Iterator[Proxy]:
    with started(broker, "enforcing") as proxy:
        yield proxy


def credentials(address: str) -> grpc.ChannelCredentials:
    host, _, port = address.rpartition(":")
    return grpc.ssl_channel_credentials(ssl.get_server_certificate((host, int(port))).encode())


def test_plain_text_and_tls_share_port(broker: EmbeddedBroker, both: Proxy) -> None:
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


def test_broken_handshake_ends_only_its_connection(both: Proxy) -> None:
    host, _, port = both.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"\x16\x03\x01\x00\x05wrong")
        while connection.recv(1024):
            pass
    with GrpcClient(both.address) as plain:
        assert plain.send(message("nowhere")).status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def listening_ports() -> set[int]:
    """The TCP ports on which this process listens."""
    own = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            own.add(os.readlink(descriptor).removeprefix("socket:[").removesuffix("]"))
        except FileNotFoundError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in own:
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def test_server_opens_no_port_but_its_own(broker: EmbeddedBroker) -> None:
    before = listening_ports()
    with started(broker, "enforcing") as proxy:
        assert listening_ports() - before == {int(proxy.address.rpartition(":")[2])}


def test_start_on_port_in_use_is_refused(broker: EmbeddedBroker) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(RemotingError, match="cannot listen"),
        started(broker, "permissive", taken.getsockname()[1]),
    ):
        pass
