"""Every exception of gantrymq, under one root.

Expected outcomes of a put or a get are statuses (``gantrymq.model.status``); what stands here are conditions
that end the work. Each carries what a person needs to act on it, and its text is one line.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


class GantrymqError(Exception):
    """The root of all errors that gantrymq raises on purpose. Each can be pickled, to cross to another process."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[GantrymqError], args: tuple[Any, ...], state: dict[str, Any]) -> GantrymqError:
    """A pickled error, without its __init__: that takes what the text was made of."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigError(GantrymqError):
    """A setting has a value that is not allowed.

    ``key`` is RocketMQ's key, ``value`` what was given, ``allowed`` says what would be right.
    """

    def __init__(self, key: str, value: object, allowed: str) -> None:
        super().__init__(f"{key}={value!r} is not allowed: {allowed}")
        self.key, self.value, self.allowed = key, value, allowed


class KernelsError(GantrymqError):
    """The compiled kernels are missing, are for another kind of processor, or cannot be built."""


class StoreError(GantrymqError):
    """The root of what can be wrong with a store directory; ``path`` is the file or directory meant."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = Path(path), reason


class NotAStoreError(StoreError):
    """The directory holds no RocketMQ store."""


class StoreLockedError(StoreError):
    """Another process (or another MessageStore of this one) has the store open for writing."""


class StoreClosedError(StoreError):
    """The store was closed, and something was asked of it afterwards."""


class StoreBehindError(StoreError):
    """The dispatcher does not catch up with the log, as where the disk stands still; nothing was changed."""


class StorePermissionError(StoreError):
    """The file system does not let us read or write a file of the store."""


class UnusableFileError(StoreError):
    """Neither a small file nor the backup beside it holds what it should; ``reason`` is what the first lacks."""


class WrongFileSizeError(StoreError):
    """A file has another size than its siblings or the configuration say; the load is refused, nothing changes."""

    def __init__(self, path: str | Path, size_bytes: int, expected: str) -> None:
        super().__init__(path, f"is {size_bytes} bytes long, expected {expected}")
        self.size_bytes = size_bytes


class MissingFileError(StoreError):
    """``count`` files are missing between two others; ``path`` is the first of them, [begin, end) its address space."""

    def __init__(self, path: str | Path, count: int, begin: int, end: int, remedy: str) -> None:
        more = f", and {count - 1} more after it" if count > 1 else ""
        super().__init__(path, f"is missing{more}: no file holds offsets {begin} to {end}; {remedy}")
        self.count, self.begin, self.end = count, begin, end


class DuplicateFileError(StoreError):
    """A file of the commit log is in two of its directories; ``path`` is the one that is left aside."""

    def __init__(self, path: str | Path, other: str | Path, remedy: str) -> None:
        super().__init__(path, f"is there twice, also as {other}; move one of them away, or {remedy}")


class MisfiledQueueError(StoreError):
    """A file of a consume queue holds the entries of another one; to open the store would deliver its messages."""


class MissingLogError(StoreError):
    """Files of the commit log are missing that the rest of the store knows of; ``path`` is the first of them.

    To open the store for writing would drop what points into them, so that it is refused without an explicit setting.
    """


class MissingLogBeginError(MissingLogError):
    """A directory of the commit log holds no file, and the oldest files of the log are missing, by their age.

    ``seen`` says so, without the advice.
    """

    def __init__(self, path: str | Path, seen: str, advice: str = "") -> None:
        super().__init__(path, f"{seen}; {advice}" if advice else seen)
        self.seen = seen


class MissingLogEndError(MissingLogError):
    """The newest files of the commit log are missing: queues or checkpoint lead behind the end of its last file.

    A recovery cuts what leads there. ``reached`` is how far the log reached.
    """

    def __init__(self, path: str | Path, reason: str, reached: int) -> None:
        super().__init__(path, reason)
        self.reached = reached


