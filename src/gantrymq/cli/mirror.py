"""``gantrymq mirror``."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gantrymq.cli.connection import ClusterConnection, connects
from gantrymq.cli.mirror_source import BrokerSource
from gantrymq.cli.opened import read_entries
from gantrymq.cli.options import AsJson, ConfigFile, Settings
from gantrymq.cli.stop_signals import StopSignals
from gantrymq.cli.table.options import span_s
from gantrymq.cli.telling import Tell, telling
from gantrymq.cli.terminal import print_line, warn
from gantrymq.clock import SystemClock
from gantrymq.errors import ConfigError, MQBrokerError, MQClientError, NotAStoreError, RemotingError

if TYPE_CHECKING:
    from gantrymq.client.settings import ClientSettings
    from gantrymq.config.reading import Reading
    from gantrymq.ha.master_link import Connect
    from gantrymq.ha.mirror import Mirror, Progress
    from gantrymq.store.message_store import MessageStore
    from gantrymq.store.reader import StoreReader

_TELL_EVERY_S, _TOPICS_EVERY_S = 1.0, 60.0
_LEAST_RATE = 1024
_IN_SYNC = "in sync"  # CopyState.IN_SYNC, whose module imports NumPy
_HOUR_S = 3600
_EACH_HOUR = ";".join(f"{hour:02}" for hour in range(24))
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _rate(text: str) -> int:
    """A parser of bytes a second: a number, with k, m or g for powers of 1024."""
    number = str(text).lower().removesuffix("b").removesuffix("i")
    unit = _UNITS.get(number[-1:], 1)
    digits = number[:-1] if unit > 1 else number
    if not (digits.isascii() and digits.isdigit() and _LEAST_RATE <= int(digits) * unit < 1 << 50):
        raise typer.BadParameter(f"{text!r} is not a number of bytes a second such as 500k or 20m, and at least 1k")
    return int(digits) * unit


@connects
def mirror(
    connection: ClusterConnection,
    broker: Annotated[str, typer.Option("--broker", metavar="NAME", help="The broker's name.", show_default=False)],
    store: Annotated[
        Path,
        typer.Option("--store", metavar="DIR", help="The directory of the copy.", show_default=False, readable=False),
    ],
    once: Annotated[bool, typer.Option("--once", help="Copy what the broker has now, then exit.")] = False,
    rate: Annotated[
        int | None, typer.Option("--rate", metavar="LIMIT", parser=_rate, help="Bytes a second, such as 20m.")
    ] = None,
    keep: Annotated[
        float | None,
        typer.Option("--keep", metavar="SPAN", parser=span_s, help="Delete log files this old. Default: none."),
    ] = None,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Copy a broker's log into a store, and follow it until SIGTERM.

    The copy has everything that the broker still has. Other commands and Spark
    read DIR meanwhile. The broker does not wait for a mirror, and no name
    server lists it. Each record is checked before it is appended. A killed
    mirror continues at its last whole record. A directory with another log is
    refused. With --keep, or fileReservedTime in the settings, retention runs.

    Examples of use:

        gantrymq mirror -n 127.0.0.1:9876 --broker broker-a --store /data/mirror
        gantrymq mirror -n 127.0.0.1:9876 --broker broker-a --store /data/mirror --once
        gantrymq mirror -n 127.0.0.1:9876 --broker broker-a --store /data/mirror --keep 72h --rate 20m
    """
    from gantrymq.client.admin.admin_client import AdminClient
    from gantrymq.ha.mirror import Mirror

    with ExitStack() as stack:
        signals = stack.enter_context(StopSignals())
        # Topics are named in full, as in a store.
        settings: ClientSettings = {**connection.settings, "namespace": ""}
        admin = stack.enter_context(AdminClient(connection.name_servers, **settings))
        source = BrokerSource(admin, broker)
        reading = _reading(source, read_entries(config, set_), keep)
        report = _Report(broker, source, store / "config", stack.enter_context(telling(_print, json=json)))
        copying = Mirror(
            source,
            clock=SystemClock(),
            stopped=lambda: signals.number is not None,
            tell=report.tell,
            sleep=time.sleep,
            rate=rate or 0,
            connect=_connect(reading, connection),
        )
        _check(copying, store, reading)
        with _open(store, reading) as opened:
            last = copying.run(opened, once=once)
        report.end(last)


def _connect(reading: Reading, connection: ClusterConnection) -> Connect:
    """How to connect to the HA port: with haTlsEnable as to the broker, and with its login. Raises ConfigError."""
    from gantrymq.ha.login import Credentials, login_connect
    from gantrymq.ha.tls import tls_connect
    from gantrymq.remoting.transport.tls import tls_client

    connect: Connect = socket.create_connection
    if reading.config.ha_tls_enable:
        context = tls_client(connection.tls)
        if context is None:
            raise ConfigError("haTlsEnable", True, "false without --tls")
        connect = tls_connect(context)
    if not reading.config.ha_authentication_enabled:
        return connect
    if not connection.access_key or not connection.secret_key:
        raise ConfigError("haAuthenticationEnabled", True, "false without --access-key and --secret-key")
    user = Credentials(connection.access_key, connection.secret_key)
    return login_connect(connect, lambda: user)


