"""The processes of the simulation: brokers that are masters or slaves, the name server that they ask, and strangers.

A process is what is real of a broker's replication (see README.md), on a simulated loop, disk, network and clock.

Thread rule: one thread.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

from simulated_loop import SimulatedLoop
from simulated_network import Address, Endpoint

from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.replication import Replication
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.config.replication_settings import BrokerRole
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import GantrymqError
from gantrymq.format.names import CONFIG
from gantrymq.fs.intercepted import InterceptedFileSystem
from gantrymq.ha.divergence import DivergenceFile, DivergenceNotes
from gantrymq.ha.frames import encode_report
from gantrymq.ha.held_tail import Master
from gantrymq.ha.log_cut import finish_cut
from gantrymq.ha.slave import LogSlave
from gantrymq.service.runner import Service
from gantrymq.store import message_store
from gantrymq.store.message_store import MessageStore
from memory_file_system import MemoryFileSystem
from store_cases import GEOMETRY_KEYS, NOON_MS, ROOT

if TYPE_CHECKING:
    import socket

    from world import World

HA_PORT = 10_912
NAME_SERVER = "10.0.9.9"
_EXPIRES_S = 120.0
_READS = frozenset(("read_at", "map", "scan"))


class ProcessDied(BaseException):
    """The process ends at this operation of its disk."""


class MortalFileSystem(InterceptedFileSystem):
    """A disk at which the process dies after ``fuse`` more changes; -1 for never."""

    fuse = -1

    def _before(self, operation: str, path: Path) -> None:
        if self.fuse >= 0 and operation not in _READS:
            if self.fuse == 0:
                raise ProcessDied
            self.fuse -= 1


class SkewedClock:
    """A broker's clock. Its wall time can be set, its monotonic one cannot."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s, self.ahead_ms = now_s, 0

    def now_ms(self) -> int:
        return NOON_MS + round(self._now_s() * 1000) + self.ahead_ms

    def monotonic_s(self) -> float:
        return self._now_s()


class SimulatedRunner:
    """In place of a ServiceRunner: a step follows a wake-up soon, and otherwise when the world says so."""

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: random.Random,
        service: Service,
        clock: Clock,
        on_failure: Callable[[str, Exception], None],
        *,
        rest_ms: object = None,
        by_calendar: bool = False,
    ) -> None:
        self._loop, self._rng, self._service, self._on_failure = loop, rng, service, on_failure
        self._now_ms = clock.now_ms if by_calendar else partial(monotonic_ms, clock)
        self._is_woken = False
        self.failures = 0

    def start(self) -> None:
        """Nothing runs by itself."""

    def wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_later(self._rng.choice((0, 0, 0.001, 0.05)), self.step)

    def step(self) -> None:
        self._is_woken = False
        try:
            if self._service.step(self._now_ms()):
                self.wake()
        except Exception as error:
            self.failures += 1
            self._on_failure(self._service.name, error)

    def stop(self) -> None:
        self._service.drain()

    def abandon(self) -> None:
        """There is no thread."""


@contextmanager
def stepped_services(loop: SimulatedLoop, rng: random.Random) -> Iterator[None]:
    """Let stores that are opened meanwhile have services that step as the world says."""
    with mock.patch.object(message_store, "ServiceRunner", partial(SimulatedRunner, loop, rng)), loop.running():
        yield


@dataclass
class Broker:
    """A machine with one broker: what stays when its process ends. ``hosts`` are its addresses, the first is used."""

    number: int
    hosts: list[str]
    disk: MemoryFileSystem
    clock: SkewedClock
    config: MessageStoreConfig  # without its role
    is_master: bool = False
    life: MasterLife | SlaveLife | None = None
    paused_until_s: float = 0.0
    cut_bytes: list[tuple[int, bytes]] = field(default_factory=list)  # what cuts have removed, with its offset
    lost_s: float = -1.0  # when a power cut may have lost the end of its log

    @property
    def host(self) -> str:
        return self.hosts[0]


