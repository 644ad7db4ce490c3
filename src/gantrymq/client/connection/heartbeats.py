"""Heartbeats: every 30 s a client registers with the brokers that it uses, and at the end it unregisters.

Source: MQClientInstance.sendHeartbeatToAllBrokerWithLock, MQClientAPIImpl.unregisterClient.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable

from gantrymq.client.connection.async_client import AsyncClient
from gantrymq.client.requests.calls import Call, accepted
from gantrymq.client.runtime.background import BackgroundTasks
from gantrymq.client.unique_id import local_ip
from gantrymq.errors import GantrymqError
from gantrymq.logs import get_logger
from gantrymq.remoting.bodies.client import HeartbeatData
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import UnregisterClientRequestHeader

INTERVAL_SECONDS = 30.0  # heartbeatBrokerInterval
_LOOK_SECONDS = 1.0  # how soon a new broker gets its first heartbeat

log = get_logger("gantrymq.client")


class Heartbeats:
    """Sends the heartbeat that ``beat`` makes for the client id to the addresses that ``brokers`` returns.

    The client id is ``ip@instance_name``. Without an instance name it is made unique.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self,
        client: AsyncClient,
        beat: Callable[[str], HeartbeatData],
        brokers: Callable[[], set[str]],
        *,
        instance_name: str = "",
    ) -> None:
        self._client, self._beat, self._brokers = client, beat, brokers
        self.client_id = f"{local_ip()}@{instance_name or f'{os.getpid()}#{secrets.randbits(48)}'}"
        self._reached: set[str] = set()
        self._tasks = BackgroundTasks()
        self._started = False

    def start(self) -> None:
        """Begin to send heartbeats, on the running loop. A second call has no effect."""
        if not self._started:
            self._started = True
            self._tasks.start(self._run())

    async def close(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Stop, and unregister this client of the group from the brokers."""
        await self._tasks.close()
        header = UnregisterClientRequestHeader(
            client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        unregister = Call(lambda: RemotingCommand.request(header), accepted)
        await asyncio.gather(*(self._send(address, unregister) for address in self._reached))

    async def beat(self) -> None:
        """Send a heartbeat to all brokers now, because the subscriptions have changed."""
        self._reached = set()
        await self._send_new()

    async def reach(self, address: str | None = None) -> None:
        """Send a heartbeat to a broker, or to all, unless they had one since they were connected."""
        if not ({address} if address else self._brokers()) <= self._reached:
            await self._send_new(address)

    def renew_all(self) -> None:
        """Send all brokers a heartbeat within a second: a connection closed, and its broker forgot this client."""
        self._reached = set()

    def renew(self, address: str) -> None:
        """Send this broker a heartbeat within a second: after a restart it knows no clients."""
        self._reached.discard(address)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            if loop.time() >= due:
                self._reached, due = set(), loop.time() + INTERVAL_SECONDS
            await self._send_new()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _send_new(self, address: str | None = None) -> None:
        beat, reached = Call(self._request, accepted), self._reached
        fresh = ({address} if address else self._brokers()) - reached
        done = await asyncio.gather(*(self._send(address, beat) for address in fresh))
        # If a renewal has replaced the set meanwhile, this changes the old one: the brokers get another heartbeat.
        reached |= {address for address, accepted in zip(fresh, done, strict=True) if accepted}

    def _request(self) -> RemotingCommand:
        return RemotingCommand(RequestCode.HEART_BEAT, body=self._beat(self.client_id).encode())

    async def _send(self, address: str, call: Call[None]) -> bool:
        try:
            await self._client.call(address, call)
        except GantrymqError as error:
            log.info("a broker did not get the heart-beat", address=address, reason=str(error))
            return False
        return True
