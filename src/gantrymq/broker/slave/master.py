"""A slave's view of its master: the address that name servers know, and what the master answers.

Source: BrokerOuterAPI, BrokerController.handleRegisterBrokerResult.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

from gantrymq.broker.acl.access_control import AccessControl
from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.config.properties import parse_properties
from gantrymq.config.replication_settings import host_and_port
from gantrymq.errors import RemotingError
from gantrymq.ha.held_tail import UNKNOWN, Master
from gantrymq.model.java import decode_utf8
from gantrymq.remoting.bodies.topic import KVTable
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.client import RemotingClient

_TIMEOUT_MS = 5_000
_LONGEST_S = 15.0  # what the thread that copies waits for the event loop
_LOG_SIZE_KEYS = ("mappedFileSizeCommitLog", "mapedFileSizeCommitLog")  # RocketMQ 4 has the second
_OUR_KEY = "haAllowedSlaves"  # RocketMQ's brokers have no such setting
_MARGIN_S = 0.5
_T = TypeVar("_T")


class MasterExtent(NamedTuple):
    """What a master says of itself: the extent of its log, and when it was started (ms)."""

    min_offset: int
    max_offset: int
    boot_ms: int


class MasterClient:
    """Asks the master, with aclEnable as the first administrator of ``access``. Thread rule: the event loop's thread.

    All methods raise RemotingError if there is no master, or if it does not answer.
    """

    def __init__(
        self, config: LiveConfig, outer: BrokerOuterAPI, client: RemotingClient, access: AccessControl | None
    ) -> None:
        self._config, self._outer, self._client, self._access = config, outer, client, access

    @property
    def address(self) -> str:
        """The master's address for requests; empty if no name server knows one."""
        return self._outer.master.address if self._outer.master is not None else ""

    @property
    def ha_address(self) -> tuple[str, int] | None:
        """Where the master's log is: haMasterAddress, else what the name server says; None if neither is there."""
        given, known = self._config.store.master_address, self._outer.master
        if given is not None or known is None or not known.ha_address:
            return given
        return host_and_port(known.ha_address)

    async def ask(self, request: RemotingCommand, *, may_refuse: bool = False) -> RemotingCommand:
        """Send a request. Raises RemotingError also if the answer is no success, unless the master ``may_refuse``."""
        if not self.address:
            raise RemotingError("no name server knows a master of this broker")
        if self._access is not None:
            self._access.sign_as_administrator(request)
        response = await self._client.invoke(self.address, request, _TIMEOUT_MS)
        if response.code != ResponseCode.SUCCESS and not may_refuse:
            raise RemotingError(f"the master {self.address} refused: code {response.code}, {response.remark}")
        return response

    async def extent(self) -> MasterExtent:
        """Ask for the extent of its log (GET_BROKER_RUNTIME_INFO)."""
        response = await self.ask(RemotingCommand(code=RequestCode.GET_BROKER_RUNTIME_INFO))
        table = decode_body(KVTable, response.body).table
        try:
            first, end = int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
            return MasterExtent(max(first, 0), max(end, 0), int(table.get("bootTimestamp", "0")))
        except (KeyError, ValueError) as error:
            raise RemotingError(f"the master {self.address} does not tell the extent of its log: {error}") from error

    async def find(self) -> Master | None:
        """Return the master with its extent; without it if only haMasterAddress is known; None without both."""
        ha_address = self.ha_address
        if ha_address is None:
            return None
        if not self.address:
            return Master(ha_address, self._config.store.mapped_file_size_commit_log, UNKNOWN, UNKNOWN, 0)
        response = await self.ask(RemotingCommand(code=RequestCode.GET_BROKER_CONFIG))
        entries = parse_properties(decode_utf8(response.body))
        if entries.get("enableControllerMode") == "true":
            raise RemotingError(f"the master {self.address} has a controller, whose replication is not spoken here")
        size = next((entries[key] for key in _LOG_SIZE_KEYS if key in entries), "")
        if not size.isdecimal():
            raise RemotingError(f"the master {self.address} does not tell the size of its log files")
        extent, is_ours = await self.extent(), _OUR_KEY in entries
        timeout_ms = entries.get("slaveTimeout", "0") if entries.get("brokerRole") == "SYNC_MASTER" else "0"
        wait_s = int(timeout_ms) / 1000 + _MARGIN_S if timeout_ms.isdecimal() and int(timeout_ms) and not is_ours else 0
        return Master(ha_address, int(size), extent.min_offset, extent.max_offset, wait_s, is_ours)


class MasterFromThread:
    """Lets the thread that copies ask the master. A :class:`gantrymq.ha.slave.MasterLookup`.

    Thread rule: any thread but the event loop's, which must run.
    """

    def __init__(self, client: MasterClient, loop: asyncio.AbstractEventLoop) -> None:
        self._client, self._loop = client, loop

    def find(self) -> Master | None:
        """Return the master; None if no name server knows one. Raises RemotingError, TimeoutError."""
        return self._wait(self._client.find())

    def extent(self) -> tuple[int, int] | None:
        """Return the extent of its log; None if the name server knows no master. Raises RemotingError, TimeoutError."""
        if not self._client.address:
            return None
        extent = self._wait(self._client.extent())
        return extent.min_offset, extent.max_offset

    def has_moved(self, master: Master) -> bool:
        """Whether another HA address is the master's now."""
        now = self._client.ha_address
        return now is not None and now != master.ha_address

    def _wait(self, answer: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(answer, self._loop).result(_LONGEST_S)
