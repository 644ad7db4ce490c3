"""Finds the stores that a path names, their file systems, and the name of each store's broker.

A path may be a directory, several of them, a glob, or a URI of a file system that pyarrow (s3://, gs://, hdfs://;
s3a:// is read as s3://) or fsspec knows. fsspec needs the package of that file system. A path that exists is taken
literally, including commas and brackets.

A store does not contain the name of its broker. The name is the first of these that is given: the option
``brokerName``; brokerName of a broker.conf in the store or in the directory above it; the name of the directory, or of
the one above it if the directory is called ``store``, as RocketMQ calls it.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from gantrymq.config.properties import parse_properties, read_settings
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError, NotAStoreError, StoreError, StorePermissionError
from gantrymq.format.names import (
    ABORT,
    CHECKPOINT,
    COMMIT_LOG,
    CONSUME_QUEUE,
    LOCK,
    SALVAGE_MARK,
    parse_offset_name,
)
from gantrymq.store.geometry import UNFINISHED_SALVAGE
from gantrymq.store.paths import StorePaths

_LOGGER = logging.getLogger(__name__)
_GLOB = re.compile(r"[*?\[]")
_GLOB_IN_URI = re.compile(r"[*\[]")  # after a ? there are options of the file system
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_LOST_AND_FOUND = "lost+found"  # made by the file system for its own use
_OF_HADOOP = re.compile(r"^s3[an]://", re.IGNORECASE)  # Hadoop's names for what pyarrow calls s3
_USUAL_NAME = "store"
_BROKER_CONF = "broker.conf"
_INDEX_KEYS = ("maxHashSlotNum", "maxIndexNum")
_LOG_KEYS = ("storePathCommitLog", "readOnlyCommitLogStorePaths")
_NOT_THERE = (FileNotFoundError, NotADirectoryError)
_DENIED_BY_S3 = "ACCESS_DENIED"  # pyarrow has no errno for it
_MARKS = frozenset((COMMIT_LOG, CONSUME_QUEUE, CHECKPOINT, ABORT))


@dataclass(frozen=True, slots=True)
class Location:
    """A directory. ``uri`` names its file system, None the local one; ``path`` is in the syntax of that file system.

    ``logs`` are the directories of a store's commit log if storePathCommitLog puts it elsewhere. The location of the
    log stands for all of them, and the locations of the store, the log and its files all carry ``logs``.
    """

    path: str
    uri: str | None = None
    logs: tuple[str, ...] = ()

    def __truediv__(self, name: str) -> Location:
        """The location of the entry ``name`` in this directory."""
        if self.is_log:
            paths = [f"{directory.rstrip('/')}/{name}" for directory in self.logs]
            return Location(next((path for path in paths if os.path.exists(path)), paths[0]), None, self.logs)
        if self.logs and name == COMMIT_LOG:
            return Location(self.logs[0], None, self.logs)
        return Location(f"{self.path.rstrip('/')}/{name}", self.uri)

    @property
    def is_log(self) -> bool:
        """Whether this is a commit log outside of its store, and so stands for all directories of it."""
        return self.path in self.logs

    @property
    def base_name(self) -> str:
        """The last component of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> Location:
        """The directory that contains this location."""
        if self.path.rpartition("/")[0] in self.logs:
            return Location(self.logs[0], None, self.logs)
        return Location(self.path.rstrip("/").rpartition("/")[0] or "/", self.uri)

    def __str__(self) -> str:
        """The text for messages."""
        return self.path if self.uri is None else f"{self.uri.partition('://')[0]}://{self.path.lstrip('/')}"


@dataclass(frozen=True, slots=True)
class NamedStore:
    """A store and the name of its broker."""

    broker: str
    location: Location


def file_system(uri: str | None) -> Any:
    """The pyarrow file system of a URI. Raises ConfigError if neither pyarrow nor fsspec knows it."""
    return _opened(uri)[0]


