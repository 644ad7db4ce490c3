"""Masters with a slave: sends that both have acknowledged, a slave under the fastest producer, and a new slave.

Each side is a name server, a master and a slave of one implementation, in three or two processes. A new slave of the
real RocketMQ copies the last file of its master's log only, so the log of that race is one file, and the rate counts
what was copied.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.race.process import Line, SideError, free_port, our_command, serve_ours, serving, settings_words
from benchmarks.race.race import JAVA, OURS, Race, Row
from benchmarks.race.races.brokers import BODY_SIZE, SETTINGS, Brokers, times
from benchmarks.race.track import Track
from gantrymq.client.admin.admin_client import AdminClient
from gantrymq.errors import GantrymqError

_MASTER = {**SETTINGS, "brokerName": "broker-a", "brokerRole": "SYNC_MASTER", "totalReplicas": 2}
_BOTH = {"inSyncReplicas": 2}
_SLAVE = {**SETTINGS, "brokerName": "broker-a", "brokerId": 1, "brokerRole": "SLAVE"}
_ONE_FILE = {"mappedFileSizeCommitLog": (2 << 30) - 4096}  # for both at most a signed number of 32 bits
_FILLED = 1_500_000
_WITHIN_S = 120
_POLL_S = 0.02


def races(track: Track) -> Iterator[Race]:
    """Sends with a slave, its keeping up with the fastest producer, and the catching up of a new slave."""
    if track.java is None:
        return  # the client is Java's
    yield _sends(track)
    yield _keeps_up(track)
    yield _catch_up(track)


class Pairs(Brokers):
    """A master of each side, with a slave that is in sync before the first send, or without one."""

    def __init__(self, track: Track, settings: dict[str, Any], *, has_slave: bool) -> None:
        super().__init__(track)
        self._settings, self._has_slave = settings, has_slave
        self.slaves: dict[str, str] = {}  # the address of each side's, with ``has_slave``

    @contextmanager
    def __call__(self, folder: Path, **first: Any) -> Iterator[None]:
        """Start all, and let the client do ``first`` with each master, unmeasured."""
        with ExitStack() as stack:
            for side in (JAVA, OURS):
                settings = {**_MASTER, **self._settings, "haListenPort": free_port()}
                store = folder / f"{side}-master"
                words = serve_ours(store, settings) if side == OURS else self._track.other.cluster(store, settings)
                self._served[side] = stack.enter_context(serving(words))
                if self._has_slave:
                    self.slaves[side] = stack.enter_context(self.slave(side, folder))
                    _until(lambda side=side: self._in_sync_slaves(side) > 0)  # type: ignore[misc]
                self.load(side, **first)
            yield

    @contextmanager
    def slave(self, side: str, folder: Path) -> Iterator[str]:
        """A new slave of the master of a side, for the ``with`` block; yields its address."""
        store = folder / f"{side}-slave"
        shutil.rmtree(store, ignore_errors=True)
        names = self._served[side]["namesrv"]
        settings = {**_SLAVE, **self._settings, "haListenPort": free_port()}
        if side == OURS:
            words = our_command("broker", "--store", str(store), "-n", names, "--listen-port", "0")
            words += settings_words(settings)
        else:
            words = [*self._track.other.cluster(store, settings), "--namesrv", names]
        with serving(words) as line:
            yield line["broker"]

    def end_of_log(self, side: str, broker: str | None = None) -> tuple[int, int]:
        """The first offset of a broker's log and the one after its last byte; of the master without an address."""
        with AdminClient(self._served[side]["namesrv"]) as admin:
            info = admin.broker_runtime_info(broker or self._served[side]["broker"])
        return int(info["commitLogMinOffset"]), int(info["commitLogMaxOffset"])

    def _in_sync_slaves(self, side: str) -> int:
        with AdminClient(self._served[side]["namesrv"]) as admin:
            return admin.ha_status(self._served[side]["broker"]).in_sync_slave_nums


def _sends(track: Track) -> Race:
    pairs = Pairs(track, _BOTH, has_slave=True)
    work: dict[str, Any] = {"mode": "sync", "threads": 16, **times(track)}

    def turn(side: str) -> Line:
        return pairs.load(side, **work)

    row = Row(
        f"replicated sync send {BODY_SIZE} B, 16 threads",
        "rate",
        "messages/s",
        1.0,
        note="acknowledged by master and slave",
    )
    sides = track.sides(lambda _: turn(JAVA), lambda _: turn(OURS))
    return Race([row], sides, standing=lambda folder: pairs(folder, **work))


def _keeps_up(track: Track) -> Race:
    pairs = Pairs(track, {}, has_slave=True)
    work: dict[str, Any] = {"mode": "batch", "threads": 4, **times(track)}

    def turn(side: str) -> dict[str, float]:
        _, begin = pairs.end_of_log(side)
        began_s = time.perf_counter()
        pairs.load(side, **work)
        _, end = pairs.end_of_log(side)
        behind = end - pairs.end_of_log(side, pairs.slaves[side])[1]
        _until(lambda: pairs.end_of_log(side, pairs.slaves[side])[1] >= end)
        took_s = time.perf_counter() - began_s
        return {"megabytesPerSecond": (end - begin) / 1e6 / took_s, "behindMegabytes": behind / 1e6}

    name = f"slave under batches of 100, {BODY_SIZE} B"
    rows = [
        Row(name, "megabytesPerSecond", "MB/s", 1.0, note="until the slave has all"),
        Row(f"{name}: behind at the end", "behindMegabytes", "MB", less_is_better=True, note="of the sends"),
    ]
    return Race(rows, track.sides(lambda _: turn(JAVA), lambda _: turn(OURS)), standing=lambda at: pairs(at, **work))


def _catch_up(track: Track) -> Race:
    pairs = Pairs(track, _ONE_FILE, has_slave=False)
    filling = {"mode": "batch", "count": track.amount(_FILLED), "seconds": _WITHIN_S}

    def turn(side: str, folder: Path) -> dict[str, float]:
        _, end = pairs.end_of_log(side)
        with pairs.slave(side, folder) as slave:
            began_s = time.perf_counter()
            _until(lambda: pairs.end_of_log(side, slave)[1] >= end)
            took_s = time.perf_counter() - began_s
            begin, _ = pairs.end_of_log(side, slave)
        return {"megabytesPerSecond": (end - begin) / 1e6 / took_s}

    note = "from the moment a new slave says that it has started"
    row = Row("slave catches up", "megabytesPerSecond", "MB/s", 1.5, note=note)
    sides = track.sides(lambda folder: turn(JAVA, folder), lambda folder: turn(OURS, folder))
    return Race([row], sides, standing=lambda folder: pairs(folder, **filling))


def _until(is_so: Callable[[], bool]) -> None:
    """Raises SideError if it takes too long."""
    deadline = time.monotonic() + _WITHIN_S
    while True:
        try:
            if is_so():
                return
        except GantrymqError as error:  # not registered yet
            if time.monotonic() > deadline:
                raise SideError(str(error)) from error
        if time.monotonic() > deadline:
            raise SideError(f"a slave is not in sync within {_WITHIN_S} s")
        time.sleep(_POLL_S)
