"""Verifies the small files: the checkpoint, the configuration JSON, and names that do not belong to a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple
from itertools import islice
from pathlib import Path
from typing import Any

from gantrymq.config.guards import Subject
from gantrymq.errors import DiskError, GantrymqError, NotAStoreError, StoreError
from gantrymq.format import names
from gantrymq.format.checkpoint import CHECKPOINT_SIZE, Checkpoint, decode_checkpoint, encode_checkpoint
from gantrymq.fs.api import FileSystem
from gantrymq.fs.reads import read_part
from gantrymq.fs.replaced_file import MAX_BYTES
from gantrymq.model.fastjson import repeated_keys
from gantrymq.store.checkpoint import CLOCKS_DIFFER_MS
from gantrymq.store.config_files import parse_config, table_problems
from gantrymq.store.contents import content_reasons
from gantrymq.store.entries import Use, is_for
from gantrymq.store.lost_routes import TOPICS, lost_routes
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.group_offsets import GroupAhead
from gantrymq.tools.findings import RECOVER, Finding, FindingKind, Severity
from gantrymq.tools.read.quarantine_list import LIST

TableDecoders = Mapping[str, Callable[[dict[str, Any]], None]]
_CORRECT = "correct it, or move it away"
_CONFIG_ENDINGS = (".json", ".json.bak")


def is_known_name(name: str) -> bool:
    """Whether a store of RocketMQ can have an entry of this name in its directory."""
    return is_for(name, Use.KNOWN)


def check_names(fs: FileSystem, paths: StorePaths) -> Iterator[Finding]:
    """Report entries of the store's directory that belong to no store."""
    for entry in fs.scan(paths.root):
        if not entry.is_directory and is_for(entry.name, Use.DIRECTORY):
            text = "is a file where a directory is needed; move it away"
            yield Finding(FindingKind.FOREIGN_FILE, Path(entry.name), text)
        # The root of an ext4 file system has a directory of this name, too.
        is_quarantine = entry.name == names.LOST_FOUND and _has_list(fs, paths.root / entry.name)
        if not (is_known_name(entry.name) or is_quarantine):
            yield Finding(FindingKind.FOREIGN_FILE, Path(entry.name), "is not part of a RocketMQ store", Severity.NOTE)


def _has_list(fs: FileSystem, directory: Path) -> bool:
    try:
        return fs.exists(directory / LIST)
    except StoreError:  # only root may read that of a file system
        return False


def check_contents(fs: FileSystem, paths: StorePaths) -> Iterator[Finding]:
    """Report contents that are not honoured here, so that other findings are not taken for damage."""
    try:
        reasons = content_reasons(fs, paths)
    except StoreError:  # another check reports the file
        return
    for reason in reasons:
        path = Path(reason.name) if reason.subject is Subject.PATH else Path(names.CONFIG) / TOPICS
        yield Finding(FindingKind.NOT_HONOURED, path, reason.line, Severity.NOTE)


def check_config(fs: FileSystem, paths: StorePaths, decoders: TableDecoders) -> Iterator[Finding]:
    """Report JSON files of the configuration that cannot be read, or that their decoder rejects.

    A power cut can leave a blank file; the broker then uses its .bak.
    """
    for entry in fs.scan(paths.config):
        if entry.is_directory or not entry.name.endswith(_CONFIG_ENDINGS):
            continue
        path = Path(names.CONFIG) / entry.name
        if entry.size_bytes > MAX_BYTES:
            text = f"is {entry.size_bytes} bytes long, more than the {MAX_BYTES} that a broker reads; {_CORRECT}"
            yield Finding(FindingKind.CONFIG_JSON, path, text)
            continue
        try:
            raw = read_part(fs, paths.config / entry.name, 0, entry.size_bytes)
            if not raw.strip(b"\0 \t\r\n"):
                text = "is blank, as a power cut leaves it; a broker uses its .bak"
                yield Finding(FindingKind.CONFIG_JSON, path, text, Severity.NOTE)
                continue
            value = parse_config(raw)
        except (OSError, StoreError, ValueError) as error:
            yield Finding(FindingKind.CONFIG_JSON, path, f"is no JSON object: {error}; {_CORRECT}")
            continue
        yield from _check_table(path, raw, value, decoders.get(entry.name.removesuffix(".bak")))


def _check_table(
    path: Path, raw: bytes, value: dict[str, Any], decode: Callable[[dict[str, Any]], None] | None
) -> Iterator[Finding]:
    """Report the first problem of a table, and the number of further ones."""
    problems = table_problems(path.name, value)
    first_problems = list(islice(problems, 1))
    more = sum(1 for _ in problems)
    problem = f"{first_problems[0]}{f' ({more} more like this)' * bool(more)}" if first_problems else ""
    try:
        if decode is not None and value:
            decode(value)
    except (ValueError, GantrymqError) as error:
        text = f"does not contain its table, so a broker does not start: {problem or error}; {_CORRECT}"
        yield Finding(FindingKind.CONFIG_JSON, path, text, count=1 + more)
        return
    repeated = repeated_keys(raw.decode("utf-8"))
    if repeated:
        keys = ", ".join(json.dumps(key, ensure_ascii=False) for key in repeated[:3])
        problem = problem or f"has a key twice, of which the last value counts ({keys})"
    if problem:
        yield Finding(FindingKind.CONFIG_JSON, path, f"has an impossible value: {problem}; {_CORRECT}", count=1 + more)


