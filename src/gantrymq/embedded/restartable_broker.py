"""One embedded broker through its lives: started, killed, started again, on the same store and the same ports.

Thread rule: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gantrymq.clock import ShiftedClock
from gantrymq.config.broker_settings import LiveConfig, knows
from gantrymq.config.properties import parse_assignments
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.embedded.standalone import Extras, Standalone
from gantrymq.errors import ConfigError, MQBrokerError, RemotingError
from gantrymq.fs.killable import KillableFileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.namesrv.settings import acts, read_namesrv_config
from gantrymq.remoting.bodies.route import PERM_READ, PERM_WRITE
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.namesrv import GetRouteInfoRequestHeader
from gantrymq.remoting.headers.topic import CreateTopicRequestHeader
from gantrymq.remoting.transport.client import RemotingClient
from gantrymq.store.message_store import MessageStore

Setting = str | int | bool
Settings = Mapping[str, Setting]

# Files of a few megabytes, made in a moment; and a broker that does not refuse what waited while a test was busy.
DEFAULTS: Settings = {
    "mappedFileSizeCommitLog": 16 << 20,
    "mappedFileSizeConsumeQueue": 60_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    "waitTimeMillsInSendQueue": 60_000,
    "osPageCacheBusyTimeOutMills": 60_000,
}
_TIMEOUT_MS = 10_000
_ASK_AGAIN_S = 0.005


class RestartableBroker:
    """The store at ``store`` with RocketMQ's ``settings`` over :data:`DEFAULTS`; ports 0 are free ones, then kept.

    Raises ConfigError for a key that nobody knows, or a bad value; and for one of TLS, which is not spoken here.
    """

    def __init__(self, store: Path, settings: Settings, *, namesrv_port: int = 0, listen_port: int = 0) -> None:
        self.store_path, self.clock = store, ShiftedClock()
        self._given = _texts(settings)
        self._ports = (namesrv_port, listen_port or int(self._given.get("listenPort", 0)))
        self._entries = _texts(DEFAULTS) | self._given
        self._config()
        self._pair: Standalone | None = None
        self._fs = KillableFileSystem(RealFileSystem())

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return self._pair is not None

    @property
    def pair(self) -> Standalone:
        """The servers of this life; raises RemotingError where there is none."""
        if self._pair is None:
            raise RemotingError("the embedded broker does not run")
        return self._pair

    @property
    def max_decompressed_body_size(self) -> int:
        """How large a body may be when it is decompressed, in bytes."""
        return self._config().store.max_decompressed_body_size_bytes

    @property
    def store(self) -> MessageStore | None:
        """The store that is open; None between two lives."""
        return self._pair.broker.store if self._pair is not None else None

    @property
    def store_config(self) -> MessageStoreConfig:
        """The settings of the store."""
        return self._config().store

    async def start(self) -> None:
        """Returns when the broker's route answers; harmless where it runs."""
        if self._pair is not None:
            return
        config, namesrv_port = self._config(), self._ports[0]
        entries = {key: text for key, text in self._entries.items() if key != "listenPort"}
        namesrv = replace(read_namesrv_config(entries), listen_port=namesrv_port)
        self._fs = KillableFileSystem(RealFileSystem())
        extras = Extras(given=frozenset(self._given), clock=self.clock, fs=self._fs)
        pair = Standalone(self.store_path, config, namesrv, extras)
        await pair.start()
        assert pair.namesrv is not None
        self._ports = (pair.namesrv.port, pair.broker.port)
        self._pair = pair

    async def stop(self) -> None:
        """Shut down cleanly; harmless where nothing runs."""
        pair, self._pair = self._pair, None
        if pair is not None:
            await pair.shutdown()

    async def kill(self) -> None:
        """End it as SIGKILL ends a process; harmless where nothing runs."""
        pair, self._pair = self._pair, None
        if pair is not None:
            self._fs.kill()
            await pair.abandon()

    async def restart(self) -> None:
        """Stop it where it runs, and start it again."""
        await self.stop()
        await self.start()

    async def create_topic(self, topic: str, queues: int, *, order: bool = False) -> None:
        """Make or alter a topic; returns when it has a route. Raises MQBrokerError where the broker refuses."""
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=PERM_READ | PERM_WRITE,
            topic_filter_type="SINGLE_TAG",
            order=order,
        )
        client, pair = RemotingClient(), self.pair
        try:
            answer = await client.invoke(pair.broker_address, RemotingCommand.request(header), _TIMEOUT_MS)
            if answer.code != ResponseCode.SUCCESS:
                name = ResponseCode(answer.code).name
                raise MQBrokerError(pair.broker_address, answer.code, name, str(answer.remark))
            route = GetRouteInfoRequestHeader(topic=topic)
            while (await client.invoke(pair.namesrv_address, RemotingCommand.request(route), _TIMEOUT_MS)).code:
                await asyncio.sleep(_ASK_AGAIN_S)
        finally:
            await client.close()

    async def consumer_offsets(self, group: str, topic: str) -> dict[int, int]:
        """How far a group has consumed a topic, by queue."""
        return dict(self.pair.broker.offsets.of(group, topic) or {})

    def _config(self) -> LiveConfig:
        config = LiveConfig()
        config.update(self._entries)
        config.broker = replace(config.broker, listen_port=self._ports[1])
        return config


def _texts(settings: Settings) -> dict[str, str]:
    for key in settings:
        if key.startswith("tls."):
            raise ConfigError(key, settings[key], "here, in a process of yours; gantrymq serve speaks TLS")
    words = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()}
    return parse_assignments((f"{key}={text}" for key, text in words.items()), lambda key: knows(key) or acts(key))
