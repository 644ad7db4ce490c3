"""Every exception of gantrymq, under one root.

Expected outcomes of a put or a get are statuses (``gantrymq.model.status``). An exception ends the work. It carries
what a person needs to act on it, and its text is one line.

In brackets is the class of Python that an error has as a second base::

    GantrymqError
    ├── ConfigError
    ├── NotHonouredError
    ├── AccessError
    ├── KernelsError
    ├── StoreError
    │   ├── NotAStoreError
    │   ├── StoreLockedError
    │   ├── StoreClosedError
    │   ├── StoreBehindError
    │   ├── StorePermissionError
    │   ├── UnusableFileError
    │   ├── WrongFileSizeError
    │   ├── MissingFileError
    │   ├── DuplicateFileError
    │   ├── MisfiledQueueError
    │   ├── MissingLogError
    │   │   ├── MissingLogBeginError
    │   │   └── MissingLogEndError
    │   ├── AmbiguousGeometryError
    │   ├── CorruptRecordError
    │   ├── DiskError
    │   │   └── SyncFailedError
    │   │       └── NotInPlaceError
    │   └── DiskFullError
    │       └── NoRoomError
    ├── FilterSyntaxError
    ├── ReceiptHandleError
    ├── RemotingError
    │   ├── RemotingCommandError
    │   ├── RemotingConnectError (ConnectionError)
    │   ├── RemotingTimeoutError (TimeoutError)
    │   └── RemotingTooMuchRequestError
    ├── HAFrameError
    ├── LogCopyError
    ├── ArchiveError
    ├── MQClientError
    │   ├── SendFailedError
    │   ├── RequestTimeoutError (TimeoutError)
    │   ├── AlreadyStartedError
    │   └── NoRouteError
    └── MQBrokerError
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class GantrymqError(Exception):
    """The base class of all errors that gantrymq raises on purpose. They can be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[GantrymqError], args: tuple[Any, ...], state: dict[str, Any]) -> GantrymqError:
    """Restore a pickled error without its __init__, whose parameters are the parts of the text."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def system_reason(error: OSError | UnicodeError) -> str:
    """The operating system's text of an error, without the address that asyncio adds to it.

    The numbers of other classes (name resolution, TLS) are not those of the operating system, so their texts count.
    """
    if isinstance(error, UnicodeError):
        return str(error)
    if error.errno is not None and type(error) is type(OSError(error.errno, "")):
        return os.strerror(error.errno)
    return error.strerror or str(error)


class ConfigError(GantrymqError):
    """A setting has a value that is not allowed.

    ``key`` is RocketMQ's key, ``value`` the given value, ``allowed`` describes the allowed values.
    """

    def __init__(self, key: str, value: object, allowed: str) -> None:
        super().__init__(f"{key}={value!r} is not allowed: {allowed}")
        self.key, self.value, self.allowed = key, value, allowed


class NotHonouredError(GantrymqError):
    """A configuration or a store asks for what gantrymq does not do; nothing was touched.

    ``name`` is the key, path or topic under which it can be accepted if it ``is_acceptable``, ``more`` the number of
    further reasons.
    """

    def __init__(self, name: str, reason: str, more: int = 0, *, is_acceptable: bool = True) -> None:
        others = f" ({more} more: gantrymq store preflight lists all)" if more else ""
        acceptance = f", or accept it with acceptWithoutEffect={name}" if is_acceptable else ""
        super().__init__(f"{reason}{acceptance}{others}")
        self.name, self.reason, self.more, self.is_acceptable = name, reason, more, is_acceptable

    @property
    def while_running(self) -> str:
        """The text for a change while a server runs, when nothing can be accepted."""
        acceptance = f"; only a start can accept it (acceptWithoutEffect={self.name})"
        return f"{self.reason}{acceptance if self.is_acceptable else ''}"


class AccessError(GantrymqError):
    """A user or a policy that is not accepted, or a change that its sender may not make. No text shows a password."""


class KernelsError(GantrymqError):
    """The compiled kernels are missing, are for another kind of processor, or cannot be built."""


class StoreError(GantrymqError):
    """The base class of errors about a store directory; ``path`` is the file or directory."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = Path(path), reason


class NotAStoreError(StoreError):
    """The directory does not contain a RocketMQ store."""