def find_stores(
    paths: tuple[str, ...], broker_names: tuple[str, ...] = (), commit_log: tuple[str, ...] = ()
) -> list[NamedStore]:
    """The stores that ``paths`` name, sorted by the names of their brokers.

    ``commit_log`` are the directories of the commit log of a single store. Without it, a store without log files has
    its log where its broker.conf says (storePathCommitLog).

    Raises ConfigError, NotAStoreError, and StoreError if a directory cannot be listed.
    """
    locations = [location for text in paths for location in _meant(text)]
    if commit_log and (len(locations) != 1 or locations[0].uri is not None):
        raise ConfigError("storePathCommitLog", ",".join(commit_log), "only for one store on a local path")
    locations = [replace(location, logs=commit_log or _given_commit_log(location)) for location in locations]
    if broker_names and len(broker_names) != len(locations):
        raise ConfigError("brokerName", ",".join(broker_names), f"a name for each store; there are {len(locations)}")
    names = list(broker_names) or [_broker_name(location) for location in locations]
    stores: dict[str, NamedStore] = {}
    for name, location in zip(names, locations, strict=True):
        if name in stores and stores[name].location != location:
            both = f"{stores[name].location} and {location}"
            raise ConfigError("brokerName", name, f"a name for each store (a,b,…): {both} would have the same")
        stores[name] = NamedStore(name, location)
    return [stores[name] for name in sorted(stores)]


def _opened(uri: str | None, path: str = "/") -> tuple[Any, str]:
    """(file system, path in it)."""
    from pyarrow import ArrowInvalid, fs

    if uri is None:
        return fs.LocalFileSystem(), path
    uri = _OF_HADOOP.sub("s3://", uri)
    try:
        fs_and_path: tuple[Any, str] = fs.FileSystem.from_uri(uri)
        return fs_and_path
    except OSError as error:  # its library is missing, or the URI does not name the bucket's region
        raise ConfigError("path", uri, f"a file system that can be opened: {' '.join(str(error).split())}") from None
    except ArrowInvalid as error:
        try:
            from importlib import import_module

            fsspec = import_module("fsspec")
        except ImportError:
            raise ConfigError("path", uri, f"a file system that pyarrow knows ({error}), or fsspec installed") from None
    try:
        system, inner = fsspec.url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise ConfigError("path", uri, f"a file system that pyarrow or fsspec knows ({error})") from None
    return fs.PyFileSystem(fs.FSSpecHandler(system)), inner


def _meant(text: str) -> list[Location]:
    """The stores that one path text names."""
    whole = location_of(text)
    if whole is not None and _names(whole) is not None:
        return [_required(whole)]
    if "," in text:
        return [location for part in text.split(",") if part.strip() for location in _meant(part.strip())]
    if not (_GLOB_IN_URI if _URI.match(text) else _GLOB).search(text):
        if whole is not None and _is_file(whole):
            raise NotAStoreError(str(whole), "is a file, not the directory of a store")
        raise NotAStoreError(text if whole is None else str(whole), "does not exist")
    stores = [location for location in _globbed(text) if _is_matched_store(location)]
    if not stores:
        raise NotAStoreError(text, "matches no RocketMQ store")
    return stores


def _is_matched_store(location: Location) -> bool:
    """Whether a match of a glob is a store. Raises NotAStoreError for an empty directory, an unmounted disk."""
    names = _readable_names(location)
    if names == [] and location.base_name != _LOST_AND_FOUND:
        reason = "is an empty directory where a glob expects a store: is its disk mounted? Else remove it, or narrow"
        raise NotAStoreError(str(location), f"{reason} the glob")
    return _is_store(names or [])


def location_of(text: str) -> Location | None:
    """The location of a text without wildcards; None for a URI with wildcards. Raises ConfigError."""
    url = urlsplit(text)
    if url.scheme == "file" and url.netloc in {"", "localhost"}:
        return Location(unquote(url.path))
    if not _URI.match(text):
        return Location(os.path.abspath(text))
    if _GLOB_IN_URI.search(text):
        return None
    return Location(_opened(text)[1], text)


def _globbed(text: str) -> list[Location]:
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    search = _GLOB_IN_URI if _URI.match(text) else _GLOB
    parts = text.split("/") if _URI.match(text) else os.path.abspath(text).split("/")
    fixed = next(at for at, part in enumerate(parts) if search.search(part))
    start = location_of("/".join(parts[:fixed]) or "/")
    assert start is not None
    matched = [start]
    for part in parts[fixed:]:
        matched = [
            location / name
            for location in matched
            for name in _readable_names(location) or ()
            if fnmatchcase(name, part)
        ]
    return matched


