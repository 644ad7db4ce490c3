"""The work of a slave: the thread that copies the log, and the tasks that look for the master and follow its tables.

A broker has it while brokerRole=SLAVE. It then does none of the work of a master: delays, timers, checks of
transactions and the revival of pops run in ``broker/periodic_work.py`` and in the store only if the broker is no slave.

Source: BrokerController.initializeBrokerScheduledTasks, DefaultHAService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.schedule import Schedule
from gantrymq.broker.slave.master import MasterClient, MasterFromThread
from gantrymq.broker.slave.tables import TableSynchronization
from gantrymq.clock import Clock
from gantrymq.errors import StoreError
from gantrymq.format.names import CONFIG
from gantrymq.ha.copy import CopyState
from gantrymq.ha.divergence import DivergenceNotes
from gantrymq.ha.master_link import Connect
from gantrymq.ha.slave import LogSlave, SlaveCopyView
from gantrymq.logs import get_logger
from gantrymq.service.runner import ServiceRunner
from gantrymq.store.message_store import MessageStore
from gantrymq.store.role import Role, RoleFile

_LOOK_MS = 1_000
_REGISTER_EVERY_S = 10.0  # while there is no connection to the master
_HAS_MASTER = (CopyState.COPYING, CopyState.IN_SYNC, CopyState.DISK_FULL, CopyState.APPEND_FAILED)

log = get_logger("gantrymq.broker")


class SlaveRole:
    """Copies the log of the master that ``client`` finds into ``store``, and lets ``tables`` follow the master's.

    ``reopen(True)`` is called when messages must be cut that the master does not have: with haTruncate=auto, and
    only while the master is there that lacks them. ``reopen(False)`` makes a promoted slave a master. ``connect`` opens
    connections to the master's HA port.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self,
        store: MessageStore,
        client: MasterClient,
        outer: BrokerOuterAPI,
        tables: TableSynchronization,
        clock: Clock,
        reopen: Callable[[bool], None],
        connect: Connect,
    ) -> None:
        self._client, self._outer, self._tables, self._clock = client, outer, tables, clock
        self._store, self._reopen = store, reopen
        loop = asyncio.get_running_loop()
        lookup = MasterFromThread(client, loop)
        cut_now = partial(loop.call_soon_threadsafe, reopen, True)
        self._divergences = DivergenceNotes(store, clock, cut_now, connect=connect)
        self._copy = LogSlave(store, lookup, clock, on_divergence=self._divergences.look, connect=connect)
        self._runner = ServiceRunner(self._copy, clock, self._failed)
        self._schedule = Schedule()
        self._registered_s = clock.monotonic_s()

    @property
    def view(self) -> SlaveCopyView:
        """The copy now."""
        return self._copy.view()

    @property
    def is_alone(self) -> bool:
        """Whether the copy has no master now."""
        return self._copy.view().state not in _HAS_MASTER

    @property
    def is_table_fresh(self) -> bool:
        """Whether the tables have followed the master's without an error."""
        return self._tables.is_fresh

    @property
    def tables_ms(self) -> int:
        """When all tables had followed the master's last (ms); 0 before the first time."""
        return self._tables.followed_ms

    async def promote(self, *, is_forced: bool) -> None:
        """Note that the store is a master's from now on, and let the broker start again as one.

        Raises StoreError if the copy has a master, unless it ``is_forced``; RemotingError if a name server knows a
        master that answers; DiskFullError.
        """
        copy = self._copy.view()
        if copy.state in _HAS_MASTER and not is_forced:
            raise StoreError(self._store.path, f"its master {copy.master} is connected, so it is alive: stop it first")
        await self._outer.require_no_other_master("Stop it first")
        file, now_ms = RoleFile(self._store.fs, self._store.path / CONFIG), self._clock.now_ms()
        await _in_thread(lambda: file.save(Role(was_slave=True, promoted_ms=now_ms)))
        log.warning("this slave is promoted to master", offset=copy.max_offset, master_had=copy.master_max_offset)
        self._reopen(False)

    def start(self) -> None:
        """Begin to copy. Call it when the broker has tried to register."""
        self._runner.start()
        self._schedule.every("master", lambda: _LOOK_MS, self._look_for_master)
        self._schedule.every("tables of the master", lambda: self._tables.interval_ms, self._tables.follow)

    async def stop(self) -> None:
        """Stop copying, before the store is closed."""
        await self._schedule.stop()
        await _in_thread(self._runner.stop)

    async def _look_for_master(self) -> None:
        """Ask name servers for a new master while there is none: a registration is the only answer that has all."""
        state = self._copy.view().state
        if state in (CopyState.COPYING, CopyState.IN_SYNC):
            await _in_thread(self._divergences.clear)
        if state in _HAS_MASTER or not self._outer.name_servers:
            return
        members = await self._outer.members()
        address = (members or {}).get(0, "")
        now_s = self._clock.monotonic_s()
        is_new = bool(address) and address != self._client.address
        if is_new or now_s - self._registered_s >= _REGISTER_EVERY_S:
            self._registered_s = now_s
            await self._outer.register()

    def _failed(self, name: str, error: Exception) -> None:
        log.error("the copy of the master's log has failed, and is tried again", reason=str(error))


async def _in_thread(work: Callable[[], None]) -> None:
    done: Awaitable[None] = asyncio.get_running_loop().run_in_executor(None, work)
    await done