def _reading(source: BrokerSource, entries: dict[str, str], keep_s: float | None) -> Reading:
    """The settings of the copy: those of the broker that shape its files, then those that were given."""
    from gantrymq.config.properties import read_settings
    from gantrymq.config.refused_keys import Work

    given = dict(entries)
    if keep_s is not None:
        given.setdefault("fileReservedTime", str(max(-int(-keep_s // _HOUR_S), 1)))
        given.setdefault("deleteWhen", _EACH_HOUR)
    user = read_settings(given)
    user.require_honoured(Work.WRITE)
    for warning in user.warnings:
        warn(warning)
    reading = read_settings({**source.shape(), **given, "transientStorePoolEnable": "false"})
    return reading._replace(given=user.given, warnings=())


def _check(mirror: Mirror, path: Path, reading: Reading) -> None:
    """Compare what is there with the broker's log before anything changes."""
    held = _reader(path, reading)
    if held is None:
        mirror.check(None, 0)
        return
    try:
        mirror.check(held, held.lookup.log.file_size)
    finally:
        held.close()


def _reader(path: Path, reading: Reading) -> StoreReader | None:
    """What is in the directory; None if a store can be made there. Raises NotAStoreError."""
    from gantrymq.fs.real import RealFileSystem
    from gantrymq.store.geometry import require_store
    from gantrymq.store.paths import StorePaths
    from gantrymq.store.reader import StoreReader

    fs = RealFileSystem()
    if not fs.exists(path) or not fs.scan(path):
        return None
    require_store(fs, StorePaths.of(path, reading.config), creates=True)
    try:
        return StoreReader.open(path, reading.config, given=reading.given)
    except NotAStoreError:  # the files there may precede a store
        return None


def _open(path: Path, reading: Reading) -> MessageStore:
    from gantrymq.cli.terminal import progress
    from gantrymq.store.message_store import MessageStore

    with progress() as report:
        return MessageStore.open(
            path,
            reading.config,
            given=reading.given,
            progress=report,
            housekeeping="fileReservedTime" in reading.given,
            delivers=False,
        )


class _Report:
    """Prints the progress, at most once a second and only if it has changed, and keeps ``topics.json``."""

    def __init__(self, broker: str, source: BrokerSource, directory: Path, write: Tell) -> None:
        from gantrymq.fs.real import RealFileSystem
        from gantrymq.store.config_files import ConfigFile

        self._broker, self._source, self._write = broker, source, write
        self._topics = ConfigFile(RealFileSystem(), directory / "topics.json")
        self._saved: dict[str, Any] = {}
        self._told_s = self._topics_s = float("-inf")
        self._told: Progress | None = None
        self._warned: set[str] = set()

    def tell(self, progress: Progress) -> None:
        """Print a progress, unless it is too early or repeats the last one."""
        now_s = time.monotonic()
        if now_s - self._topics_s >= _TOPICS_EVERY_S:
            self._topics_s = now_s
            self._copy_topics()
        if progress.reason:
            self._warn_once(f"{progress.state}: {progress.reason}")
        is_new = self._told is None or progress.state is not self._told.state
        if progress != self._told and (is_new or now_s - self._told_s >= _TELL_EVERY_S):
            self._told, self._told_s = progress, now_s
            self._write(self._fields("progress", progress))
        if progress.state == _IN_SYNC:
            self._warned.clear()

    def end(self, progress: Progress) -> None:
        """Print the summary."""
        self._write(self._fields("summary", progress))

    def _copy_topics(self) -> None:
        try:
            topics = self._source.topics()
            if topics != self._saved:
                self._topics.save(topics)
                self._saved = topics
        except (MQClientError, MQBrokerError, RemotingError) as error:
            self._warn_once(f"the topics are as before: {error}")

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warn(text)

    def _fields(self, kind: str, progress: Progress) -> dict[str, Any]:
        lag_bytes = progress.lag_bytes
        mean_bytes = progress.copied_bytes / progress.records if progress.records else 0
        behind_ms = SystemClock().now_ms() - progress.newest_ms
        is_known = progress.records > 0 or not lag_bytes
        if not progress.is_whole:
            self._warn_once(
                f"the history is not whole: the copy begins at offset {progress.min_offset}, "
                f"the broker's log at {progress.master_min_offset}"
            )
        return {
            "kind": kind,
            "broker": self._broker,
            "state": progress.state,
            "reason": progress.reason,
            "history": "whole" if progress.is_whole else "partial",
            "minOffset": max(progress.min_offset, 0),
            "maxOffset": progress.max_offset,
            "masterMinOffset": progress.master_min_offset,
            "masterMaxOffset": progress.master_max_offset,
            "messages": progress.records,
            "bytes": progress.copied_bytes,
            "lag": {
                "bytes": lag_bytes,
                "messages": (ceil(lag_bytes / mean_bytes) if lag_bytes else 0) if is_known else None,
                "seconds": (max(behind_ms, 0) / 1000 if lag_bytes else 0) if is_known else None,
            },
        }


def _print(fields: dict[str, Any]) -> None:
    from gantrymq.model.size import size_text
    from gantrymq.model.texts import count_text

    lag = fields["lag"]
    copied = f"{count_text(fields['messages'], 'message')} ({size_text(fields['bytes'])}) copied"
    left = f"{size_text(lag['bytes'])} behind" if lag["bytes"] else "nothing behind"
    estimate = f", about {lag['messages']:,} messages and {lag['seconds']:.0f} s" if lag["messages"] else ""
    print_line(f"{fields['state']}: {copied}; offsets {fields['minOffset']} to {fields['maxOffset']}; {left}{estimate}")
