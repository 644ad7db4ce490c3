"""The summary of an archive, ``archive.json``: each file with its size and SHA-256, and what the log in it is.

It is the last file that a round replaces before it removes ``abort``. Without ``abort``, an archive has exactly the
files of its summary. With a key the summary carries an HMAC-SHA256 over all of it, and so over all files.

Thread rule: plain values.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from gantrymq.errors import ArchiveError, ConfigError
from gantrymq.format.names import ARCHIVE_SUMMARY, COMMIT_LOG, offset_name, parse_offset_name

NAME = ARCHIVE_SUMMARY
MAX_BYTES = 1 << 30
_VERSION = 1
_MIN_KEY_BYTES = 16
_PREFIX = f"{COMMIT_LOG}/"


class ArchivedFile(NamedTuple):
    """A file: its length in bytes and the SHA-256 of its content in hexadecimal digits."""

    size: int
    sha256: str


class DamagedPart(NamedTuple):
    """Bytes [begin, end) of the log without a whole record, which the source had as well."""

    name: str
    begin: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    """What an archive has. ``files`` maps paths in it to files.

    ``log_size``, ``queue_size``, ``index_slots`` and ``index_entries`` are the store's file sizes. The log is that
    from ``min_offset`` to ``max_offset``. ``edges`` has a checksum of both ends of each log file, by which the source
    is recognized. ``stored_ms`` is the store time of the newest record; ``marks`` are the store times and offsets of
    some records of the ten minutes before it. ``made_ms`` is the time of the summary.
    """

    log_size: int
    queue_size: int
    index_slots: int
    index_entries: int
    min_offset: int = 0
    max_offset: int = 0
    stored_ms: int = 0
    made_ms: int = 0
    files: Mapping[str, ArchivedFile] = field(default_factory=dict)
    edges: Mapping[str, str] = field(default_factory=dict)
    damage: tuple[DamagedPart, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()

    @property
    def log_files(self) -> list[int]:
        """The offsets at which the log files begin, sorted."""
        return sorted(base for name in self.files if (base := log_base(name)) is not None)

    def encode(self, key: bytes | None) -> bytes:
        """The bytes of the file, signed if there is a ``key``."""
        fields: dict[str, Any] = {"version": _VERSION, **asdict(self)}
        fields["files"] = {name: list(file) for name, file in sorted(self.files.items())}
        fields["damage"] = [list(part) for part in self.damage]
        if key is not None:
            fields["signature"] = _signature(fields, key)
        return json.dumps(fields, indent=1, sort_keys=True).encode() + b"\n"


def decode_summary(raw: bytes, key: bytes | None, location: str) -> ArchiveSummary:
    """Read a summary. With a ``key`` its signature must be right. ``location`` names the archive in errors.

    Raises ArchiveError.
    """
    try:
        fields = json.loads(raw)
        version, signature = fields.pop("version"), fields.pop("signature", None)
        if version != _VERSION:
            raise ArchiveError(location, f"{NAME} has version {version}, and this gantrymq reads version {_VERSION}")
        expected = _signature({"version": version, **fields}, key) if key is not None else ""
        files = {name: ArchivedFile(*file) for name, file in fields["files"].items()}
        damage = tuple(DamagedPart(*part) for part in fields["damage"])
        marks = tuple((int(stored_ms), int(offset)) for stored_ms, offset in fields["marks"])
        summary = replace(ArchiveSummary(**fields), files=files, damage=damage, marks=marks)
        _check(summary)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArchiveError(location, f"{NAME} is not the summary of an archive: {error}") from None
    if key is not None and not hmac.compare_digest(expected.encode(), str(signature).encode()):
        reason = "is not signed" if signature is None else "is not signed with this key, or was changed"
        raise ArchiveError(location, f"{NAME} {reason}")
    return summary


def is_signed(raw: bytes) -> bool:
    """Whether a summary carries a signature."""
    try:
        return "signature" in json.loads(raw)
    except ValueError:
        return False


def read_key(path: Path | None) -> bytes | None:
    """The key in a file, without line ends after it; None without a file. Raises ConfigError, OSError."""
    if path is None:
        return None
    key = path.read_bytes().rstrip(b"\r\n")
    if len(key) < _MIN_KEY_BYTES:
        raise ConfigError("--sign-key", str(path), f"a file of at least {_MIN_KEY_BYTES} bytes")
    return key


def log_base(name: str) -> int | None:
    """The offset at which the log file with this path begins; None for another file."""
    return parse_offset_name(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None


def log_name(base: int) -> str:
    """The path of the log file that begins at ``base``."""
    return f"{_PREFIX}{offset_name(base)}"


def _check(summary: ArchiveSummary) -> None:
    """Raise ValueError unless the log files follow each other, and no path leads out of the archive."""
    for name, file in summary.files.items():
        if name.startswith("/") or {"", ".", ".."} & set(name.split("/")) or "\0" in name:
            raise ValueError(f"{name!r} is no path in an archive")
        if type(file.size) is not int or file.size < 0 or type(file.sha256) is not str:
            raise ValueError(f"{name} has no size and checksum")
    numbers = (summary.log_size, summary.queue_size, summary.min_offset, summary.max_offset)
    if any(type(number) is not int or number < 0 for number in numbers) or not summary.log_size:
        raise ValueError("its sizes and offsets are no numbers")
    expected = list(range(summary.min_offset, summary.max_offset, summary.log_size))
    if summary.log_files != expected:
        raise ValueError("its log files do not follow each other")


def _signature(fields: Mapping[str, Any], key: bytes) -> str:
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    return f"hmac-sha256:{hmac.new(key, canonical, 'sha256').hexdigest()}"