class StoreLockedError(StoreError):
    """Another process (or another MessageStore of this one) has the store open for writing."""


class StoreClosedError(StoreError):
    """A method of a closed store was called."""


class StoreBehindError(StoreError):
    """The dispatcher does not catch up with the log, for example because the disk is stuck; nothing was changed."""


class StorePermissionError(StoreError):
    """The file system denies access to a file of the store."""


class UnusableFileError(StoreError):
    """Neither a small file nor its backup has valid contents; ``reason`` is about the file itself."""


class WrongFileSizeError(StoreError):
    """A file has another size than its siblings or the configuration; the load is refused and nothing changes."""

    def __init__(self, path: str | Path, size_bytes: int, expected: str) -> None:
        super().__init__(path, f"is {size_bytes} bytes long, expected {expected}")
        self.size_bytes = size_bytes


class MissingFileError(StoreError):
    """``count`` files are missing between two others; ``path`` is the first, [begin, end) their offsets."""

    def __init__(self, path: str | Path, count: int, begin: int, end: int, remedy: str) -> None:
        more = f", and {count - 1} more after it" if count > 1 else ""
        super().__init__(path, f"is missing{more}: no file holds offsets {begin} to {end}; {remedy}")
        self.count, self.begin, self.end = count, begin, end


class DuplicateFileError(StoreError):
    """A file of the commit log is in two of its directories; ``path`` is the one that is not used."""

    def __init__(self, path: str | Path, other: str | Path, remedy: str) -> None:
        super().__init__(path, f"is there twice, also as {other}; move one of them away, or {remedy}")


class MisfiledQueueError(StoreError):
    """A file of a consume queue holds another queue's entries; an open store would deliver that queue's messages."""


class MissingLogError(StoreError):
    """Files of the commit log are missing that the rest of the store points into; ``path`` is the first of them.

    Opening the store for writing would drop what points into them, so it needs an explicit setting.
    """


class MissingLogBeginError(MissingLogError):
    """A directory of the commit log has no file, and the oldest files are missing although they are not expired.

    ``seen`` is the text without the advice.
    """

    def __init__(self, path: str | Path, seen: str, advice: str = "") -> None:
        super().__init__(path, f"{seen}; {advice}" if advice else seen)
        self.seen = seen


class MissingLogEndError(MissingLogError):
    """The newest files of the commit log are missing: queues or checkpoint point past its last file.

    A recovery cuts what points there. ``reached`` is the former end of the log.
    """

    def __init__(self, path: str | Path, reason: str, reached: int) -> None:
        super().__init__(path, reason)
        self.reached = reached


class AmbiguousGeometryError(StoreError):
    """The files' geometry can be read in more than one way; ``keys`` names the settings that decide."""

    def __init__(self, path: str | Path, candidates: Sequence[tuple[int, int]], keys: Sequence[str]) -> None:
        shown = ", ".join(f"{keys[0]}={a} {keys[1]}={b}" for a, b in list(candidates)[:4])
        more = f" and {len(candidates) - 4} more" if len(candidates) > 4 else ""
        hint = " ".join(f"--set {key}=…" for key in keys)
        super().__init__(path, f"its geometry is ambiguous ({shown}{more}); say which with {hint}")
        self.candidates, self.keys = list(candidates), list(keys)


