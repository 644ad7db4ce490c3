"""The files of ``config/``: JSON objects that are replaced as a whole, and the validation of their tables.

A load falls back to the ``.bak`` file.

A broker accepts what its decoders accept and silently skips the rest. An operator would then search in vain for a topic
or an offset. The validation therefore names each impossible value, with its path in the table.

Thread rule: plain functions.

Source: ConfigManager; TopicConfigManager, SubscriptionGroupManager, ConsumerOffsetManager, ScheduleMessageService,
ConsumerFilterManager, QueueLevelConsumerManager, MessageRequestModeManager, TopicQueueMappingManager.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gantrymq.errors import UnusableFileError
from gantrymq.format.names import CONSUMER_OFFSET, DELAY_OFFSET, DELETED_TOPICS
from gantrymq.fs.api import FileSystem
from gantrymq.fs.replaced_file import ReplacedFile, Value
from gantrymq.model import fastjson
from gantrymq.model.java import INT_MAX, LONG_MAX
from gantrymq.model.limits import MAX_QUEUES

_ALL_PERMISSIONS = 15
_LOGGER = logging.getLogger(__name__)


class Problem(NamedTuple):
    """An invalid value: its ``path`` in the table (the keys from the root on), and what is wrong with it."""

    path: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        """Return the path in the notation of JSON tools, and what is wrong."""
        keys = (f".{key}" if key.isidentifier() else f"[{json.dumps(key, ensure_ascii=False)}]" for key in self.path)
        return f"${''.join(keys)} {self.text}"


Check = Callable[[Any, tuple[str, ...]], Iterator[Problem]]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _is_number(value: Any, low: int, high: int) -> bool:
    if isinstance(value, str):  # fastjson accepts numbers in quotes
        digits = value.removeprefix("-")
        value = int(value) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None
    is_int = type(value) is int or (type(value) is float and value.is_integer())
    return is_int and low <= value <= high


def _number(low: int, high: int = LONG_MAX) -> Check:
    def check(value: Any, path: tuple[str, ...]) -> Iterator[Problem]:
        if not _is_number(value, low, high):
            yield Problem(path, f"is {_shown(value)}, not a number from {low} to {high}")

    return check


def _of(kind: type, name: str) -> Check:
    def check(value: Any, path: tuple[str, ...]) -> Iterator[Problem]:
        if not isinstance(value, kind):
            yield Problem(path, f"is {_shown(value)}, not {name}")

    return check


_TEXT, _FLAG, _LIST = _of(str, "a text"), _of(bool, "true or false"), _of(list, "a list")


def _fields(named_by: str = "", **checks: Check) -> Check:
    """Return a check for an object with these fields. Each field may be missing or null.

    ``named_by`` is a field that must repeat the key of its object.
    """

    def check(value: Any, path: tuple[str, ...]) -> Iterator[Problem]:
        if not isinstance(value, dict):
            yield Problem(path, f"is {_shown(value)}, not an object")
            return
        for key, check_value in checks.items():
            if value.get(key) is not None:
                yield from check_value(value[key], (*path, key))
        if named_by and path and value.get(named_by) not in (None, path[-1]):
            yield Problem((*path, named_by), f"is {_shown(value[named_by])}, not the key {_shown(path[-1])}")

    return check


def _table(of: Check, key: Check | None = None) -> Check:
    """Return a check for an object whose values pass ``of`` and whose keys pass ``key`` (None: any keys)."""

    def check(value: Any, path: tuple[str, ...]) -> Iterator[Problem]:
        if not isinstance(value, dict):
            yield Problem(path, f"is {_shown(value)}, not an object")
            return
        for name, item in value.items():
            if key is not None:
                yield from (Problem((*path, name), f"has a key that {bad.text}") for bad in key(name, ()))
            yield from of(item, (*path, name))

    return check


def _topic_at_group(value: Any, path: tuple[str, ...]) -> Iterator[Problem]:
    if "@" not in value.strip("@"):
        yield Problem(path, f"is {_shown(value)}, not topic@group")


_VERSION = _fields(timestamp=_number(0), stateVersion=_number(0))
_COMMITTED = _table(_table(_number(0), _number(0, INT_MAX)), _topic_at_group)
_OFFSETS = _fields(
    offsetTable=_COMMITTED,
    resetOffsetTable=_COMMITTED,
    pullOffsetTable=_COMMITTED,
    groupTopicMap=_table(_LIST),
    dataVersion=_VERSION,
)
_TOPIC = _fields(
    "topicName",
    topicName=_TEXT,
    readQueueNums=_number(0, MAX_QUEUES),
    writeQueueNums=_number(0, MAX_QUEUES),
    perm=_number(0, _ALL_PERMISSIONS),
    topicSysFlag=_number(0, INT_MAX),
    order=_FLAG,
    attributes=_table(_TEXT),
)
_GROUP = _fields(
    "groupName",
    groupName=_TEXT,
    consumeEnable=_FLAG,
    retryQueueNums=_number(0, MAX_QUEUES),
    retryMaxTimes=_number(-1, INT_MAX),
    brokerId=_number(0),
    whichBrokerWhenConsumeSlowly=_number(0),
    consumeTimeoutMinute=_number(0, INT_MAX),
    attributes=_table(_TEXT),
)
_FILTER = _fields(
    consumerGroup=_TEXT,
    topic=_TEXT,
    expression=_TEXT,
    expressionType=_TEXT,
    bornTime=_number(0),
    deadTime=_number(0),
    clientVersion=_number(0),
)
_MAPPING = _fields(
    "topic",
    topic=_TEXT,
    bname=_TEXT,
    totalQueues=_number(0, INT_MAX),
    epoch=_number(-1),
    hostedQueues=_table(_LIST, _number(0, INT_MAX)),
)
_ORDER = _fields(
    popTime=_number(0),
    i=_number(0),
    o=_LIST,
    ot=_table(_number(0), _number(0)),
    oc=_table(_number(0, INT_MAX), _number(0)),
    l=_number(0),
    cm=_number(-LONG_MAX - 1),
    a=_TEXT,
)
_MODE = _fields(
    consumerGroup=_TEXT,
    topic=_TEXT,
    mode=_TEXT,
    popShareQueueNum=_number(-INT_MAX - 1, INT_MAX),
)
_DELETION = _fields(lastOffset=_number(0), endOffset=_number(0), delayedOffset=_number(0))
_CHECKS: Mapping[str, Check] = {
    "topics.json": _fields(topicConfigTable=_table(_TOPIC), dataVersion=_VERSION),
    "subscriptionGroup.json": _fields(
        subscriptionGroupTable=_table(_GROUP), forbiddenTable=_table(_table(_number(0, INT_MAX))), dataVersion=_VERSION
    ),
    CONSUMER_OFFSET: _OFFSETS,
    "lmqConsumerOffset.json": _fields(lmqOffsetTable=_table(_number(0), _topic_at_group), dataVersion=_VERSION),
    DELAY_OFFSET: _fields(offsetTable=_table(_number(0), _number(1, INT_MAX)), dataVersion=_VERSION),
    "consumerFilter.json": _fields(
        filterDataByTopic=_table(_fields("topic", topic=_TEXT, groupFilterData=_table(_FILTER)))
    ),
    "consumerOrderInfo.json": _fields(table=_table(_table(_ORDER, _number(0, INT_MAX)), _topic_at_group)),
    "messageRequestMode.json": _fields(messageRequestModeMap=_table(_table(_MODE))),
    "topicQueueMapping.json": _fields(topicQueueMappingInfoMap=_table(_MAPPING), dataVersion=_VERSION),
    DELETED_TOPICS: _fields(
        deletedTopics=_table(_fields(lastOffset=_number(0), endOffset=_number(0), delayedOffset=_number(0)))
    ),
}


def table_problems(name: str, value: dict[str, Any]) -> Iterator[Problem]:
    """Yield the invalid values of ``value``, the object in the file ``name`` of ``config/`` or in its ``.bak``."""
    check = _CHECKS.get(name.removesuffix(".bak"))
    if check is not None:
        yield from check(value, ())


def wrong_shape(name: str, value: dict[str, Any]) -> Problem | None:
    """Return the problem of the first table that is not an object, so that nothing in it can be used, or None."""
    return next((problem for problem in table_problems(name, value) if len(problem.path) == 1), None)


def parse_config(raw: bytes) -> dict[str, Any]:
    """Parse a file of ``config/`` as fastjson2 does. Raises ValueError if it holds no JSON object."""
    value = fastjson.loads_edited(raw.decode("utf-8"), no_number=_no_number)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def require_tables(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return ``value``, the object of the file ``name``. Raises ValueError if one of its tables is not an object."""
    problem = wrong_shape(name, value)
    if problem is not None:
        raise ValueError(str(problem))
    return value


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