class AmbiguousGeometryError(StoreError):
    """The files allow more than one reading of their geometry; ``keys`` names the settings that decide."""

    def __init__(self, path: str | Path, candidates: Sequence[tuple[int, int]], keys: Sequence[str]) -> None:
        shown = ", ".join(f"{keys[0]}={a} {keys[1]}={b}" for a, b in list(candidates)[:4])
        more = f" and {len(candidates) - 4} more" if len(candidates) > 4 else ""
        hint = " ".join(f"--set {key}=…" for key in keys)
        super().__init__(path, f"its geometry is ambiguous ({shown}{more}); say which with {hint}")
        self.candidates, self.keys = list(candidates), list(keys)


class CorruptRecordError(StoreError):
    """A record cannot be read. ``offset`` is its physical offset, ``reason`` what is wrong with it."""

    def __init__(self, path: str | Path, offset: int, reason: str) -> None:
        super().__init__(path, f"no readable record at offset {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class DiskError(StoreError):
    """The disk could not read or write; ``reason`` is what the operating system says.

    ``position`` is the first byte of the file that could not be read, None where that is not known.
    """

    def __init__(self, path: str | Path, reason: str, position: int | None = None) -> None:
        super().__init__(path, reason if position is None else f"cannot be read at byte {position}: {reason}")
        self.position, self.cause = position, reason


class SyncFailedError(DiskError):
    """The disk could not make durable what was written, and nobody knows what of it is there.

    A later sync may well succeed without it, so after this nothing that was written before can be vouched for.
    """


class NotInPlaceError(SyncFailedError):
    """A file or directory of an open store was removed, replaced or cut by another program.

    What is written to it afterwards is lost, though every sync succeeds.
    """

    def __init__(self, path: str | Path, what: str) -> None:
        super().__init__(path, f"{what} by another program while the store had it open")


class DiskFullError(StoreError):
    """The file system has no room for ``needed_bytes`` more."""

    def __init__(self, path: str | Path, needed_bytes: int) -> None:
        super().__init__(path, f"no room on the disk for {needed_bytes} more bytes")
        self.needed_bytes = needed_bytes


class NoRoomError(DiskFullError):
    """What a tool would write certainly does not fit onto the disk; it has written nothing."""

    def __init__(self, path: str | Path, needed_bytes: int, reason: str) -> None:
        StoreError.__init__(self, path, reason)
        self.needed_bytes = needed_bytes


class RemotingError(GantrymqError):
    """The root of what can go wrong between two ends of RocketMQ's remoting protocol."""


class RemotingCommandError(RemotingError):
    """Bytes that are no command, or a command without a field it needs; the connection or the request is refused."""


class RemotingConnectError(RemotingError, ConnectionError):
    """No connection to ``address``, or it broke before the answer came. It is a ConnectionError, too."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address


class RemotingTimeoutError(RemotingError, TimeoutError):
    """``address`` did not answer within ``timeout_ms``. What was asked for may have been done all the same.

    It is a TimeoutError, too.
    """

    def __init__(self, address: str, timeout_ms: int) -> None:
        super().__init__(f"{address}: no answer within {timeout_ms} ms")
        self.address, self.timeout_ms = address, timeout_ms


class RemotingTooMuchRequestError(RemotingError):
    """More requests wait for an answer than are allowed to."""


class MQClientError(GantrymqError):
    """A client cannot do what it was asked for, and no broker was to blame (MQClientException)."""


class AlreadyStartedError(MQClientError):
    """A consumer that runs, or that was closed, was started once more; it stays as it is."""


class NoRouteError(MQClientError):
    """By what the name server knows now, no broker has the topic, or there is no such broker.

    One that is started again is not there for a moment, so who has seen it there may ask once more.
    """


class MQBrokerError(GantrymqError):
    """A broker or a name server refused (MQBrokerException).

    ``response_code`` is RocketMQ's number, ``remark`` its text.
    """

    def __init__(self, address: str, response_code: int, name: str, remark: str) -> None:
        super().__init__(f"{address}: CODE: {response_code} ({name})  DESC: {remark}")
        self.address, self.response_code, self.remark = address, response_code, remark
