"""The world of one seed: brokers, clients, a name server, strangers and a person, and everything that can go wrong.

A step is one action that the seed draws, then time passes, and then every promise is checked. At the end all faults
are over, and the group must become whole. The same seed gives the same run.

Thread rule: one thread.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from processes import (
    Broker,
    MasterLife,
    MortalFileSystem,
    NameServer,
    ProcessDied,
    SkewedClock,
    SlaveLife,
    Stranger,
    log_bytes,
    stepped_services,
)
from promises import FILE_SIZE, BrokenPromise, Promises, Put, common
from simulated_loop import SimulatedLoop
from simulated_network import Network

from gantrymq.config.replication_settings import BrokerRole
from gantrymq.config.settings import FlushDiskType, MessageStoreConfig
from gantrymq.errors import DiskFullError, GantrymqError
from gantrymq.format.names import CONFIG
from gantrymq.format.record import BLANK_SIZE, MAGIC_BLANK
from gantrymq.ha.copy import CopyState
from gantrymq.ha.divergence import DivergenceFile
from gantrymq.ha.log_cut import cut
from gantrymq.model.message import Message
from memory_file_system import PAGE_SIZE, MemoryFileSystem
from store_cases import BARE, ROOT

STEPS = 160
FILL = b"~"
_REGISTER_S = 10.0
_SETTLE_ROUNDS, _SETTLE_S = 400, 0.3
_LOST_SHARES = (0.0, 0.0, 0.1, 0.5, 0.9)
_TIMES_S = (0.0, 0.001, 0.001, 0.01, 0.05, 0.2, 0.5, 1.5)


@dataclass(frozen=True)
class Plan:
    """What a seed draws once: the settings of all brokers, the master's role, and how bad it gets."""

    config: MessageStoreConfig
    role: BrokerRole
    slaves: int
    shares_host: bool
    fault_share: float

    @classmethod
    def draw(cls, rng: random.Random) -> Plan:
        slaves = rng.choice((1, 2, 2, 3))
        flush: dict[str, Any] = rng.choice(
            (
                {"flush_disk_type": FlushDiskType.SYNC_FLUSH},
                {"flush_disk_type": FlushDiskType.SYNC_FLUSH},
                {},
                {"transient_store_pool_enable": True, "transient_store_pool_size": 2},
            )
        )
        config = replace(
            BARE,
            mapped_file_size_commit_log=FILE_SIZE,
            in_sync_replicas=rng.randrange(1, slaves + 2),
            ha_ack_durable=rng.random() < 0.4,
            ha_truncate=rng.choice(("auto", "command")),
            ha_transfer_batch_size_bytes=rng.choice((97, 1_000, 32_768)),
            ha_max_gap_not_in_sync_bytes=rng.choice((2_000, 1 << 28)),
            file_reserved_time_hours=rng.choice((0, 1)),
            delete_when=";".join(str(hour) for hour in range(24)),
            **flush,
        )
        role = rng.choice(
            (BrokerRole.SYNC_MASTER, BrokerRole.SYNC_MASTER, BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER)
        )
        return cls(config, role, slaves, rng.random() < 0.15, rng.choice((0.05, 0.15, 0.3)))

    @property
    def waits_for_slaves(self) -> bool:
        return self.role is BrokerRole.SYNC_MASTER and self.config.in_sync_replicas > 1

    @property
    def text(self) -> str:
        """The settings in one line."""
        config = self.config
        return (
            f"{self.role.value} {config.flush_disk_type.value}, {self.slaves} slaves, inSyncReplicas="
            f"{config.in_sync_replicas} haAckDurable={config.ha_ack_durable} haTruncate={config.ha_truncate} "
            f"transientStorePoolEnable={self.has_pool} faults={self.fault_share}"
        )

    @property
    def has_pool(self) -> bool:
        return self.config.transient_store_pool_enable


