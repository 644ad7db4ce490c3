"""What must hold after every step of the simulation, whatever fails.

===========  ==========================================================================================================
name         promise
===========  ==========================================================================================================
flush        what a SYNC_FLUSH acknowledged is on the master's disk, and in its log after each restart
kill         what was acknowledged is in the master's log after SIGKILL
replicas     what was acknowledged with inSyncReplicas=n is, or was, in the logs of n - 1 registered slaves, with
             haAckDurable on their disks
promotion    what was acknowledged with two copies is in the log of the slave that is promoted, if none lost power
prefix       what a slave appends, and what it calls compared, is the begin of the log of the master that it copies
reports      a slave reports no more than its log has, with haAckDurable than its disk has
votes        the master counts one vote for each registered slave that is connected, and none above what that has
beyond end   no connection stays open that has acknowledged more than the master has
retention    a file that a counted slave needs is removed only if the disk is too full
cut          what a cut removes is in the side file, at every moment
start        a broker starts again, whatever has happened to its disk
converges    without faults each slave becomes equal to its master, or says why it cannot
===========  ==========================================================================================================

The checks look at bytes: of logs, of disks, and of what the network carries. They use the same numbers as the code
under test only where that is the question (votes, the state of a slave).
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from processes import Broker, MasterLife, SlaveLife, log_bytes

from gantrymq.config.settings import FlushDiskType
from gantrymq.format.names import COMMIT_LOG, DIVERGED, offset_name
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.put_result import PutMessageResult
from memory_file_system import MemoryFileSystem
from store_cases import ROOT

if TYPE_CHECKING:
    from world import World

FORCIBLE_RATIO = 0.85
_REPORT = struct.Struct(">q")


class BrokenPromise(AssertionError):
    """A promise does not hold. ``name`` is that of the table above."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


@dataclass
class Put:
    """One put of a client, and what it was told: a result, or an error."""

    life: MasterLife
    waits: bool
    result: PutMessageResult | None = None


@dataclass(frozen=True)
class Acknowledged:
    """A record that a client was told to be stored: where, since when, and under which promise."""

    begin: int
    end: int
    at_s: float
    is_flushed: bool
    is_replicated: bool