class CorruptRecordError(StoreError):
    """A record cannot be read. ``offset`` is its physical offset, ``reason`` what is wrong."""

    def __init__(self, path: str | Path, offset: int, reason: str) -> None:
        super().__init__(path, f"no readable record at offset {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class DiskError(StoreError):
    """The disk could not read or write; ``reason`` is the operating system's text.

    ``position`` is the first byte of the file that could not be read; None if it is not known.
    """

    def __init__(self, path: str | Path, reason: str, position: int | None = None) -> None:
        super().__init__(path, reason if position is None else f"cannot be read at byte {position}: {reason}")
        self.position, self.cause = position, reason


class SyncFailedError(DiskError):
    """A sync failed: it is unknown which of the written bytes are durable.

    A later sync may succeed without them, so everything written before counts as possibly lost.
    """


class NotInPlaceError(SyncFailedError):
    """A file or directory of an open store was removed, replaced or cut by another program.

    Later writes to it are lost, although every sync succeeds.
    """

    def __init__(self, path: str | Path, what: str) -> None:
        super().__init__(path, f"{what} by another program while the store had it open")


class DiskFullError(StoreError):
    """The file system has no room for ``needed_bytes`` more."""

    def __init__(self, path: str | Path, needed_bytes: int) -> None:
        super().__init__(path, f"no room on the disk for {needed_bytes} more bytes")
        self.needed_bytes = needed_bytes


class NoRoomError(DiskFullError):
    """The output of a tool certainly does not fit onto the disk; nothing was written."""

    def __init__(self, path: str | Path, needed_bytes: int, reason: str) -> None:
        StoreError.__init__(self, path, reason)
        self.needed_bytes = needed_bytes


class FilterSyntaxError(GantrymqError):
    """An SQL92 expression cannot be parsed, or is above a limit."""


class ReceiptHandleError(GantrymqError):
    """The receipt handle of a popped message, or the offsets beside it, are malformed."""


class RemotingError(GantrymqError):
    """The base class of errors of RocketMQ's remoting protocol."""


class RemotingCommandError(RemotingError):
    """Invalid bytes, or a command without a required field; the connection or the request is refused."""


class RemotingConnectError(RemotingError, ConnectionError):
    """There is no connection to ``address``, or it broke before the answer. Also a ConnectionError."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address


class RemotingTimeoutError(RemotingError, TimeoutError):
    """``address`` did not answer within ``timeout_ms``; the request may have been executed. Also a TimeoutError."""

    def __init__(self, address: str, timeout_ms: int) -> None:
        super().__init__(f"{address}: no answer within {timeout_ms} ms")
        self.address, self.timeout_ms = address, timeout_ms


class RemotingTooMuchRequestError(RemotingError):
    """Too many requests wait for an answer."""


class HAFrameError(GantrymqError):
    """The peer of a replication connection sent bytes that cannot be a frame of RocketMQ's HA service."""


class LogCopyError(GantrymqError):
    """A copy of a master's log cannot go on. ``state`` names the reason; what was appended before is checked."""

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(f"{state}: {reason}")
        self.state, self.reason = state, reason


class ArchiveError(GantrymqError):
    """An archive cannot be written, extended, checked or restored. ``location`` is the archive, or a file of it."""

    def __init__(self, location: str, reason: str) -> None:
        super().__init__(f"{location}: {reason}")
        self.location, self.reason = location, reason


class MQClientError(GantrymqError):
    """A client cannot do what was asked, for a reason of its own (MQClientException).

    ``response_code`` is the number with which a broker refused before that, None if none did.
    """

    response_code: int | None = None


class SendFailedError(MQClientError):
    """All attempts of a send failed. ``response_code`` is that of the last broker that refused one of them.

    ``is_refused`` says that brokers refused every attempt. Otherwise the message may have been stored.
    """

    def __init__(self, text: str, response_code: int | None, *, is_refused: bool) -> None:
        super().__init__(text)
        self.response_code, self.is_refused = response_code, is_refused


class RequestTimeoutError(MQClientError, TimeoutError):
    """No reply to a request came in time; the request may have been processed. Also a TimeoutError.

    ``timeout_ms`` is the time limit, ``topic`` that of the request. (RequestTimeoutException)
    """

    def __init__(self, topic: str, timeout_ms: int, sent: str) -> None:
        super().__init__(f"no reply to a request of topic {topic} within {timeout_ms} ms; {sent}")
        self.topic, self.timeout_ms = topic, timeout_ms


class AlreadyStartedError(MQClientError):
    """``start()`` was called on a consumer that runs or is closed; it stays as it is."""


class NoRouteError(MQClientError):
    """The name server knows no broker with the topic, or no such broker.

    A broker that restarts is unknown for a moment, so a caller that knew it may retry.
    """


class MQBrokerError(GantrymqError):
    """A broker or a name server refused a request (MQBrokerException).

    ``response_code`` is RocketMQ's number, ``remark`` its text.
    """

    def __init__(self, address: str, response_code: int, name: str, remark: str) -> None:
        super().__init__(f"{address}: CODE: {response_code} ({name})  DESC: {remark}")
        self.address, self.response_code, self.remark = address, response_code, remark