class World:
    """The world of ``seed``. :meth:`run` raises BrokenPromise. ``told`` are the actions so far, one a line."""

    def __init__(self, seed: int, steps: int = STEPS) -> None:
        self.rng = rng = random.Random(f"simulation {seed}")
        self.steps, self._now_s = steps, 1000.0
        self.told: list[str] = []
        self.plan = Plan.draw(rng)
        self.network = Network(rng, self.now_s)
        self.network.wait = self._wait
        self.name_server = NameServer(self)
        self.promises = Promises(self)
        self.done_puts: list[Put] = []
        self._last_master: MasterLife | None = None
        self._register_s = 0.0
        self._number = 0
        self.brokers = [self._broker(number) for number in range(self.plan.slaves + 1)]
        self.brokers[0].is_master = True
        self._strangers = [Stranger(self, "10.0.7.7")] if rng.random() < 0.5 else []
        self._faults: tuple[tuple[int, Callable[[], None]], ...] = (
            (4, self._kill), (4, self._start), (3, self._cut_off), (3, self._connect_all), (2, self._pause),
            (2, self._fill_disk), (1, self._set_clock), (3, self._want_room), (1, self._move), (1, self._promote),
            (2, self._light_fuse), (2, self._do_what_slaves_say), (1, self._corrupt),
        )  # fmt: skip
        self.corrupts = 0

    def _broker(self, number: int) -> Broker:
        clock = SkewedClock(self.now_s)
        disk = MemoryFileSystem(clock=clock)
        disk.simulated_used_ratio = 0.5
        host = 1 if number == 2 and self.plan.shares_host else number
        return Broker(number, [f"10.0.0.{host + 1}", f"10.0.1.{number + 1}"], disk, clock, self.plan.config)

    # Time

    def now_s(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self._wait(seconds, lambda: False)

    def _wait(self, seconds: float, is_ready: Callable[[], bool]) -> None:
        """Let the others go on while one process waits."""
        until_s = self._now_s + seconds
        while not is_ready() and self._now_s < until_s:
            self._pass(min(0.01, until_s - self._now_s) or 0.01)

    def _pass(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due, except the steps of slaves."""
        self._now_s += seconds
        for _ in range(3):
            self.network.deliver()
            for broker in self.brokers:
                if broker.life is not None and broker.paused_until_s <= self._now_s:
                    broker.life.loop.run_due()

    # Steps

    @property
    def master_life(self) -> MasterLife | None:
        return next((broker.life for broker in self.brokers if isinstance(broker.life, MasterLife)), None)

    def run(self) -> None:
        """All steps, and the end, at which everything must become whole."""
        for broker in self.brokers:
            self._start_one(broker)
        for _ in range(self.steps):
            self._act()
            self._go_on(self.rng.choice(_TIMES_S))
        self._make_whole()

    def _act(self) -> None:
        if self.rng.random() < self.plan.fault_share:
            weights = [weight for weight, _ in self._faults]
            self.rng.choices([fault for _, fault in self._faults], weights)[0]()
        elif self.rng.random() < 0.6:
            self._put()
        else:
            self._tick()

    def _go_on(self, seconds: float) -> None:
        """Let time pass, let slaves copy, bury the dead, and check all promises."""
        self._pass(seconds)
        for stranger in self._strangers:
            if self.rng.random() < 0.3:
                stranger.step(self.rng)
        for broker in self.brokers:
            life = broker.life
            if isinstance(life, SlaveLife) and broker.paused_until_s <= self._now_s and self.rng.random() < 0.8:
                self._mortal(broker, life.step)
                if broker.life is life:
                    if life.must_cut:
                        self._cut(broker)
                    elif life.copy.view().state in (CopyState.COPYING, CopyState.IN_SYNC):
                        self._mortal(broker, life.notes.clear)
        self._pass(0.0)
        self._bury()
        if self._now_s >= self._register_s:
            self._register_s = self._now_s + _REGISTER_S
            for broker in self.brokers:
                if broker.life is not None:
                    self.name_server.register(broker)
        self.promises.check()

    def _bury(self) -> None:
        for broker in self.brokers:
            errors = broker.life.loop.errors if broker.life is not None else []
            if any(isinstance(error, ProcessDied) for error in errors):
                self._end(broker, self.rng.choice((True, False)))
            elif errors:
                raise BrokenPromise("start", f"broker {broker.number} has failed: {errors[0]!r}")

    def tell(self, text: str) -> None:
        self.told.append(f"{self._now_s:10.3f} {text}")

    def digest(self) -> str:
        """What tells two runs apart: everything that was told, and all logs."""
        digest = hashlib.sha256("\n".join(self.told).encode())
        for broker in self.brokers:
            if broker.life is not None:
                store = broker.life.store
                digest.update(log_bytes(store, max(store.min_phy_offset, 0), store.max_phy_offset))
        return digest.hexdigest()

    # Clients

    def _put(self) -> None:
        life = self.master_life
        if life is None:
            return
        for _ in range(self.rng.choice((1, 1, 2, 5))):
            self._number += 1
            body = b"%d " % self._number + FILL * self.rng.choice((10, 300, 1_500))
            message = Message("T", body, queue_id=self._number % 2)
            message.wait_store_msg_ok = self.rng.random() < 0.9
            put = Put(life, message.wait_store_msg_ok)
            life.loop.create_task(self._put_one(life, message, put))

    async def _put_one(self, life: MasterLife, message: Message, put: Put) -> None:
        try:
            put.result = await life.store.put_async(message)
        except GantrymqError:
            return
        self.done_puts.append(put)

    def _tick(self) -> None:
        for broker in self.brokers:
            life = broker.life
            if life is None or broker.paused_until_s > self._now_s:
                continue
            chosen = [runner for runner in life.store._runners if self.rng.random() < 0.4]
            for runner in chosen:
                if broker.life is life:
                    self._mortal(broker, runner.step)  # type: ignore[attr-defined]

    def _mortal(self, broker: Broker, work: Callable[[], object]) -> None:
        """Do what a broker does in a thread. It may die."""
        life = broker.life
        assert life is not None
        try:
            with life.loop.running():
                work()
        except ProcessDied:
            self._end(broker, self.rng.choice((True, False)))
        except DiskFullError:
            self.tell(f"broker {broker.number} has no room")

    # Brokers begin and end

    def _some(self, is_so: Callable[[Broker], bool]) -> Broker | None:
        brokers = [broker for broker in self.brokers if is_so(broker)]
        return self.rng.choice(brokers) if brokers else None

    def _kill(self) -> None:
        if (broker := self._some(lambda broker: broker.life is not None)) is not None:
            self._end(broker, self.rng.random() < 0.5)

    def _end(self, broker: Broker, is_power: bool) -> None:
        """End a broker by SIGKILL, or by a power cut."""
        life = broker.life
        assert life is not None
        self.tell(f"broker {broker.number} {'loses power' if is_power else 'is killed'}")
        if isinstance(life, MasterLife):
            life.grow()
            self._last_master, life.ended_s = life, self._now_s
        else:
            self.promises.check_slave(life)
        life.loop.kill()
        broker.life = None
        self.network.drop(life, says_so=not is_power)
        if not is_power:
            self.name_server.forget(broker)
        self._leave_disk(broker, is_power)

    def _leave_disk(self, broker: Broker, is_power: bool) -> None:
        rng, disk = self.rng, broker.disk
        if is_power:
            share, unit = rng.choice(_LOST_SHARES), rng.choice((4096, 512))
            clone = disk.crash_clone(share, rng.randrange(1 << 30), unit_bytes=unit)
            broker.lost_s = self._now_s
        else:
            clone = disk.kill_clone()
        clone.simulated_used_ratio = disk.simulated_used_ratio
        broker.disk = clone
        self.promises.check_cuts(broker)

    def _start(self) -> None:
        if (broker := self._some(lambda broker: broker.life is None)) is not None:
            self._start_one(broker)

    def _start_one(self, broker: Broker, *, checks: bool = True) -> None:
        """Start a broker. It may die meanwhile, or find its disk full."""
        before = self._last_master if self._last_master is not None and self._last_master.broker is broker else None
        kind = MasterLife if broker.is_master else SlaveLife
        self.tell(f"broker {broker.number} starts as {'master' if broker.is_master else 'slave'}")
        try:
            broker.life = kind(self, broker)
        except (DiskFullError, ProcessDied):
            self.tell(f"broker {broker.number} dies while it starts")
            self._leave_disk(broker, self.rng.random() < 0.5)
            return
        except GantrymqError as error:
            raise BrokenPromise("start", f"broker {broker.number}: {error}") from error
        self.name_server.register(broker)
        if not self.plan.has_pool or before is None:
            self.promises.started(broker, before if checks else None)
        else:
            self.promises.started(broker, None)

    def _stop(self, broker: Broker) -> bool:
        """End a broker as a person does. Returns False if its disk refuses that, which ends it, too."""
        life = broker.life
        assert life is not None
        try:
            life.stop()
        except (ProcessDied, GantrymqError):
            self._end(broker, False)
            return False
        self._end(broker, False)
        return True

    # Faults

    def _cut_off(self) -> None:
        hosts = sorted({broker.host for broker in self.brokers} | {"10.0.9.9"})
        one, other = self.rng.sample(hosts, 2)
        self.network.cut_off.add(frozenset((one, other)))
        self.tell(f"{one} and {other} are cut off")

    def _connect_all(self) -> None:
        self.network.cut_off.clear()

    def _pause(self) -> None:
        broker = self.rng.choice(self.brokers)
        broker.paused_until_s = self._now_s + self.rng.choice((0.1, 2.0, 8.0, 25.0))

    def _fill_disk(self) -> None:
        broker = self.rng.choice(self.brokers)
        if broker.disk.capacity_bytes is None:
            broker.disk.capacity_bytes = broker.disk._used_bytes() + self.rng.randrange(3) * PAGE_SIZE
        else:
            broker.disk.capacity_bytes = None

    def _set_clock(self) -> None:
        broker = self.rng.choice(self.brokers)
        broker.clock.ahead_ms += self.rng.choice((-3_600_000, -5_000, 5_000, 3_600_000))

    def _want_room(self) -> None:
        """The master's disk gets fuller, or a person lets its expired files go."""
        life = self.master_life
        if life is None:
            return
        life.broker.disk.simulated_used_ratio = self.rng.choice((0.5, 0.5, 0.8, 0.8, 0.87))
        life.store.delete_expired_files()
        for _ in range(3):
            self._now_s += 10
            cleaners = [runner for runner in life.store._runners if runner._service.name.startswith("Clean")]
            for runner in cleaners:
                if life.broker.life is life:
                    self._mortal(life.broker, runner.step)  # type: ignore[attr-defined]
            self.promises.check()

    def _move(self) -> None:
        """A slave gets its other address."""
        broker = self._some(lambda broker: isinstance(broker.life, SlaveLife))
        if broker is not None:
            self.tell(f"broker {broker.number} has another address")
            broker.hosts.reverse()

    def _promote(self) -> None:
        """The master is gone, and a person makes the slave with the longest log the master."""
        old = next(broker for broker in self.brokers if broker.is_master)
        slaves = [broker for broker in self.brokers if isinstance(broker.life, SlaveLife)]
        if old.life is not None or not slaves or self._last_master is None or self.plan.slaves > len(slaves):
            return
        new = max(slaves, key=lambda broker: broker.life.store.max_phy_offset if broker.life is not None else 0)
        before = self._last_master
        self.tell(f"broker {new.number} is promoted")
        self._stop(new)
        old.is_master, new.is_master = False, True
        self._start_one(new, checks=False)
        if isinstance(new.life, MasterLife):
            self.promises.promoted(new.life, before)

    def _light_fuse(self) -> None:
        broker = self._some(lambda broker: broker.life is not None)
        if broker is not None and broker.life is not None:
            broker.life.fs.fuse = self.rng.randrange(30)

    def _corrupt(self) -> None:
        """One byte of a body is wrong on its way to a slave."""
        self.network.corrupts += 1

    # A person, and cuts

    def _do_what_slaves_say(self) -> None:
        """Cut what a master does not have, and begin with an empty directory where nothing else helps."""
        for broker in self.brokers:
            life = broker.life
            if not isinstance(life, SlaveLife):
                continue
            if life.copy.view().state is CopyState.BEHIND_RETENTION:
                self._replace_disk(broker)
            else:
                self._mortal(broker, partial(self._cut_if_noted, broker, life))

    def _cut_if_noted(self, broker: Broker, life: SlaveLife) -> None:
        if DivergenceFile(life.fs, ROOT / CONFIG).load() is not None:
            self._cut(broker)

    def _replace_disk(self, broker: Broker) -> None:
        """What an operator does where nothing else helps."""
        self.tell(f"broker {broker.number} gets an empty disk")
        self._end(broker, False)
        broker.disk = MemoryFileSystem(clock=broker.clock)
        broker.disk.simulated_used_ratio, broker.cut_bytes = 0.5, []
        self._start_one(broker)

    def _cut(self, broker: Broker) -> None:
        """Stop a slave, cut its log, and start it again."""
        life = broker.life
        assert isinstance(life, SlaveLife)
        end, first = life.store.max_phy_offset, max(life.store.min_phy_offset, 0)
        history = log_bytes(life.store, first, end)
        if not self._stop(broker):
            return
        fs = MortalFileSystem(broker.disk)
        noted = DivergenceFile(fs, ROOT / CONFIG).load()
        if noted is None:
            self._start_one(broker)
            return
        lost = without_blank(history[max(noted.cut_offset - first, 0) : max(noted.end_offset - first, 0)])
        self.tell(f"broker {broker.number} cuts {noted.cut_offset} to {noted.end_offset}")
        if self.rng.random() < 0.4:
            fs.fuse = self.rng.randrange(60)
        loop = SimulatedLoop(self.now_s)
        kept_before = list(broker.cut_bytes)
        if lost and noted.cut_offset >= first:
            broker.cut_bytes.append((noted.cut_offset, lost))
        try:
            with stepped_services(loop, self.rng):
                cut(ROOT, life.config, fs)
        except (ProcessDied, DiskFullError):
            self._leave_disk(broker, self.rng.random() < 0.7)
            return
        except GantrymqError as error:
            is_removed = "does not have the offset" in str(error) and noted.cut_offset <= first
            if "grown since" not in str(error) and not is_removed:
                raise BrokenPromise("cut", str(error)) from error
            broker.cut_bytes = kept_before
        self._leave_disk(broker, self.rng.random() < 0.3)
        self._start_one(broker)

    # The end

    def _make_whole(self) -> None:
        """End all faults, and wait until every slave is equal to the master."""
        self.tell("all faults are over")
        self.network.calm_down()
        self._strangers = []
        for broker in self.brokers:
            broker.disk.capacity_bytes, broker.disk.simulated_used_ratio = None, 0.5
            broker.paused_until_s = 0.0
            if broker.life is not None:
                broker.life.fs.fuse = -1
        for number in range(_SETTLE_ROUNDS):
            for broker in self.brokers:
                if broker.life is None:
                    self._start_one(broker)
            if number in (3, 40):
                self._put()
            if number % 10 == 0:
                self._do_what_slaves_say()
                self._tick()
            self._go_on(_SETTLE_S)
            if number <= 45 or any(broker.life is None for broker in self.brokers):  # a cut may have ended in a kill
                continue
            slave = self._differing()
            if slave is None:
                return
            if number % 50 == 49 and slave is not None and self._has_nothing_in_common(slave):
                self._replace_disk(slave.broker)
        for broker in self.brokers:
            if broker.life is None:
                self._start_one(broker)
        if (slave := self._differing()) is not None:
            raise BrokenPromise("converges", f"broker {slave.broker.number}: {slave.copy.view()}")

    def _has_nothing_in_common(self, slave: SlaveLife) -> bool:
        """Whether the first record that both could have differs: retention has removed where they were alike."""
        master = self.master_life
        assert master is not None, "it is started if it is not there"
        begin = max(slave.store.min_phy_offset, master.store.min_phy_offset, 0)
        own = log_bytes(slave.store, begin, slave.store.max_phy_offset)
        other = log_bytes(master.store, begin, master.end)
        if not own or not other:
            return slave.store.max_phy_offset > 0
        return common(own, other) < min(struct.unpack_from(">i", own)[0], len(other))

    def _differing(self) -> SlaveLife | None:
        """A slave that is not equal to the master."""
        master = self.master_life
        assert master is not None, "it is started if it is not there"
        for broker in self.brokers:
            if broker.life is master:
                continue
            slave = broker.life
            assert isinstance(slave, SlaveLife)
            store = slave.store
            begin = max(store.min_phy_offset, master.base, 0)
            if store.max_phy_offset != master.end or log_bytes(store, begin, master.end) != master.part(
                begin, master.end
            ):
                return slave
        return None


def without_blank(data: bytes) -> bytes:
    """A part of a log without a blank that ends it: a recovery may write that again."""
    at = 0
    while at + BLANK_SIZE <= len(data):
        size, magic = struct.unpack_from(">iI", data, at)
        if magic == MAGIC_BLANK and at + size == len(data):
            return data[:at]
        at += max(size, BLANK_SIZE)
    return data
