"""What a store holds that RocketMQ acts on and gantrymq does not: data in RocksDB, compaction, light queues, and more.

A start would not fail over such contents. It would leave messages undelivered, accounts unchecked or the only copy of a
key to retention. So every writer calls :func:`require_honoured_contents` before it touches a file, and readers show
:func:`contents_note`.

A default broker of RocketMQ 5.5 creates ``rocksdbstore`` and ``compaction`` without data, and with authentication
``config/acls``. A directory of RocksDB therefore counts only if one of its files holds entries.

Source: RocksDBConsumeQueueStore, RocksDBTopicConfigManager, ConfigStorage, LocalAuthenticationMetadataProvider,
PopConsumerService, MessageRocksDBStorage, CompactionStore, BatchConsumeQueue, DLedgerCommitLog, EpochFileCache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gantrymq.config.guards import Level, Reason, Subject, accepted_names, require_honoured
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import StoreError
from gantrymq.format.names import CONSUMER_OFFSET
from gantrymq.format.rocksdb_table import read_properties
from gantrymq.fs.api import FileSystem
from gantrymq.fs.replaced_file import ReplacedFile
from gantrymq.store.config_files import parse_config
from gantrymq.store.lost_routes import TOPICS
from gantrymq.store.paths import StorePaths, offset_files

_TABLES = "rocksDBConfigToJson"
_KEEP = "keep the store on RocketMQ's broker"
_QUEUES = (
    "its queues would not be read, and a queue whose messages have all expired would begin at 0 again",
    "move {path} away, then `gantrymq store rebuild STORE` makes the queues from the log",
)
_TIMERS = "timer", "timer messages", "they would not be delivered, or once more if RocketMQ has delivered them"
_TRANSACTIONS = "trans", "open transactions", "their producers would not be asked for the outcome"
_ACCOUNTS = "`gantrymq admin acl import --from-store STORE --to-store STORE` takes them"
_CURRENT = "CURRENT"  # a file of every directory of RocksDB
_STORE_ROCKSDB = "rocksdbstore"
_INDEX_FAMILY = "default"
_BATCH_QUEUES = "batchconsumequeue"
_COMPACTION = "compaction"
_COMPACTION_LOG = Path("compaction/compactionLog")
_LIGHT = "%LMQ%"
_LIGHT_OFFSETS = "lmqConsumerOffset.json"
_MAPPING = "topicQueueMapping.json"
_TIERED = "tieredStoreMetadata.json"
_DLEDGER = "dledger-"
_CONTROLLER = ("epochFileCheckpoint", "brokerIdentity")
_SHOWN = 3


class _RocksDB(NamedTuple):
    """A directory of RocksDB: its path in the store, what is not read, and the remedy."""

    path: str
    consequence: str
    remedy: str


def _exported(path: str, table: str, file: str) -> _RocksDB:
    """A table that RocketMQ's mqadmin exports as the JSON file that gantrymq reads."""
    return _RocksDB(
        path,
        f"its {table} would not be known here",
        f"stop the broker, run `mqadmin {_TABLES} -p STORE/config -t {path.removeprefix('config/')} "
        f"-e STORE/config/{file}`, then move {path} away",
    )


_ROCKSDB = (
    _RocksDB("consumequeue", *_QUEUES),
    _RocksDB("consumequeue_rocksdb", *_QUEUES),
    _exported("config/topics", "topics", "topics.json"),
    _exported("config/subscriptionGroups", "subscription groups", "subscriptionGroup.json"),
    _exported("config/consumerOffsets", "committed offsets", "consumerOffset.json"),
    _RocksDB(
        "config/metadata",
        "its topics, subscription groups and committed offsets would not be known here",
        f"run `mqadmin {_TABLES} -b BROKER` at RocketMQ's broker after the last consumer, stop it, then move {{path}} "
        "away",
    ),
    _RocksDB(
        "config/rdb",
        "its topics, subscription groups and committed offsets would not be known here",
        f"{_KEEP}, or create topics and groups here, reset the groups' offsets, and move {{path}} away",
    ),
    _RocksDB("config/users", "its users would not be checked", f"{_ACCOUNTS}, then move {{path}} away"),
    _RocksDB("config/acls", "its policies would not be checked", f"{_ACCOUNTS}, then move {{path}} away"),
    _RocksDB(
        "kvStore",
        "messages that consumers have popped and not acknowledged would not come again",
        "set popConsumerKVServiceEnable=false at RocketMQ's broker, run `mqadmin exportPopRecord -b BROKER` after the "
        "last consumer (-d false would be a dry run), stop it, then move {path} away",
    ),
)