def check_routes(fs: FileSystem, paths: StorePaths) -> Iterator[Finding]:
    """Report a lost table of topics."""
    try:
        text = lost_routes(fs, paths)
    except (OSError, StoreError):
        return  # see_config reports the file
    if text is not None:
        yield Finding(FindingKind.TOPICS_WITHOUT_ROUTE, Path(names.CONFIG), text, Severity.NOTE)


def check_groups(ahead: Iterable[GroupAhead], *, is_closed: bool) -> Iterator[Finding]:
    """Report consumer groups and delay levels that would skip the next messages of their queue.

    Every start of RocketMQ corrects a delay level. In a store that was not closed the queue may have lost its end, so
    this is a note.
    """
    for group, end in ahead:
        text = f"{group.name} is at offset {group.offset} of a queue that ends at {end}, and would skip the next "
        text += f"{group.offset - end} messages; `gantrymq store recover` sets it to that end"
        level = Severity.DAMAGE if is_closed and group.group else Severity.NOTE
        path = Path(names.CONFIG) / group.file_name
        yield Finding(
            FindingKind.CONSUMER_AHEAD, path, text, level, group.topic, group.queue_id, end, count=group.offset - end
        )


def read_checkpoint(fs: FileSystem, paths: StorePaths) -> tuple[bytes | None, list[Finding]]:
    """The bytes of the checkpoint, or None if it is missing or unreadable, and a finding if it is unreadable."""
    try:
        return read_part(fs, paths.checkpoint, 0, CHECKPOINT_SIZE + 1), []
    except FileNotFoundError:
        return None, []
    except DiskError as error:
        text = f"the disk cannot read it: {error}; move it away, {RECOVER}"
        return None, [Finding(FindingKind.FILE_UNREADABLE, Path(names.CHECKPOINT), text)]
    except NotAStoreError as error:  # it is a directory
        return None, [Finding(FindingKind.CHECKPOINT_CORRUPT, Path(names.CHECKPOINT), f"{error.reason}, {RECOVER}")]


def check_checkpoint(raw: bytes | None, end_offset: int, now_ms: int, *, is_closed: bool) -> Iterator[Finding]:
    """Check the checkpoint against a log that ends at ``end_offset`` (0: it is empty), at the time ``now_ms``."""
    path = Path(names.CHECKPOINT)
    if raw is None:
        if is_closed and end_offset:
            yield Finding(
                FindingKind.CHECKPOINT_MISSING,
                path,
                f"missing; {RECOVER}",
            )
        return
    page = decode_checkpoint(raw)
    if len(raw) != CHECKPOINT_SIZE:
        size = f"is {len(raw)} bytes long" if len(raw) < CHECKPOINT_SIZE else f"is longer than {CHECKPOINT_SIZE} bytes"
        # A kill leaves an empty file that was just created.
        level = Severity.DAMAGE if raw or is_closed else Severity.NOTE
        yield Finding(FindingKind.FILE_SIZE, path, f"{size}, not {CHECKPOINT_SIZE}; {RECOVER}", level)
    elif any(number < 0 for number in astuple(page)) or raw != encode_checkpoint(page):
        yield Finding(FindingKind.CHECKPOINT_CORRUPT, path, f"negative, or bytes where zeros should be; {RECOVER}")
    for text in _future_times(page, now_ms):
        yield Finding(FindingKind.CHECKPOINT_FUTURE, path, text)
    for text in _future_offsets(page, end_offset):
        # A recovery that cuts the log sets these back.
        yield Finding(FindingKind.CHECKPOINT_FUTURE, path, text, Severity.DAMAGE if is_closed else Severity.NOTE)


def _future_times(page: Checkpoint, now_ms: int) -> Iterator[str]:
    times = {
        "physicMsgTimestamp": page.physic_msg_timestamp_ms,
        "logicsMsgTimestamp": page.logics_msg_timestamp_ms,
        "indexMsgTimestamp": page.index_msg_timestamp_ms,
    }
    yield from (
        f"{key} {value} is in the future; {RECOVER}"
        for key, value in times.items()
        if value > now_ms + CLOCKS_DIFFER_MS
    )


def _future_offsets(page: Checkpoint, end_offset: int) -> Iterator[str]:
    offsets = {"logicsPhysicalOffset": page.logics_physical_offset, "confirmPhyOffset": page.confirm_phy_offset}
    behind = {key: value for key, value in offsets.items() if value > end_offset}
    yield from (f"{key} {value} is beyond the end of the log, {end_offset}; {RECOVER}" for key, value in behind.items())
