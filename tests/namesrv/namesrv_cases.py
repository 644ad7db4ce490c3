"""A name server with clients over real sockets, and registrations as brokers make them."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from gantrymq.clock import Clock
from gantrymq.fs.api import FileSystem
from gantrymq.namesrv.server import NamesrvServer
from gantrymq.namesrv.settings import NamesrvConfig
from gantrymq.remoting.bodies.registration import encode_compressed
from gantrymq.remoting.bodies.topic import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from gantrymq.remoting.body import Body
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.header import CommandHeader
from gantrymq.remoting.headers.namesrv import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from gantrymq.remoting.transport.client import RemotingClient

ADDRESS = "10.0.0.1:10911"
TIMEOUT_MS = 60_000


def registration(
    address: str = ADDRESS, broker_id: int = 0, *, name: str = "broker-a", cluster: str = "C", **fields: Any
) -> RegisterBrokerRequestHeader:
    """What a broker says of itself."""
    of = {"broker_name": name, "broker_addr": address, "cluster_name": cluster, "broker_id": broker_id}
    return RegisterBrokerRequestHeader(**{**of, "ha_server_addr": address.replace("10911", "10912"), **fields})


def topics(*names: str, version: int = 1, state: int = 0, perm: int = 6) -> TopicConfigAndMappingSerializeWrapper:
    """What a broker says of its topics; ``version`` counts its changes."""
    return TopicConfigAndMappingSerializeWrapper(
        topic_config_table={name: TopicConfig(topic_name=name, perm=perm) for name in names},
        data_version=DataVersion(counter=version, state_version=state),
    )


class NamesrvCase:
    """``server`` with its files in ``home``, and a client; ``settings`` are those of NamesrvConfig by attribute."""

    def __init__(
        self, home: Path, *, clock: Clock | None = None, fs: FileSystem | None = None, **settings: Any
    ) -> None:
        self.server = NamesrvServer(NamesrvConfig(listen_port=0, **settings), home=home, clock=clock, fs=fs)
        self.client = RemotingClient()

    async def start(self) -> None:
        await self.server.start()

    async def stop(self) -> None:
        await self.client.close()
        await self.server.shutdown()

    async def ask(
        self, header: CommandHeader | int, body: bytes | Body = b"", *, client: RemotingClient | None = None, **of: Any
    ) -> RemotingCommand:
        """The answer; ``of`` are attributes of the command: version, ext_fields."""
        request = RemotingCommand.request(header, body.encode() if isinstance(body, Body) else body)
        for name, value in of.items():
            if name == "ext_fields":
                request.ext_fields.update(value)
            else:
                setattr(request, name, value)
        return await (client or self.client).invoke(self.server.address, request, TIMEOUT_MS)

    async def register(
        self,
        header: RegisterBrokerRequestHeader,
        said: TopicConfigAndMappingSerializeWrapper,
        *,
        compressed: bool = False,
        client: RemotingClient | None = None,
        **of: Any,
    ) -> RemotingCommand:
        """Register as a broker does, with the checksum of the body."""
        body = RegisterBrokerBody(topic_config_serialize_wrapper=said)
        raw = encode_compressed(body) if compressed else body.encode()
        header.compressed, header.body_crc32 = compressed, zlib.crc32(raw) & 0x7FFFFFFF
        return await self.ask(header, raw, client=client, **of)

    async def route(self, topic: str, **of: Any) -> RemotingCommand:
        return await self.ask(GetRouteInfoRequestHeader(topic=topic), **of)