class NameServer:
    """Knows the brokers of the group by their ids, as RocketMQ's: until their connection ends, or for 120 s."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[int, tuple[Broker, str, float]] = {}

    def register(self, broker: Broker) -> None:
        if self._world.network.reaches(broker.host, NAME_SERVER):
            number = 0 if broker.is_master else broker.number
            self.forget(broker)
            self._known[number] = broker, broker.host, self._world.now_s()

    def forget(self, broker: Broker) -> None:
        self._known = {number: known for number, known in self._known.items() if known[0] is not broker}

    def members(self) -> dict[int, str]:
        now_s = self._world.now_s()
        return {
            n: f"{host}:10911" for n, (_, host, seen_s) in sorted(self._known.items()) if now_s - seen_s < _EXPIRES_S
        }


class OuterCalls:
    """What a broker asks the name server, in place of BrokerOuterAPI."""

    def __init__(self, world: World, broker: Broker) -> None:
        self._world, self._broker = world, broker
        self.ha_server_addr = ""

    async def members(self) -> dict[int, str] | None:
        world = self._world
        return world.name_server.members() if world.network.reaches(self._broker.host, NAME_SERVER) else None


class MasterLife:
    """A master from its start to its end. ``history`` is its log from ``base`` on, as far as it was ever written."""

    def __init__(self, world: World, broker: Broker) -> None:
        self.broker, self.loop = broker, SimulatedLoop(world.now_s)
        self.fs = MortalFileSystem(broker.disk)
        config = replace(broker.config, broker_role=world.plan.role, ha_truncate="command")
        live = LiveConfig(BrokerConfig(broker_ip1=broker.host), config)
        self.ended_s = 0.0
        with stepped_services(self.loop, world.rng):
            self.replication = Replication(live, broker.clock, cast("BrokerOuterAPI", OuterCalls(world, broker)))
            finish_cut(ROOT, config, self.fs)
            self.store = MessageStore.open(
                ROOT, config, given=GEOMETRY_KEYS, fs=self.fs, clock=broker.clock, delivers=False,
                slaves=self.replication.acks,
            )  # fmt: skip
            DivergenceFile(self.fs, ROOT / CONFIG).clear()
            listener = world.network.listen((broker.host, HA_PORT), self)
            self.replication._reserved, self.replication.port = cast("socket.socket", listener), HA_PORT
            self.replication.start(self.store)
        self.base = max(self.store.min_phy_offset, 0)
        self.history = bytearray()
        self.grow()

    @property
    def server(self) -> Any:
        return self.replication._server

    @property
    def end(self) -> int:
        return self.base + len(self.history)

    def grow(self) -> None:
        """Note what was written since."""
        self.history += log_bytes(self.store, self.end, _committed_end(self.store))

    def part(self, begin: int, end: int) -> bytes:
        return bytes(self.history[begin - self.base : end - self.base])

    def stop(self) -> None:
        with self.loop.running():
            self.store.close()


class SlaveLife:
    """A slave from its start to its end. ``to`` is the master's life that it is connected to, or was last."""

    def __init__(self, world: World, broker: Broker) -> None:
        self._world, self.broker, self.loop = world, broker, SimulatedLoop(world.now_s)
        self.fs = MortalFileSystem(broker.disk)
        self.config = replace(broker.config, broker_role=BrokerRole.SLAVE)
        self.to: MasterLife | None = None
        self.must_cut = False
        self.known_master = ""
        with stepped_services(self.loop, world.rng):
            finish_cut(ROOT, self.config, self.fs)
            self.store = MessageStore.open(
                ROOT, self.config, given=GEOMETRY_KEYS, fs=self.fs, clock=broker.clock, delivers=False
            )
        self.notes = DivergenceNotes(
            self.store, broker.clock, self._cut_soon, connect=partial(self._connect, waits=True), sleep=world.sleep
        )
        self.copy = LogSlave(self.store, self, broker.clock, connect=self._connect, on_divergence=self.notes.look)
        self.base = max(self.store.min_phy_offset, 0)
        self.end = self.store.max_phy_offset
        self.verified: tuple[object, int] = (None, 0)  # the begin of a life's log that this log was found to equal

    def _cut_soon(self) -> None:
        self.must_cut = True

    @property
    def link(self) -> Endpoint | None:
        link = self.copy._link
        return cast("Endpoint", link._socket) if link is not None else None

    @property
    def is_compared(self) -> bool:
        """Whether it has a connection, whose end was compared with its log."""
        tail = self.copy._tail
        return self.link is not None and tail is not None and tail.is_compared

    def _connect(self, address: Address, timeout_s: float, *, waits: bool = False) -> Any:
        endpoint = self._world.network.connect(self.broker.host, address, self)
        endpoint.waits = waits
        if not waits:
            assert endpoint.peer is not None
            self.to = cast("MasterLife", endpoint.peer.owner)
            endpoint.saw = partial(self._world.promises.slave_reports, self, [])
        return endpoint

    # MasterLookup

    def find(self) -> Master | None:
        world = self._world
        if world.network.reaches(self.broker.host, NAME_SERVER):
            self.known_master = world.name_server.members().get(0, "").partition(":")[0]
        if not self.known_master:
            return None
        store = self._master_life(self.known_master).store
        first, end = max(store.min_phy_offset, 0), store.max_phy_offset
        return Master((self.known_master, HA_PORT), store.commit_log.file_size, first, end, 0, reads_each_report=True)

    def extent(self) -> tuple[int, int] | None:
        store = self._master_life(self.known_master).store
        return max(store.min_phy_offset, 0), store.max_phy_offset

    def has_moved(self, master: Master) -> bool:
        world = self._world
        if not world.network.reaches(self.broker.host, NAME_SERVER):
            return False
        host = world.name_server.members().get(0, "").partition(":")[0]
        return bool(host) and host != master.ha_address[0]

    def _master_life(self, host: str) -> MasterLife:
        world = self._world
        for broker in world.brokers:
            if host in broker.hosts and isinstance(broker.life, MasterLife):
                if world.network.reaches(self.broker.host, host):
                    return broker.life
                break
        raise ConnectionError(f"{host} does not answer")

    # Steps

    def step(self) -> None:
        with self.loop.running():
            self.copy.step(self.broker.clock.now_ms())

    def stop(self) -> None:
        with self.loop.running():
            self.copy.drain()
            self.store.close()


