"""Names of files and directories in a store.

==================================  ==============================================================
name                                content
==================================  ==============================================================
abort                               exists while the store is open; the process id as text
lock                                the text "lock"; its first byte carries the POSIX record lock
checkpoint                          see ``gantrymq.format.checkpoint``
commitlog/00000000000000000000      a file's first offset in 20 digits
consumequeue/TOPIC/QUEUE/0000…      likewise
consumequeue_ext/TOPIC/QUEUE/0000…  likewise
index/yyyyMMddHHmmssSSS             local time of the creation
config/*.json                       topics, offsets and other tables
timerwheel, timerlog/0000…          timer messages: see ``gantrymq.format.timer``
config/timercheck                   up to where timer messages are delivered
config/timermetrics                 how many wait for each topic, as JSON
salvage.unfinished                  not RocketMQ's: exists while a salvage writes the store
diverged/                           not RocketMQ's: what a slave had and its master had not (``ha.log_cut``)
lost+found                          not RocketMQ's: a store of quarantined records (``tools.repair.quarantine``)
archive.json                        not RocketMQ's: the summary of an archive (``archive.summary``)
archive.tmp                         not RocketMQ's: files that an archiver is writing
archive.writer                      not RocketMQ's: which archiver writes to an object store
==================================  ==============================================================

Source: StorePathConfigHelper, UtilAll.offset2FileName and timeMillisToHumanString.
"""

from datetime import datetime, timedelta

ABORT = "abort"
LOCK = "lock"
CHECKPOINT = "checkpoint"
COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
CONSUME_QUEUE_EXT = "consumequeue_ext"
INDEX = "index"
CONFIG = "config"
SALVAGE_MARK = "salvage.unfinished"
LOST_FOUND = "lost+found"
ARCHIVE_SUMMARY = "archive.json"
ARCHIVE_WORK = "archive.tmp"
ARCHIVE_WRITER = "archive.writer"
CONSUMER_OFFSET = "consumerOffset.json"
USERS, ACLS = "users.json", "acls.json"  # not RocketMQ's, whose users and acls are directories of RocksDB
PRIVATE = frozenset({USERS, ACLS})  # readable by their owner only
DELAY_OFFSET = "delayOffset.json"
TIMER_WHEEL = "timerwheel"
TIMER_LOG = "timerlog"
TIMER_CHECKPOINT = "timercheck"
TIMER_METRICS = "timermetrics"
DELETED_TOPICS = "deletedTopics.json"  # not RocketMQ's
DIVERGENCE = "divergence.json"  # not RocketMQ's: what a slave has and its master has not
ROLE = "role.json"  # not RocketMQ's: whether the store was a slave's, and whether it was promoted
DIVERGED = "diverged"  # not RocketMQ's: stores of the records that were cut of it
LOCK_TEXT = b"lock"
MAX_TOPIC_FILE_NAME = 255
_OFFSET_DIGITS = 20
_LAST_OFFSET = (1 << 63) - (1 << 31)  # leaves room for the longest file after it
_TIME_DIGITS = 17
_LATEST_MS = 253_000_000_000_000  # in the year 9987


def offset_name(offset: int) -> str:
    """The name of the file that begins at ``offset``."""
    return f"{offset:0{_OFFSET_DIGITS}d}"


def parse_offset_name(name: str) -> int | None:
    """The offset in a file's name; None for another name."""
    if len(name) != _OFFSET_DIGITS or not (name.isascii() and name.isdigit()):
        return None
    offset = int(name)
    return offset if offset <= _LAST_OFFSET else None


def is_topic_storable(topic: str) -> bool:
    """Whether a queue of ``topic`` can have a directory: a topic from any client becomes a file name."""
    if not topic or topic in (".", "..") or "/" in topic or "\0" in topic:
        return False
    return len(topic.encode("utf-8", "replace")) <= MAX_TOPIC_FILE_NAME


def index_name(timestamp_ms: int) -> str:
    """The name of an index file begun at ``timestamp_ms``, in local time as Java has it.

    A time outside of the calendar (from a damaged record) counts as the nearest one.
    """
    timestamp_ms = min(max(timestamp_ms, 0), _LATEST_MS)
    moment = datetime.fromtimestamp(timestamp_ms // 1000)
    return f"{moment:%Y%m%d%H%M%S}{timestamp_ms % 1000:03d}"


def following_index_name(name: str) -> str:
    """The name one millisecond later."""
    moment = _moment(name) + timedelta(milliseconds=int(name[-3:]) + 1)
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"


def is_index_name(name: str) -> bool:
    """Whether ``name`` is an index file's name: a time, in a year that leaves room for later ones."""
    if not (len(name) == _TIME_DIGITS and name.isascii() and name.isdigit()) or not "1000" <= name < "9998":
        return False
    try:
        _moment(name)
    except ValueError:
        return False
    return True


def _moment(name: str) -> datetime:
    """The second of an index file's name; raises ValueError."""
    month, day, hour, minute, second = (int(name[at : at + 2]) for at in range(4, _TIME_DIGITS - 3, 2))
    return datetime(int(name[:4]), month, day, hour, minute, second)
