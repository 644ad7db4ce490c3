"""A broker and a client over real sockets, and the requests that tests make most."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from gantrymq.broker.server import BrokerServer
from gantrymq.broker.sessions.consumers import build_subscription
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format import record
from gantrymq.format.record import Layout
from gantrymq.fs.api import FileSystem
from gantrymq.model.message import StoredMessage
from gantrymq.namesrv.server import NamesrvServer
from gantrymq.remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData
from gantrymq.remoting.body import Body
from gantrymq.remoting.codes import PullSysFlag, RequestCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.header import CommandHeader
from gantrymq.remoting.headers.consumer import HeartbeatRequestHeader
from gantrymq.remoting.headers.pull import PullMessageRequestHeader
from gantrymq.remoting.headers.send import SendMessageRequestHeaderV2
from gantrymq.remoting.transport.client import RemotingClient
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

STORE = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 24,
    mapped_file_size_consume_queue=60_000,
    max_hash_slot_num=1000,
    max_index_num=4000,
)
TIMEOUT_MS = 60_000
# On a busy machine a send may wait for longer than the 200 ms after which a broker refuses it.
PATIENT = {"wait_time_in_send_queue_ms": TIMEOUT_MS, "os_page_cache_busy_timeout_ms": TIMEOUT_MS}
StartBroker = Callable[..., Awaitable["BrokerCase"]]
StartNamesrv = Callable[..., Awaitable[NamesrvServer]]


class BrokerCase:
    """``server`` and a client; ``settings`` are those of BrokerConfig and MessageStoreConfig by attribute.

    ``async with`` starts and stops it; a test takes it from the fixtures ``broker`` and ``start_broker``, which do so.
    """

    def __init__(
        self, path: Path, *, clock: Clock | None = None, fs: FileSystem | None = None, **settings: Any
    ) -> None:
        of_broker = {name: settings.pop(name) for name in list(settings) if hasattr(BrokerConfig, name)}
        config = LiveConfig(BrokerConfig(**{"listen_port": 0, **PATIENT, **of_broker}), replace(STORE, **settings))
        self.server = BrokerServer(path, config, clock=clock, fs=fs)
        self._clients: list[RemotingClient] = []
        self.client = self.another_client()

    async def __aenter__(self) -> Self:
        await self.server.start()
        return self

    async def __aexit__(self, *of: object) -> None:
        await self.stop()

    def another_client(self, handler: RequestDispatcher | None = None) -> RemotingClient:
        """A client with connections of its own, which ends with the broker."""
        self._clients.append(RemotingClient(handler=handler))
        return self._clients[-1]

    async def stop(self) -> None:
        """Also in the middle of a test that starts another one on the store; a second time is harmless."""
        await asyncio.gather(*(client.close() for client in self._clients))
        await self.server.shutdown()

    async def ask(
        self, header: CommandHeader | int, body: bytes | Body = b"", code: int | None = None
    ) -> RemotingCommand:
        raw = body.encode() if isinstance(body, Body) else body
        request = RemotingCommand.request(header, raw, code=code)
        return await self.client.invoke(self.server.address, request, TIMEOUT_MS)

    async def send(
        self, topic: str = "T", body: bytes = b"body", *, code: int = RequestCode.SEND_MESSAGE_V2, **fields: Any
    ) -> RemotingCommand:
        properties = fields.pop("properties", {})
        header = SendMessageRequestHeaderV2(
            **{
                "producer_group": "P",
                "topic": topic,
                "default_topic": "TBW102",
                "default_topic_queue_nums": 4,
                "queue_id": 0,
                "sys_flag": 0,
                "born_timestamp": 1_700_000_000_000,
                "flag": 0,
                "properties": "".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
                **fields,
            }
        )
        return await self.ask(header, body, code)

    async def pull(self, topic: str = "T", offset: int = 0, **fields: Any) -> RemotingCommand:
        header = PullMessageRequestHeader(
            **{
                "consumer_group": "G",
                "topic": topic,
                "queue_id": 0,
                "queue_offset": offset,
                "max_msg_nums": 32,
                "sys_flag": int(PullSysFlag.SUBSCRIPTION),
                "commit_offset": 0,
                "suspend_timeout_millis": 0,
                "subscription": "*",
                "sub_version": 0,
                **fields,
            }
        )
        return await self.ask(header)

    async def dispatched(self, count: int, topic: str = "T", queue_id: int = 0) -> None:
        """Wait until a pull finds as many messages."""
        while self.server.store.max_offset_in_queue(topic, queue_id) < count:
            await asyncio.sleep(0.001)

    async def heart_beat(
        self, group: str = "G", topics: tuple[str, ...] = ("T",), *, client_id: str = "c1", version: int = 1, **of: Any
    ) -> RemotingCommand:
        consumer = ConsumerData(
            group_name=group,
            consume_type="CONSUME_PASSIVELY",
            message_model=of.pop("message_model", "CLUSTERING"),
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=[build_subscription(topic, of.get("tags", "*"), "TAG", version) for topic in topics],
        )
        of.pop("tags", None)
        data = HeartbeatData(
            client_id=client_id, consumer_data_set=[consumer], producer_data_set=[ProducerData(group_name="P")], **of
        )
        return await self.ask(HeartbeatRequestHeader(), data)


def messages_of(body: bytes) -> list[StoredMessage]:
    """The records in the body of a pull or a query."""
    found, position = [], 0
    while position < len(body):
        layout = record.read_layout(memoryview(body), position, len(body))
        assert isinstance(layout, Layout)
        found.append(record.decode_record(memoryview(body), position, layout))
        position += layout.size
    return found