class Stranger:
    """A peer from an address that is no slave's: it copies, and acknowledges more than it could have."""

    def __init__(self, world: World, host: str) -> None:
        self._world, self._host, self._endpoint = world, host, None

    _endpoint: Endpoint | None

    def step(self, rng: random.Random) -> None:
        world = self._world
        with suppress(OSError, GantrymqError):
            if self._endpoint is None or not self._endpoint.is_open:
                master = world.master_life
                if master is None:
                    return
                self._endpoint = world.network.connect(self._host, (master.broker.host, HA_PORT), self)
                self._endpoint.settimeout(0.1)
                self._endpoint.sendall(encode_report(rng.choice((0, 1, master.end, master.end + 1))))
                return
            try:
                if not self._endpoint.recv(1 << 20):
                    raise ConnectionResetError
                end = world.master_life.end if world.master_life is not None else 0
                self._endpoint.sendall(encode_report(end + rng.choice((0, 0, 0, 0, 1000))))
            except TimeoutError:
                return
            except OSError:
                self._endpoint.close()


def log_bytes(store: MessageStore, begin: int, end: int) -> bytes:
    """The bytes of an open store's log in a range that it has."""
    parts, fs = [], cast("MortalFileSystem", store.fs)
    fuse, fs.fuse = fs.fuse, -1  # who checks needs no luck
    for file in store.commit_log.queue.files:
        first, last = max(begin - file.file_from_offset, 0), min(end - file.file_from_offset, file.size)
        if first < last:
            parts.append(file.array[first:last].tobytes())
    fs.fuse = fuse
    return b"".join(parts)


def _committed_end(store: MessageStore) -> int:
    """The end of what readers may have: a full file may wait for its commit while the next one is written."""
    for file in store.commit_log.queue.files:
        if file.committed_position < file.size:
            return file.end_offset
    return store.max_phy_offset