class Promises:
    """Checks the promises of a world. Every method raises :class:`BrokenPromise`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.matched: dict[tuple[MasterLife, int], int] = {}  # how much of a master's log a slave has ever had
        self.acknowledged: dict[MasterLife, list[Acknowledged]] = {}
        self._first: dict[MasterLife, int] = {}
        self._members: dict[MasterLife, Collection[str]] = {}

    # After a step

    def check(self) -> None:
        """Check what can be seen at any moment."""
        world = self._world
        for broker in world.brokers:
            if isinstance(broker.life, MasterLife):
                broker.life.grow()
        for broker in world.brokers:
            if isinstance(broker.life, SlaveLife):
                self.check_slave(broker.life)
        done, world.done_puts = world.done_puts, []
        for put in done:
            self._check_put(put)
        for broker in world.brokers:
            if isinstance(broker.life, MasterLife):
                self._check_votes(broker.life)
                self._check_retention(broker.life)

    def check_slave(self, slave: SlaveLife) -> None:
        """Compare what a slave has appended with the log of its master."""
        end, to = slave.store.max_phy_offset, slave.to
        if to is not None and to.broker.life is to:
            to.grow()
        life, verified = slave.verified
        if to is None or (life is to and verified == end):
            slave.end = end
            return
        if end <= slave.end and not slave.is_compared:
            return
        begin = max(verified if life is to else 0, to.base, slave.store.min_phy_offset)
        own = log_bytes(slave.store, begin, end) if begin < end else b""
        if own and own != to.part(begin, end):
            at = begin + common(own, to.part(begin, end))
            raise BrokenPromise("prefix", f"slave {slave.broker.number} differs from its master from {at} on")
        slave.verified, slave.end = (to, end), end
        self._note_matched(to, slave.broker.number, end)

    def _note_matched(self, life: MasterLife, number: int, end: int) -> None:
        self.matched[life, number] = max(self.matched.get((life, number), 0), end)

    def _check_put(self, put: Put) -> None:
        result, life, plan = put.result, put.life, self._world.plan
        if result is None or result.status is not PutMessageStatus.PUT_OK:
            return
        begin, end = result.phy_offset, result.end_offset
        if end > life.end and plan.has_pool and not (put.waits and plan.waits_for_slaves):
            return  # it is in a write buffer
        if end > life.end:
            raise BrokenPromise("flush", f"a put was told to be at {begin} to {end}, and the log ends at {life.end}")
        is_flushed = put.waits and plan.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        is_removed = first_file(life.broker.disk) > begin
        if is_flushed and not is_removed and not is_durable(life.broker.disk, begin, life.part(begin, end)):
            raise BrokenPromise("flush", f"the acknowledged bytes {begin} to {end} are not on the master's disk")
        is_replicated = put.waits and plan.waits_for_slaves and not plan.shares_host
        if is_replicated and not is_removed:
            self._check_replicas(life, begin, end)
        self.acknowledged.setdefault(life, []).append(
            Acknowledged(begin, end, self._world.now_s(), is_flushed, is_replicated)
        )

    def _check_replicas(self, life: MasterLife, begin: int, end: int) -> None:
        world = self._world
        wanted = world.plan.config.in_sync_replicas - 1
        slaves = [broker for broker in world.brokers if broker is not life.broker]
        having = [broker for broker in slaves if self.matched.get((life, broker.number), 0) >= end]
        if world.plan.config.ha_ack_durable:
            having = [
                broker
                for broker in having
                if first_file(broker.disk) > begin or is_durable(broker.disk, begin, life.part(begin, end))
            ]
        if len(having) < wanted:
            raise BrokenPromise(
                "replicas", f"{begin} to {end} was acknowledged for {wanted} slaves, {len(having)} have it"
            )

    def _begin_of(self, life: MasterLife | None) -> int:
        """What an empty slave asks for: where the master's log begins, or 1. No record of the master ends there."""
        return max(life.store.min_phy_offset, 1) if life is not None else 1

    def _check_votes(self, life: MasterLife) -> None:
        connections = list(life.server._connections)
        for connection in connections:
            if connection.is_open and connection._reported > life.store.max_phy_offset:
                raise BrokenPromise("beyond end", f"{connection._reported} is acknowledged, the log ends at {life.end}")
        if self._world.plan.shares_host:
            return  # two slaves at one address cannot be told from two connections of one
        votes = life.replication.acks._votes
        owners = [connection._socket.peer.owner for connection in connections]
        slaves = {owner.broker.number for owner in owners if isinstance(owner, SlaveLife)}
        if len(votes) > len(slaves):
            raise BrokenPromise("votes", f"{len(votes)} votes of {len(slaves)} connected slaves")
        brokers = self._world.brokers
        ends = sorted((self.matched.get((life, broker.number), 0) for broker in brokers), reverse=True)
        now = self._current_ends(life, connections)
        for most in (ends, now) if now is not None else (ends,):
            for vote, end in zip(votes, most, strict=False):
                if vote > max(end, self._begin_of(life)):
                    raise BrokenPromise("votes", f"the votes are {votes}, the slaves have {most}")

    def _current_ends(self, life: MasterLife, connections: list[Any]) -> list[int] | None:
        """The ends of the connected slaves' logs; None while an old connection of one is open."""
        ends = []
        for connection in connections:
            owner = connection._socket.peer.owner
            if not isinstance(owner, SlaveLife):
                continue
            if owner.broker.life is not owner or owner.link is not connection._socket.peer:
                return None
            ends.append(owner.store.max_phy_offset)
        return sorted(ends, reverse=True)

    def _check_retention(self, life: MasterLife) -> None:
        first = max(life.store.min_phy_offset, 0)
        before, self._first[life] = self._first.get(life, first), first
        members, self._members[life] = self._members.get(life, ()), life.server._members.keys()
        if first == before or (life.broker.disk.simulated_used_ratio or 0) > FORCIBLE_RATIO:
            return
        for connection in life.server._connections:
            owner = connection._socket.peer.owner
            if not isinstance(owner, SlaveLife) or owner.broker.life is not owner or not connection.acknowledges:
                continue
            needed = max(owner.store.max_phy_offset, connection._begin if owner.store.min_phy_offset < 0 else 0)
            if connection.host in members and needed < first:  # it was known before the file was removed
                raise BrokenPromise("retention", f"removed up to {first}, slave {owner.broker.number} needs {needed}")

    # At events

    def slave_reports(self, slave: SlaveLife, seen: list[int], data: bytes) -> None:
        """A slave sends reports; the first one of a connection is its request."""
        for (offset,) in _REPORT.iter_unpack(data):
            seen.append(offset)
            most, begin = slave.store.max_phy_offset, max(slave.store.min_phy_offset, 0)
            if offset <= self._begin_of(slave.to):
                continue
            if offset > most:
                raise BrokenPromise("reports", f"slave {slave.broker.number} reports {offset}, its log ends at {most}")
            is_checked = slave.config.ha_ack_durable and len(seen) > 1
            if is_checked and not is_durable(slave.broker.disk, begin, log_bytes(slave.store, begin, offset)):
                raise BrokenPromise("reports", f"slave {slave.broker.number} reports {offset}, its disk has less")

    def started(self, broker: Broker, before: MasterLife | None) -> None:
        """A broker has started; ``before`` is its life before, if that was the group's master, too."""
        self.check_cuts(broker)
        life = broker.life
        for other in self._world.brokers:
            master, slave = (life, other.life) if isinstance(life, MasterLife) else (other.life, life)
            if isinstance(master, MasterLife) and isinstance(slave, SlaveLife):
                begin = max(master.base, slave.store.min_phy_offset, 0)
                own = log_bytes(slave.store, begin, slave.store.max_phy_offset)
                self._note_matched(
                    master, slave.broker.number, begin + common(own, master.part(begin, begin + len(own)))
                )
        if isinstance(life, MasterLife) and before is not None:
            self._check_kept(life, before, was_cut=broker.lost_s >= before.ended_s)

    def _check_kept(self, life: MasterLife, before: MasterLife, *, was_cut: bool) -> None:
        for one in self.acknowledged.get(before, []):
            if was_cut and not one.is_flushed:
                continue
            if one.begin < life.base:
                continue  # retention
            if life.part(one.begin, one.end) != before.part(one.begin, one.end):
                name = "flush" if one.is_flushed else "kill"
                raise BrokenPromise(
                    name, f"{one.begin} to {one.end} was acknowledged, and is not there after a restart"
                )
        self.acknowledged[life] = [
            one for one in self.acknowledged.pop(before, []) if one.end <= life.end and one.begin >= life.base
        ]

    def promoted(self, life: MasterLife, before: MasterLife) -> None:
        """A slave was promoted. It has what at least two copies had, unless a slave lost its end since."""
        lost_s = max(broker.lost_s for broker in self._world.brokers if broker is not before.broker)
        for one in self.acknowledged.get(before, []):
            is_kept = one.is_replicated and one.at_s > lost_s and one.begin >= life.base
            if is_kept and life.part(one.begin, one.end) != before.part(one.begin, one.end):
                raise BrokenPromise("promotion", f"{one.begin} to {one.end} was on two copies, and is lost")
        self.acknowledged[life] = []

    def check_cuts(self, broker: Broker) -> None:
        """What was cut is in a side file, or still in the log; the first part may be the master's by now."""
        disk, log = broker.disk, ROOT / COMMIT_LOG
        for offset, data in broker.cut_bytes:
            names = [entry.name for entry in disk.scan(ROOT / DIVERGED) if not entry.name.endswith(".tmp")]
            if first_file(disk) > offset or on_disk(disk, log, offset, data):  # or its own retention was faster
                continue
            for name in names:
                at = max(int(name.partition("-")[0]) - offset, 0)
                kept = on_disk(disk, ROOT / DIVERGED / name / COMMIT_LOG, offset + at, data[at:])
                if kept and on_disk(disk, log, offset, data[:at]):
                    break
            else:
                raise BrokenPromise("cut", f"bytes from {offset} to {offset + len(data)} are nowhere: {names}")


