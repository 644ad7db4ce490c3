"""A closed store with little in its last file, looked through in plain Python.

What ``info`` shows is what a recovery would leave, and a recovery loads the kernels, which takes longer than all the
rest of ``info``. Where a recovery would change nothing that can be seen in a moment; where it would, or where a
moment is not enough, the answer is None and the caller asks :class:`gantrymq.store.reader.StoreReader`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.record import CheckCRC, Layout, RecordStop, crc_matches, decode_record
from gantrymq.fs.overlay import OverlayFileSystem
from gantrymq.model.flags import is_consumable
from gantrymq.store.commit_log import CommitLog
from gantrymq.store.geometry import require_store
from gantrymq.store.mapped_file import MappedFile
from gantrymq.store.opening import StoreParts, load_parts
from gantrymq.store.paths import StorePaths
from gantrymq.store.recover_start import FirstRecord, StartRule

MOST_RECORDS = 2_000


def settled_parts(path: Path, config: MessageStoreConfig, given: Collection[str]) -> StoreParts | None:
    """The parts of the store as a recovery would leave them, or None. Raises what ``StoreReader.open`` raises."""
    fs = OverlayFileSystem()
    require_store(fs, path)
    parts = load_parts(fs, StorePaths(path), config, given)
    if not parts.last_exit_ok or not parts.log.queue.files or _is_special(parts.config):
        return None
    parts.queues.recover(wipe=False)
    end = _end_of_records(parts)
    if end is None or parts.queues.max_phy_offset > end:
        return None
    parts.log.queue.truncate_dirty(end, wipe=False)
    parts.queues.correct_min_offset(parts.log.min_offset)
    return parts


def _is_special(config: MessageStoreConfig) -> bool:
    """Whether a setting lets the recovery judge records in a way that is not repeated here."""
    return (
        config.duplication_enable
        or config.check_commit_log_offset_on_recover
        or (config.check_crc_on_recover and config.force_verify_prop_crc)
    )


def _end_of_records(parts: StoreParts) -> int | None:
    """Where the records end, if all from the start file on are whole, in their queues, and few."""
    log, check = parts.log, CheckCRC.BODY if parts.config.check_crc_on_recover else CheckCRC.OFF
    files = log.queue.files
    rule = StartRule(parts.config, parts.checkpoint.page, parts.queues.max_phy_offset, last_exit_ok=True)
    start = files[rule.choose(files, lambda file: _first_record(log, file, check))].file_from_offset
    for count, (offset, found, file) in enumerate(log.walk(start, log.max_offset)):
        if found is RecordStop.ZEROS:
            return offset
        if isinstance(found, Layout) and file is not None and count < MOST_RECORDS:
            if not _is_settled(parts, file, offset, found, check):
                return None
        elif found is not RecordStop.BLANK:
            return None
    return None


def _is_settled(parts: StoreParts, file: MappedFile, offset: int, layout: Layout, check: CheckCRC) -> bool:
    buffer, position = file.array.data, offset - file.file_from_offset
    if not crc_matches(buffer, position, layout, check):
        return False
    message = decode_record(buffer, position, layout)
    queue = parts.queues.get(message.topic, message.queue_id)
    in_queue = queue is not None and queue.max_physic_offset >= offset + layout.size
    return in_queue or not is_consumable(message.sys_flag)


def _first_record(log: CommitLog, file: MappedFile, check: CheckCRC) -> FirstRecord | None:
    layout = log.check(file.file_from_offset, check)
    if not isinstance(layout, Layout):
        return None
    message = decode_record(file.array.data, 0, layout)
    return FirstRecord(message.phy_offset, message.store_timestamp_ms)