class _Attribute(NamedTuple):
    """A topic attribute that is not honoured, with the value that counts, its consequence and the remedy."""

    name: str
    value: str
    consequence: str
    remedy: str


_ATTRIBUTES = (
    _Attribute(
        "cleanup.policy",
        "COMPACTION",
        "messages would be deleted by age, also the only one of a key",
        "copy what is needed to another topic and delete this one at RocketMQ's broker",
    ),
    _Attribute(
        "queue.type",
        "BatchCQ",
        "its batch consume queues would not be read, so its messages would not be delivered",
        "let its consumers finish and delete it at RocketMQ's broker",
    ),
    _Attribute(
        "message.type",
        "LITE",
        "its lite topics would get no messages",
        "let its consumers finish and delete it at RocketMQ's broker",
    ),
)


def content_reasons(fs: FileSystem, paths: StorePaths) -> list[Reason]:
    """The contents of the store at ``paths`` that are not honoured here, those that are refused first.

    Only names, the properties of RocksDB's tables and small files of ``config/`` are read. Raises DiskError,
    StorePermissionError.
    """
    topics = _marked_topics(fs, paths)
    reasons = [
        *_rocksdb_reasons(fs, paths.root),
        *_attribute_reasons(topics),
        *_leftover_reasons(fs, paths, topics),
        *_light_reasons(fs, paths),
        *_table_reasons(fs, paths),
        *_replica_reasons(fs, paths.root),
    ]
    return sorted(reasons, key=lambda reason: reason.level is not Level.REFUSED)


def require_honoured_contents(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig) -> list[Reason]:
    """Raise NotHonouredError for a refused content that acceptWithoutEffect does not name. Changes nothing.

    Returns the accepted reasons.
    """
    return require_honoured(content_reasons(fs, paths), accepted_names(config.accept_without_effect))


def contents_note(fs: FileSystem, paths: StorePaths) -> StoreError | None:
    """One line for people who read a store with refused contents, or None. An unreadable file is another check's."""
    try:
        refused = [reason for reason in content_reasons(fs, paths) if reason.level is Level.REFUSED]
    except StoreError:
        return None
    if not refused:
        return None
    more = f" ({len(refused) - 1} more)" if len(refused) > 1 else ""
    text = f"{refused[0].text}{more}; `gantrymq store preflight` lists the reasons and the remedies"
    return StoreError(paths.root, f"is shown without a part of it: {text}")


def accepted_notes(root: Path, reasons: Iterable[Reason]) -> list[StoreError]:
    """A line for each accepted reason of the store at ``root``."""
    return [StoreError(root, f"accepted without effect: {reason.text}") for reason in reasons]


def _refused(name: str, text: str, remedy: str, group: str = "", subject: Subject = Subject.PATH) -> Reason:
    return Reason(Level.REFUSED, subject, name, text, remedy, group)


# RocksDB


class _Tables(NamedTuple):
    """What a directory of RocksDB holds: entries by column family, and whether a log or table of it is not readable."""

    entries: Counter[str]
    has_unknown: bool


def _tables(fs: FileSystem, directory: Path) -> _Tables | None:
    """Return what the tables of a directory hold, or None if it holds no data of RocksDB.

    Entries that RocksDB has not written into a table yet are in a ``.log`` file, for example after a kill. RocksDB
    always has one, so a directory without tables and logs lacks files of its own, and what it held is unknown.
    """
    entry_counts: Counter[str] = Counter()
    entries = fs.scan(directory)
    names = [entry.name for entry in entries]
    has_unknown = _CURRENT in names and not any(name.endswith((".sst", ".log")) for name in names)
    for entry in entries:
        if entry.is_directory or not entry.size_bytes:
            continue
        stem, _, suffix = entry.name.rpartition(".")
        if suffix == "sst" and stem.isdecimal():
            file = fs.open(directory / entry.name)
            try:
                properties = read_properties(entry.size_bytes, file.read_at)
            finally:
                file.close()
            if properties is None:
                has_unknown = True
            else:
                entry_counts[properties.column_family] += properties.entries - properties.deletions
        has_unknown |= suffix == "log" and stem.isdecimal()
    return _Tables(entry_counts, has_unknown) if entry_counts or has_unknown else None