def common(one: bytes, other: bytes) -> int:
    """How many bytes are equal at the begin."""
    if one == other:
        return len(one)
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


FILE_SIZE = 16_384


def first_file(disk: MemoryFileSystem) -> int:
    """Where a log begins on the disk: its broker's own retention may have removed what is before."""
    return min((int(entry.name) for entry in disk.scan(ROOT / COMMIT_LOG)), default=0)


def is_durable(disk: MemoryFileSystem, begin: int, data: bytes) -> bool:
    """Whether a power cut now leaves these bytes of the log."""
    return _has(disk, ROOT / COMMIT_LOG, begin, data, durable=True)


def on_disk(disk: MemoryFileSystem, directory: Path, begin: int, data: bytes) -> bool:
    """Whether files of a log's names have these bytes."""
    return _has(disk, directory, begin, data, durable=False)


def _has(disk: MemoryFileSystem, directory: Path, begin: int, data: bytes, *, durable: bool) -> bool:
    names = disk._durable if durable else disk._live
    at = 0
    while at < len(data):
        position = (begin + at) % FILE_SIZE
        size = min(FILE_SIZE - position, len(data) - at)
        inode = names.get(directory / offset_name(begin + at - position))
        if inode is None:
            return False
        content = inode.durable if durable else inode.live
        if content[position : position + size].tobytes() != data[at : at + size]:
            return False
        at += size
    return True