class ConfigFile:
    """The JSON object at ``path``. Thread rule: one thread."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._file = ReplacedFile(fs, path)

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._file.path

    @property
    def has_backup(self) -> bool:
        """Whether there is a ``.bak`` file with the version before."""
        return self._file.has_backup

    @property
    def refused(self) -> str:
        """The reason why the last load used the backup instead of the file; empty if it used the file."""
        return self._file.refused

    def load(self) -> dict[str, Any]:
        """Return the object, or an empty one if neither the file nor its backup holds one. Raises DiskError.

        An unusable file is logged as a warning and does not stop a start: these files are written by a broker.
        """
        try:
            loaded = self.read(lambda value: require_tables(self.path.name, value))
        except UnusableFileError as error:
            _LOGGER.warning("%s cannot be used (%s): the store continues without it", self.path, error.reason)
            return {}
        if self.refused:
            instead = (
                "its .bak is used" if loaded is not None else "there is no .bak, so the store continues without it"
            )
            _LOGGER.warning("%s cannot be used (%s): %s", self.path, self.refused, instead)
        return loaded or {}

    def read(self, use: Callable[[dict[str, Any]], Value], *, keeps_edits: bool = False) -> Value | None:
        """Return ``use(object)``, or, if that raises ValueError or GantrymqError, ``use`` of the backup's object.

        With ``keeps_edits`` the backup only replaces a file that is missing or blank, so that an edit by hand is never
        replaced by older content. Returns None if there is neither file nor backup. Raises DiskError, and
        UnusableFileError if nothing that exists can be used.
        """
        return self._file.load(lambda raw: use(parse_config(raw)), keeps_edits=keeps_edits)

    def save(self, value: dict[str, Any]) -> None:
        """Replace the object. Returns when it is durable. Raises DiskFullError."""
        self._file.replace(fastjson.dumps(value))
