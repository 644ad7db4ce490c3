"""Examines whether a store and a configuration can move to gantrymq, or back to RocketMQ.

Nothing is written, and no lock is needed, so a broker may run on the store. The permissions come first: without them no
other answer would be true.

The answer is a list of reasons. A refused reason keeps the store from moving, a warning does not. The facts beside them
are what an operator compares before and after a move: pending messages, disk use, versions, addresses.

Thread rule: one thread.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from gantrymq.clock import Clock, SystemClock
from gantrymq.config.broker_settings import BrokerConfig
from gantrymq.config.guards import Level, Reason, Subject, accepted_names
from gantrymq.config.keys import read_fields
from gantrymq.config.properties import parse_properties
from gantrymq.config.reading import Reading
from gantrymq.config.refused_keys import ServerKind, key_reasons
from gantrymq.errors import (
    ConfigError,
    GantrymqError,
    NotAStoreError,
    StoreError,
    StorePermissionError,
    UnusableFileError,
)
from gantrymq.format.names import CONFIG, DELETED_TOPICS, USERS
from gantrymq.format.record import MAX_TOPIC_LENGTH_V1
from gantrymq.fs.lock_holder import lock_holder
from gantrymq.fs.real import RealFileSystem
from gantrymq.fs.replaced_file import ReplacedFile
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.config_files import ConfigFile
from gantrymq.store.contents import content_reasons
from gantrymq.store.entries import Use, is_for
from gantrymq.store.geometry import require_store
from gantrymq.store.lost_routes import lost_routes
from gantrymq.store.paths import StorePaths, offset_files
from gantrymq.store.queue.queue_listing import queue_directories
from gantrymq.store.reader import StoreReader
from gantrymq.store.recovery.swap_journal import WORK_DIRECTORY
from gantrymq.tools.check.small_files_check import TableDecoders, check_names, is_known_name
from gantrymq.tools.findings import Severity
from gantrymq.tools.pending.pending import PendingMessages, holds_pending
from gantrymq.tools.pending.waiting import PendingKind
from gantrymq.tools.read.log_places import log_files

# report(step, done, total)
Report = Callable[[str, int, int], None]
_HOUR_MS = 3_600_000
_WARNING_LIMITS, _FORCIBLE_LIMITS = (35, 90), (30, 85)  # percent, as of retention.DiskSpace
_SAVED_SETTINGS = "broker.properties"  # in config/: what tools changed while a broker without -c ran
_LOOPBACK = ("127.", "localhost", "::1", "0.0.0.0")
# Keys of the settings that RocketMQ does not have; a test compares them with its configuration classes.
OWN_KEYS = frozenset(
    {
        *("acceptMissingCommitLog", "acceptWithoutEffect", "aclPlainFile", "haAllowedSlaves", "haEnable"),
        *(
            "haAckDurable",
            "haLastFileOnly",
            "haAuthenticationEnabled",
            "haTlsEnable",
            "haTruncate",
            "maxConnections",
            "maxDecompressedBodySize",
            "maxPartialRequestBytes",
        ),
        *("maxRequestBodyBytes", "maxRequestHeaderBytes", "maxSubscriptionGroups", "maxTopics"),
        *("maxUnreadResponseBytes", "recoverLastFiles", "recoverRule"),
    }
)


class Direction(StrEnum):
    """Where the store is to move: from RocketMQ to gantrymq, or back."""

    HERE = "here"
    BACK = "back"


@dataclass(slots=True)
class Preflight:
    """The result. ``pending`` counts messages by kind; None if the store cannot be read.

    ``disk_used_ratio`` and ``free_bytes`` are of the fuller of the disks of log and queues. ``expired_files`` counts
    log files that are older than fileReservedTime. ``written_by`` says which releases the files fit.
    """

    path: Path
    direction: Direction
    reasons: list[Reason] = field(default_factory=list)
    accepted: frozenset[str] = frozenset()
    pending: Mapping[PendingKind, int] | None = None
    disk_used_ratio: float = 0.0
    free_bytes: int | None = None
    log_files: int = 0
    expired_files: int = 0
    written_by: str = ""
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    lock_holder: int | None = None
    last_exit_ok: bool = True

    def is_accepted(self, reason: Reason) -> bool:
        """Whether acceptWithoutEffect names a refused reason."""
        return reason.level is Level.REFUSED and reason.is_accepted(self.accepted)

    def count(self, level: Level) -> int:
        """How many reasons of a level are not accepted."""
        return sum(reason.level is level and not self.is_accepted(reason) for reason in self.reasons)

    @property
    def moves(self) -> bool:
        """Whether nothing keeps the store from moving."""
        return self.count(Level.REFUSED) == 0


def preflight(
    path: str | Path,
    reading: Reading,
    direction: Direction = Direction.HERE,
    *,
    of_settings: Iterable[Reason] = (),
    decoders: TableDecoders | None = None,
    clock: Clock | None = None,
    report: Report | None = None,
) -> Preflight:
    """Examine the store at ``path`` and the settings of ``reading``.

    ``of_settings`` are the caller's reasons about settings that are not in ``reading``, because no broker starts with
    them. ``decoders`` load the broker's tables by file name.

    Raises NotAStoreError, and ConfigError for a setting that is not allowed.
    """
    path, clock = Path(path), clock or SystemClock()
    fs, paths = RealFileSystem(), StorePaths.of(path, reading.config)
    broker = BrokerConfig(**read_fields(BrokerConfig, reading.entries))
    result = Preflight(path, direction, list(of_settings), broker=broker)
    is_readable = True
    try:
        require_store(fs, paths)
    except StorePermissionError:
        is_readable = False
    access = _examine_access(paths, report)
    result.reasons += _permission_reasons(paths, access)
    if access.unreadable or not is_readable:
        result.written_by = "unknown: a part of the store cannot be read"
        return result
    if direction is Direction.HERE:
        result.accepted = accepted_names(reading.config.accept_without_effect)
    result.lock_holder, result.last_exit_ok = lock_holder(paths.lock), not fs.exists(paths.abort)
    result.written_by = _written_by(fs, paths)
    _measure_disk(result, fs, paths, reading, clock.now_ms())
    if direction is Direction.HERE:
        result.reasons += key_reasons(reading.entries, ServerKind.BROKER)
        result.reasons += content_reasons(fs, paths)
        result.reasons += _table_reasons(fs, paths, decoders or {})
        result.reasons += _address_reasons(reading)
    else:
        result.reasons += _back_reasons(fs, paths, reading)
    result.reasons += _disk_reasons(result, paths, reading)
    result.reasons += _state_reasons(result)
    result.reasons += _name_reasons(fs, paths)
    result.reasons += _link_reasons(paths, access.broken)
    result.reasons += _read_store(result, reading, clock, report)
    result.reasons.sort(key=lambda reason: reason.level is not Level.REFUSED)
    return result


def _path_reason(level: Level, name: str, text: str, remedy: str) -> Reason:
    return Reason(level, Subject.PATH, name, text, remedy, acceptable=False)


def _read_store(result: Preflight, reading: Reading, clock: Clock, report: Report | None) -> Iterator[Reason]:
    """Count the pending messages, and yield the problems for which a writer would refuse the store."""
    try:
        reader = StoreReader.open(
            result.path,
            reading.config,
            given=reading.given,
            clock=clock,
            progress=report,
            trusts_writer=True,
            skips_lost=True,
            reads_queue=holds_pending,
        )
    except NotAStoreError:
        raise
    except ConfigError as error:  # a size that the files do not have
        remedy = f"set {error.key} to the value with which the store was written, or remove it"
        yield Reason(Level.REFUSED, Subject.KEY, error.key, str(error), remedy, acceptable=False)
        return
    except StoreError as error:
        name = _relative(result.path, error.path)
        yield _path_reason(Level.REFUSED, name, str(error), f"`gantrymq store verify {result.path}` examines the store")
        return
    with closing(reader):
        for problem in reader.problems:
            text = f"{_relative(result.path, problem.path)} {getattr(problem, 'reason', problem)}"
            remedy = f"`gantrymq store verify {result.path}` names all problems"
            yield _path_reason(Level.REFUSED, _relative(result.path, problem.path), text, remedy)
        messages = PendingMessages(reader, clock.now_ms(), report=report)
        try:
            counts = Counter(message.kind for message in messages)
        except GantrymqError as error:
            text, remedy = f"pending messages cannot be counted: {error}", f"run `gantrymq store verify {result.path}`"
            yield _path_reason(Level.WARNING, "consumequeue", text, remedy)
            return
        result.pending = {kind: counts[kind] for kind in PendingKind}


def _relative(root: Path, path: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) and path != root else str(path)


# Tables


def _table_reasons(fs: RealFileSystem, paths: StorePaths, decoders: TableDecoders) -> Iterator[Reason]:
    """Reasons for tables of config/ with which a broker does not start, and for a lost table of topics."""
    for table, decode in decoders.items():
        file, name = ConfigFile(fs, paths.config / table), f"{CONFIG}/{table}"
        try:
            file.read(lambda value, decode=decode: decode(value) if value else None, keeps_edits=True)  # type: ignore[misc]
        except UnusableFileError as error:
            older = f" to start with {table}.bak" if file.has_backup else ""
            text = f"{name} does not contain its table: {error.reason}"
            yield _path_reason(Level.REFUSED, name, text, f"correct it, or move it away{older}")
    try:
        lost = lost_routes(fs, paths)
    except StoreError:  # an unreadable topics.json has its reason already
        return
    if lost is not None:
        text, _, remedy = lost.partition("; ")
        yield _path_reason(Level.WARNING, CONFIG, f"{CONFIG} {text}", remedy)


# Disk, permissions and state


def _measure_disk(result: Preflight, fs: RealFileSystem, paths: StorePaths, reading: Reading, now_ms: int) -> None:
    config = reading.config
    ratios = {path: fs.used_ratio(path) for path in paths.writable_commit_logs if fs.exists(path)}
    best = min(ratios, key=ratios.__getitem__) if ratios else paths.root
    fullest = max((best, paths.root), key=fs.used_ratio)
    result.disk_used_ratio, result.free_bytes = fs.used_ratio(fullest), fs.free_bytes(fullest)
    oldest_ms = now_ms - config.file_reserved_time_hours * _HOUR_MS
    files = offset_files(fs, paths.commit_logs)
    result.log_files = len(files)
    newest = files[-1].path if files else None
    times = {paths_of / entry.name: entry.modified_ms for paths_of in paths.commit_logs for entry in fs.scan(paths_of)}
    result.expired_files = sum(times[file.path] < oldest_ms for file in files if file.path != newest)


def _disk_reasons(result: Preflight, paths: StorePaths, reading: Reading) -> Iterator[Reason]:
    """Reasons for a disk that is too full, by the limits that retention applies."""
    config, used, name = reading.config, result.disk_used_ratio * 100, paths.commit_log.name
    warning = min(max(config.disk_space_warning_level_ratio, _WARNING_LIMITS[0]), _WARNING_LIMITS[1])
    forcible = min(max(config.disk_space_clean_forcibly_ratio, _FORCIBLE_LIMITS[0]), _FORCIBLE_LIMITS[1])
    remedy = "make room on the disk, or move the store to a larger one"
    if used > warning:
        text = f"the disk use is {used:.1f} %, above {warning} %: messages would be rejected"
        yield _path_reason(Level.REFUSED, name, text, remedy)
    elif used > forcible and config.clean_file_forcibly_enable:
        text = f"the disk use is {used:.1f} %, above {forcible} %: the oldest files would be deleted whatever their age"
        yield _path_reason(Level.REFUSED, name, text, f"{remedy}, or set cleanFileForciblyEnable=false")
    elif used > config.disk_max_used_space_ratio:
        text = f"the disk use is {used:.1f} %, above diskMaxUsedSpaceRatio={config.disk_max_used_space_ratio}: "
        text += f"the {result.expired_files} expired files would be deleted at any hour"
        yield _path_reason(Level.WARNING, name, text, remedy)
    if result.expired_files and "fileReservedTime" not in reading.given:
        text = f"{result.expired_files} of {result.log_files} log files are older than "
        text += f"{config.file_reserved_time_hours} hours, the default of fileReservedTime, and would be deleted"
        yield Reason(
            Level.WARNING, Subject.KEY, "fileReservedTime", text, "give the broker.conf with -c, or set the key"
        )


class _Access(NamedTuple):
    """What this user may do with the files: the paths that it cannot read, or only not write, and the owners' files.

    ``broken`` are links that lead nowhere.
    """

    unreadable: list[Path]
    unwritable: list[Path]
    broken: list[Path]
    owners: Counter[int]


def _examine_access(paths: StorePaths, report: Report | None) -> _Access:
    access, done = _Access([], [], [], Counter()), 0
    for path in _walk(paths):
        try:
            access.owners[path.stat().st_uid] += 1
        except PermissionError:
            access.unreadable.append(path)
            continue
        except OSError:
            if path.is_symlink():  # else it was removed meanwhile
                access.broken.append(path)
            continue
        if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0), effective_ids=True):
            access.unreadable.append(path)
        elif not os.access(path, os.W_OK, effective_ids=True):
            access.unwritable.append(path)
        done += 1
        if report is not None:
            report("Examining files", done, 0)
    return access


def _permission_reasons(paths: StorePaths, access: _Access) -> Iterator[Reason]:
    """Reasons for files and directories that this user cannot read and write, and for those of another owner."""
    denied, uid, owners = [*access.unreadable, *access.unwritable], os.geteuid(), access.owners
    if denied:
        name, more = _relative(paths.root, denied[0]), f" and {len(denied) - 1} more" if len(denied) > 1 else ""
        act = "read" if access.unreadable else "write"
        rest = ", so nothing else was examined" if access.unreadable else ""
        remedy = "run as the user that owns the files, or change their owner"
        yield _path_reason(Level.REFUSED, name, f"this user (uid {uid}) cannot {act} {name}{more}{rest}", remedy)
    others = [owner for owner in owners if owner != uid]
    if others and not denied:
        text = f"{sum(owners[owner] for owner in others)} files belong to uid {others[0]}, and this user is uid {uid}: "
        text += "new files would be this user's"
        yield _path_reason(Level.WARNING, paths.root.name, text, "run the broker as the user that owns the files")


def _walk(paths: StorePaths) -> Iterator[Path]:
    for root in (paths.root, *(log for log in paths.commit_logs if not log.is_relative_to(paths.root))):
        yield root
        for directory, names, files in os.walk(root):
            yield from (Path(directory, name) for name in (*names, *files))


def _state_reasons(result: Preflight) -> Iterator[Reason]:
    if result.lock_holder is not None:
        text = f"process {result.lock_holder} has the store open"
        yield _path_reason(Level.WARNING, "lock", text, "stop it, and wait until it has ended, before the move")
    elif not result.last_exit_ok:
        text = "the store was not closed, so the start recovers it, and may cut what is not whole"
        remedy = f"`gantrymq store recover {result.path} --dry-run` shows what it would cut"
        yield _path_reason(Level.WARNING, "abort", text, remedy)


def _name_reasons(fs: RealFileSystem, paths: StorePaths) -> Iterator[Reason]:
    """Reasons for names that belong to no store, and for a file where a directory is needed."""
    foreign: list[str] = []
    for finding in check_names(fs, paths):
        name = str(finding.path)
        if finding.level is not Severity.NOTE:
            text, _, remedy = finding.text.partition("; ")
            yield _path_reason(Level.WARNING, name, f"{name} {text}", remedy)
        elif not _is_ours(finding.path):
            foreign.append(name)
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        text = f"{foreign[0]}{more} is not part of a RocketMQ store, and is left alone"
        yield _path_reason(Level.WARNING, foreign[0], text, "move it away if the store needs it no longer")


def _link_reasons(paths: StorePaths, broken: list[Path]) -> Iterator[Reason]:
    """Reasons for links of the store that lead nowhere. A start would refuse them, or go on without their contents."""
    for path in broken:
        name = _relative(paths.root, path)
        if is_known_name(Path(name).parts[0]) or Path(name).is_absolute():
            yield _path_reason(Level.REFUSED, name, f"{name} is a broken link", "mount its disk, or remove the link")


def _is_ours(path: Path) -> bool:
    return is_for(path.name, Use.LEFT_ALONE)


def _written_by(fs: RealFileSystem, paths: StorePaths) -> str:
    """The releases that the files fit: a checkpoint has three longs before 5.0, and six since 5.4."""
    try:
        page = StoreCheckpoint(fs, paths.checkpoint).page
    except StoreError:
        return "unknown: the checkpoint cannot be read"
    if fs.exists(paths.config / DELETED_TOPICS):
        return "gantrymq"
    if page.logics_physical_offset or fs.exists(paths.root / "rocksdbstore"):
        return "RocketMQ 5.4 or later, or gantrymq"
    if page.master_flushed_offset or page.confirm_phy_offset or fs.exists(paths.timer_checkpoint):
        return "RocketMQ 5"
    return "RocketMQ 4, or a store without messages"


def _address_reasons(reading: Reading) -> Iterator[Reason]:
    entries = reading.entries
    address = entries.get("brokerIP1", BrokerConfig().broker_ip1)
    if address.startswith(_LOOPBACK):
        text = f"clients would be told to connect to {address}, which only this machine reaches"
        if "brokerIP1" not in entries:
            text += " (the default of brokerIP1; RocketMQ's is the machine's address)"
        yield Reason(Level.WARNING, Subject.KEY, "brokerIP1", text, "set brokerIP1 to the address of this machine")
    if "brokerName" not in entries:
        text = "the broker would have the name broker-a (RocketMQ's default is the machine's name)"
        yield Reason(Level.WARNING, Subject.KEY, "brokerName", text, "set brokerName to the name that clients know")


# Back


def _back_reasons(fs: RealFileSystem, paths: StorePaths, reading: Reading) -> Iterator[Reason]:
    """What RocketMQ 5.5 would not understand."""
    if fs.exists(paths.root / WORK_DIRECTORY):
        text = f"an unfinished rebuild ({WORK_DIRECTORY}) is unknown to RocketMQ, so queues may be mixed"
        yield _path_reason(
            Level.REFUSED, WORK_DIRECTORY, text, f"run `gantrymq store rebuild {paths.root}` again before the move"
        )
    for path in log_files(fs, paths)[1]:
        if not path.is_dir():
            name = _relative(paths.root, path)
            text = f"RocketMQ 5.5 does not start with {name} in a directory of the commit log"
            yield _path_reason(Level.REFUSED, name, text, "move it away")
    if fs.exists(paths.config / DELETED_TOPICS):
        name = f"{CONFIG}/{DELETED_TOPICS}"
        text = f"{name} is unknown to RocketMQ: if it recovers after a kill, messages of deleted topics may come back"
        yield _path_reason(Level.WARNING, name, text, "close the store with SIGTERM before the move")
    if fs.exists(paths.config / USERS):
        name = f"{CONFIG}/{USERS}"
        text = f"{name} is unknown to RocketMQ: it has the users of its own {CONFIG}/users, also those deleted here"
        remedy = "create and delete them there by `gantrymq admin user` and `gantrymq admin acl`"
        yield _path_reason(Level.WARNING, name, text, remedy)
    yield from _saved_setting_reasons(fs, paths, reading.entries)
    yield from _long_topic_reasons(fs, paths)
    yield from _back_keys(reading.entries)


def _saved_setting_reasons(fs: RealFileSystem, paths: StorePaths, entries: Mapping[str, str]) -> Iterator[Reason]:
    """A reason for settings that tools changed at a broker without -c, and that the broker.conf does not have."""
    name = f"{CONFIG}/{_SAVED_SETTINGS}"
    raw = next(ReplacedFile(fs, paths.config / _SAVED_SETTINGS).versions(), b"")
    saved = parse_properties(raw.decode("utf-8", "surrogateescape"))
    changed = sorted(key for key, text in saved.items() if entries.get(key) != text and key not in OWN_KEYS)
    if changed:
        text = f"{name} has settings that RocketMQ does not read: {', '.join(changed)}"
        yield _path_reason(Level.WARNING, name, text, "copy them into RocketMQ's broker.conf")


def _long_topic_reasons(fs: RealFileSystem, paths: StorePaths) -> Iterator[Reason]:
    names = sorted({topic for topic, _ in queue_directories(fs, paths.consume_queue)}, key=len)
    long = [topic for topic in names if len(topic.encode()) > MAX_TOPIC_LENGTH_V1]
    if long:
        more = f" and {len(long) - 1} more" if len(long) > 1 else ""
        text = f"topic {long[0]}{more} is longer than {MAX_TOPIC_LENGTH_V1} bytes: RocketMQ 4 would take its first "
        text += "message for the end of the log, and lose everything after it"
        yield Reason(Level.WARNING, Subject.TOPIC, long[0], text, "move the store to RocketMQ 5 only", acceptable=False)


def _back_keys(entries: Mapping[str, str]) -> Iterator[Reason]:
    if entries.get("aclEnable", "").strip().lower() == "true":
        text = "aclEnable=true has no effect in RocketMQ 5.5, so any client could connect, send and receive"
        remedy = "set authenticationEnabled=true and authorizationEnabled=true there, with the accounts as users"
        yield Reason(Level.REFUSED, Subject.KEY, "aclEnable", text, remedy)
    for name in sorted(OWN_KEYS & entries.keys()):
        text = f"{name} is gantrymq's own key, and RocketMQ ignores it"
        yield Reason(Level.WARNING, Subject.KEY, name, text, f"remove {name} from RocketMQ's broker.conf")
