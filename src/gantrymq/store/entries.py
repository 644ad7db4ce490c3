"""Every name that can be in the directory of a store, and what each tool does with it: one row a name.

Verify, salvage, rebuild, the quarantine, preflight, the start of a store and the console's map take their lists from
this table. A new file or directory of a store is a row here and its constant in ``format/names.py``.

Source: StorePathConfigHelper, DefaultMessageStore, DLedgerCommitLog, BrokerController of RocketMQ.
"""

from __future__ import annotations

from enum import Enum, Flag, auto
from typing import NamedTuple

from gantrymq.format import names

REBUILD_WORK, SALVAGE_WORK = "rebuild.tmp", "salvage.tmp"
_THEIRS = """
    abort.bak rocksdbstore compaction compactionLog compactionCq consumequeue_r consumequeue_rocksdb transaction
    mappedFileLists controller dledgerCommitlog epochFileCheckpoint epochFileCheckpoint.bak brokerId tempBrokerId
    kvStore batchconsumequeue brokerIdentity brokerIdentity-temp
"""


class Use(Flag):
    """What a name means to the tools."""

    KNOWN = auto()  # a store of RocketMQ or of ours can have it: verify does not call it foreign
    DIRECTORY = auto()  # verify reports a file of this name
    PROOF = auto()  # a directory with it is a store
    MADE_FIRST = auto()  # a writer that was killed while it created the store can leave it alone
    MAY_PRECEDE = auto()  # it may be there before a store is created
    REBUILT = auto()  # a rebuild replaces it
    SALVAGED = auto()  # a salvage makes it, and moves it to its place in the order of the rows
    QUARANTINED = auto()  # the quarantine has one of its own
    LEFT_ALONE = auto()  # preflight does not warn of it


class Group(Enum):
    """The part of the store that a name belongs to."""

    LOG = "commit log"
    QUEUES = "consume queues"
    EXT = "extended queues"
    INDEX = "index"
    TIMERS = "timer log"
    OTHERS = "other files"


class StoreName(NamedTuple):
    """One name. With ``is_prefix`` all names that begin with it."""

    name: str
    uses: Use
    group: Group = Group.OTHERS
    is_prefix: bool = False


_OURS = Use.KNOWN | Use.DIRECTORY
_MADE = Use.SALVAGED | Use.QUARANTINED
# The log is the last one that a salvage moves: before that a start finds no store.
ENTRIES: tuple[StoreName, ...] = (
    StoreName(names.CONFIG, _OURS | _MADE | Use.MAY_PRECEDE),
    StoreName(names.CONSUME_QUEUE, _OURS | _MADE | Use.PROOF | Use.REBUILT, Group.QUEUES),
    StoreName(names.CONSUME_QUEUE_EXT, _OURS | _MADE | Use.REBUILT, Group.EXT),
    StoreName(names.INDEX, _OURS | _MADE | Use.REBUILT, Group.INDEX),
    StoreName(names.CHECKPOINT, Use.KNOWN | Use.SALVAGED | Use.PROOF),
    StoreName(names.LOCK, Use.KNOWN | Use.SALVAGED | Use.MADE_FIRST | Use.MAY_PRECEDE),
    # Not KNOWN: the root of an ext4 file system has a directory of this name, too.
    StoreName(names.LOST_FOUND, Use.SALVAGED | Use.MADE_FIRST | Use.MAY_PRECEDE | Use.LEFT_ALONE),
    StoreName(names.COMMIT_LOG, _OURS | _MADE | Use.PROOF, Group.LOG),
    StoreName(names.ABORT, Use.KNOWN | Use.PROOF),
    StoreName(names.TIMER_LOG, Use.KNOWN, Group.TIMERS),
    StoreName(names.TIMER_WHEEL, Use.KNOWN),
    # Of RocketMQ's timerWheelSnapshotFlush, or of a wheel that is being made.
    StoreName(f"{names.TIMER_WHEEL}.", Use.KNOWN, is_prefix=True),
    *(StoreName(name, Use.KNOWN) for name in _THEIRS.split()),
    StoreName("dledger-", Use.KNOWN, is_prefix=True),
    StoreName(names.DIVERGED, _OURS | Use.LEFT_ALONE),
    StoreName(REBUILD_WORK, Use.LEFT_ALONE),
    # Of an archive, and of a copy of one.
    *(
        StoreName(name, Use.KNOWN | Use.LEFT_ALONE)
        for name in (names.ARCHIVE_SUMMARY, names.ARCHIVE_WORK, names.ARCHIVE_WRITER)
    ),
    # What an operator, a mounted disk or a name server may have put there.
    StoreName("namesrv", Use.MAY_PRECEDE | Use.LEFT_ALONE),
    StoreName("broker.conf", Use.MAY_PRECEDE | Use.LEFT_ALONE),
    StoreName("trash", Use.LEFT_ALONE),
)


def names_for(use: Use) -> tuple[str, ...]:
    """The names with this use, in the order of the rows."""
    return tuple(entry.name for entry in ENTRIES if use in entry.uses and not entry.is_prefix)


def is_for(name: str, use: Use) -> bool:
    """Whether a name has this use."""
    return any(
        use in entry.uses and (name.startswith(entry.name) if entry.is_prefix else name == entry.name)
        for entry in ENTRIES
    )


def group_of(name: str) -> Group:
    """The part of the store that a name belongs to."""
    return next((entry.group for entry in ENTRIES if entry.name == name), Group.OTHERS)