def entries_of(location: Location) -> list[Any] | None:
    """The entries of a directory as pyarrow's FileInfo, sorted by name; None if it does not exist.

    Raises StoreError if the directory cannot be listed.
    """
    from pyarrow import ArrowException, fs

    if location.is_log:
        each = [entries_of(Location(path)) for path in location.logs]
        all_entries = [entry for entries in each if entries is not None for entry in entries]
        return (
            None
            if all(entries is None for entries in each)
            else sorted(all_entries, key=lambda entry: str(entry.base_name))
        )
    try:
        entries = file_system(location.uri).get_file_info(fs.FileSelector(location.path))
    except _NOT_THERE:
        return None
    except (OSError, ArrowException) as error:
        if getattr(error, "errno", None) == errno.ENAMETOOLONG:  # for example a list of paths
            return None
        raise _failed(location, "cannot be listed", error) from error
    return sorted(entries, key=lambda entry: str(entry.base_name))


def log_files(directory: Location) -> list[int]:
    """The first offsets of the log's files, sorted."""
    offsets = (parse_offset_name(entry.base_name) for entry in entries_of(directory) or () if entry.is_file)
    return sorted(offset for offset in offsets if offset is not None)


def _is_file(location: Location) -> bool:
    try:
        return bool(file_system(location.uri).get_file_info(location.path).is_file)
    except OSError:
        return False


def _names(location: Location) -> list[str] | None:
    """The names in a directory, sorted; None if it does not exist."""
    entries = entries_of(location)
    return None if entries is None else [entry.base_name for entry in entries]


def _readable_names(location: Location) -> list[str] | None:
    """The names in a directory that a glob matched; None if it is no directory or not readable, such as lost+found."""
    try:
        return _names(location)
    except StorePermissionError as error:
        _LOGGER.warning("skipped: %s", error)
        return None


def _failed(location: Location, what: str, error: Exception) -> StoreError:
    """The error in one line. ``error`` is not always an OSError: pyarrow raises its own classes too."""
    denied = isinstance(error, PermissionError) or _DENIED_BY_S3 in str(error)
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())
    return (StorePermissionError if denied else StoreError)(str(location), f"{what}: {reason}")


def _is_store(names: list[str]) -> bool:
    # A store that has only its lock was being created when its process was killed.
    return (bool(_MARKS & set(names)) or names == [LOCK]) and SALVAGE_MARK not in names


def _required(location: Location) -> Location:
    names = _names(location) or []
    if SALVAGE_MARK in names:
        raise NotAStoreError(str(location), UNFINISHED_SALVAGE)
    if not _is_store(names):
        raise NotAStoreError(str(location), "is not a RocketMQ store: it has no commitlog, consumequeue or checkpoint")
    return location


def index_geometry(location: Location) -> MessageStoreConfig:
    """The size of a store's index files, by its broker.conf, else RocketMQ's defaults."""
    stated = {key: text for conf in _broker_confs(location) for key, text in conf.items() if key in _INDEX_KEYS}
    try:
        return read_settings(stated).config
    except ConfigError:
        return MessageStoreConfig()


def _broker_confs(location: Location) -> Iterator[dict[str, str]]:
    """The settings of a broker.conf in the store, and of one in the directory above it."""
    yield _properties(content_of(location / _BROKER_CONF))
    try:
        yield _properties(content_of(location.parent / _BROKER_CONF))
    except StorePermissionError:  # the permission to read a store may end at its directory
        return


def _given_commit_log(location: Location) -> tuple[str, ...]:
    """The commit log directories that a local store's broker.conf names; empty if the store itself has log files."""
    if location.uri is not None or log_files(location / COMMIT_LOG):
        return ()
    for conf in _broker_confs(location):
        stated = {key: text for key, text in conf.items() if key in _LOG_KEYS}
        if stated.get(_LOG_KEYS[0]):
            return tuple(map(str, StorePaths.of(Path(location.path), read_settings(stated).config).commit_logs))
    return ()


def _properties(raw: bytes) -> dict[str, str]:
    return parse_properties(raw.decode("utf-8", "replace"))


def _broker_name(location: Location) -> str:
    above, _, name = location.path.rstrip("/").rpartition("/")
    name_in_conf = next((conf["brokerName"] for conf in _broker_confs(location) if conf.get("brokerName")), None)
    if name_in_conf:
        return name_in_conf
    return (above.rpartition("/")[2] if name == _USUAL_NAME else "") or name or str(location)


def content_of(location: Location) -> bytes:
    """The content of a small file; empty if it does not exist. Raises StoreError if it cannot be read."""
    from pyarrow import ArrowException

    try:
        with file_system(location.uri).open_input_stream(location.path) as file:
            return bytes(file.read())
    except _NOT_THERE:
        return b""
    except (OSError, ArrowException) as error:
        raise _failed(location, "cannot be read", error) from error