def _rocksdb_reasons(fs: FileSystem, root: Path) -> Iterator[Reason]:
    for row in _ROCKSDB:
        if _tables(fs, root / row.path) is not None:
            remedy = row.remedy.format(path=row.path)
            yield _refused(row.path, f"{row.path} is in RocksDB: {row.consequence}", remedy, "RocksDB")
    tables = _tables(fs, root / _STORE_ROCKSDB)
    if tables is None:
        return
    families = [family for family in (_TIMERS, _TRANSACTIONS) if tables.has_unknown or family[0] in tables.entries]
    if families:
        kinds, consequences = (" and ".join(family[at] for family in families) for at in (1, 2))
        may = "may be" if tables.has_unknown else "are"
        yield _refused(
            _STORE_ROCKSDB,
            f"{kinds} {may} in RocksDB ({_STORE_ROCKSDB}): {consequences}",
            "let RocketMQ's broker finish them (mqadmin switchTimerEngine -e F; transRocksDBEnable=false), stop it, "
            f"then move {_STORE_ROCKSDB} away",
            "RocksDB",
        )
    elif tables.entries[_INDEX_FAMILY]:
        yield Reason(
            Level.WARNING,
            Subject.PATH,
            _STORE_ROCKSDB,
            f"the index in RocksDB ({_STORE_ROCKSDB}) is not read: queries by key may miss messages",
            "`gantrymq store rebuild STORE` makes the index from the log",
            "RocksDB",
        )


# Topics


def _marked_topics(fs: FileSystem, paths: StorePaths) -> dict[str, dict[str, str]] | None:
    """Return the attributes of each topic in topics.json; None without a usable table.

    A table in which no attribute counts is not parsed: it may have half a million topics.
    """
    words = [row.value.encode() for row in _ATTRIBUTES]

    def parse(raw: bytes) -> dict[str, dict[str, str]]:
        topics = _dict(parse_config(raw).get("topicConfigTable"))
        return {name: _dict(_dict(topic).get("attributes")) for name, topic in topics.items()}

    needed = any(_entries_below(fs, paths.root / name) for name in (_COMPACTION_LOG, _BATCH_QUEUES))
    try:
        return ReplacedFile(fs, paths.config / TOPICS).load(
            lambda raw: parse(raw) if needed or any(word in raw for word in words) else {}
        )
    except StoreError:  # of a damaged table; the start says what it does about that
        return None


def _attribute_reasons(topics: dict[str, dict[str, str]] | None) -> Iterator[Reason]:
    for topic, attributes in sorted((topics or {}).items()):
        for row in _ATTRIBUTES:
            if attributes.get(row.name) == row.value:
                text = f"topic {topic} has {row.name}={row.value}: {row.consequence}"
                yield _refused(topic, text, row.remedy, row.name, Subject.TOPIC)


def _entries_below(fs: FileSystem, directory: Path) -> list[str]:
    """The names of the directories in a directory that have a file below them: of the topics with queues there."""
    topics = [entry.name for entry in fs.scan(directory) if entry.is_directory]
    return [topic for topic in topics if _has_queue_files(fs, directory / topic)]


def _has_queue_files(fs: FileSystem, topic: Path) -> bool:
    return any(offset_files(fs, [topic / queue.name]) for queue in fs.scan(topic) if queue.is_directory)


def _leftover_reasons(fs: FileSystem, paths: StorePaths, topics: dict[str, dict[str, str]] | None) -> Iterator[Reason]:
    """Reasons for compacted logs and batch consume queues of topics that topics.json does not mark.

    They count if the table is missing or has the topic without the attribute. Those of deleted topics are left over.
    """
    kinds = (
        (_COMPACTION, _COMPACTION_LOG, _ATTRIBUTES[0], "compacted logs"),
        (_BATCH_QUEUES, Path(_BATCH_QUEUES), _ATTRIBUTES[1], "batch consume queues"),
    )
    for name, directory, row, what in kinds:
        names = _entries_below(fs, paths.root / directory)
        unmarked = [
            topic for topic in names if topics is None or topics.get(topic, {row.name: row.value}).get(row.name) is None
        ]
        if unmarked:
            text = f"{name} has {what} of {_listed(unmarked)}, which would not be read: {row.consequence}"
            yield _refused(name, text, f"move {name} away if they are not needed, or {_KEEP}", row.name)


def _light_reasons(fs: FileSystem, paths: StorePaths) -> Iterator[Reason]:
    names = [
        entry.name for entry in fs.scan(paths.consume_queue) if entry.is_directory and entry.name.startswith(_LIGHT)
    ]
    names = [name for name in names if _has_queue_files(fs, paths.consume_queue / name)]
    if names:
        yield _refused(
            _LIGHT,
            f"the store has light queues (LMQ), {_listed(names)}: messages are not dispatched to light queues here, so "
            "their consumers would get none",
            f"move consumequeue/{_LIGHT}* away if their consumers are gone, or {_KEEP}",
            "enableLmq",
        )
    light = _table(fs, paths.config / _LIGHT_OFFSETS)
    name = f"config/{_LIGHT_OFFSETS}"
    if light.get("lmqOffsetTable"):
        text = f"{name} has committed offsets of light queues (LMQ), which are not delivered here"
        yield _refused(name, text, f"move {name} and its .bak away if their consumers are gone", "enableLmq")
    elif _is_ahead(light.get("offsetTable"), _table(fs, paths.config / CONSUMER_OFFSET).get("offsetTable")):
        yield _refused(
            name,
            f"{name} has the committed offsets of all groups, because the broker had enableLmq=true: it is not read "
            "here, so groups would begin at other offsets",
            f"move {name} to config/{CONSUMER_OFFSET}, and {name}.bak away",
            "enableLmq",
        )


def _is_ahead(offsets: Any, others: Any) -> bool:
    """Whether a table of committed offsets has one that is missing in the other table, or behind it there."""
    for key, queues in _dict(offsets).items():
        other = _dict(_dict(others).get(key))
        for queue_id, offset in _dict(queues).items():
            there = other.get(queue_id)
            if isinstance(offset, int) and not (isinstance(there, int) and offset <= there):
                return True
    return False


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# Other files


def _table(fs: FileSystem, path: Path) -> dict[str, Any]:
    """The object in a JSON file or in its backup; empty if both are missing or damaged."""
    try:
        return ReplacedFile(fs, path).load(parse_config) or {}
    except StoreError:
        return {}


def _table_reasons(fs: FileSystem, paths: StorePaths) -> Iterator[Reason]:
    static = _dict(_table(fs, paths.config / _MAPPING).get("topicQueueMappingInfoMap"))
    if static:
        name = f"config/{_MAPPING}"
        yield _refused(
            name,
            f"{name} has the static topics {_listed(static)}: queues are not mapped to other brokers here, so clients "
            "would get wrong offsets",
            f"{_KEEP}, or move {name} and its .bak away to serve the physical queues as topics of this broker",
            "static",
        )
    tiered = _dict(_table(fs, paths.config / _TIERED).get("queueMetadataTable"))
    if tiered:
        name = f"config/{_TIERED}"
        yield _refused(
            name,
            f"messages of {_listed(tiered)} are in tiered storage ({name}): those that the log no longer has would not "
            "be read",
            f"move {name} and its .bak away if they are not needed, or {_KEEP}",
            "messageStorePlugIn",
        )


def _replica_reasons(fs: FileSystem, root: Path) -> Iterator[Reason]:
    for entry in fs.scan(root):
        if entry.is_directory and entry.name.startswith(_DLEDGER) and offset_files(fs, [root / entry.name / "data"]):
            yield _refused(
                entry.name,
                f"the log of this store is a DLedger log ({entry.name}): its messages would not be read",
                f"{_KEEP}, and let consumers finish there",
                _DLEDGER.rstrip("-"),
            )
        if not entry.is_directory and entry.name in _CONTROLLER and entry.size_bytes:
            yield _refused(
                entry.name,
                f"the store is a replica of a controller's group ({entry.name}): no controller would be asked for the "
                "master, and RocketMQ's replicas would not follow what is written here",
                "shut the group's other brokers down for good, then move epochFileCheckpoint and brokerIdentity away",
                "enableControllerMode",
            )


def _listed(names: Collection[str]) -> str:
    """The first of some names, and how many more there are."""
    shown = ", ".join(sorted(names)[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else shown
