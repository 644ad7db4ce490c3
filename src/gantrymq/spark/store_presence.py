"""Is the store there as a whole? A log or queues that are missing beside the rest are an error, not an empty store."""

from __future__ import annotations

from collections.abc import Iterator

from gantrymq.errors import StoreError
from gantrymq.format.checkpoint import decode_checkpoint
from gantrymq.format.names import CHECKPOINT, COMMIT_LOG, CONSUME_QUEUE
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.spark.log_file import LogFile
from gantrymq.spark.places import Place, content_of, entries_of, log_files
from gantrymq.spark.remote_store import OffsetFile, files_in
from gantrymq.store.queue_names import queue_id_of


def require_log(place: Place) -> None:
    """Raise StoreError where a store has no log file though its checkpoint or its queues know of messages."""
    log = place / COMMIT_LOG
    if log_files(log):
        return
    told = decode_checkpoint(content_of(place / CHECKPOINT))
    if told.physic_msg_timestamp_ms > 0 or told.confirm_phy_offset > 0:
        witness = "the checkpoint says that there are messages"
    elif (queue := next(_queues_with_units(place), None)) is not None:
        witness = f"{queue} holds units"
    else:
        return
    advice = "mount the disk of the log, or give store.storePathCommitLog"
    reason = f"is missing or has no log file, but {witness}; {advice}"
    raise StoreError(str(log), reason)


def _queues_with_units(place: Place) -> Iterator[Place]:
    root = place / CONSUME_QUEUE
    for topic in entries_of(root) or ():
        for queue in entries_of(root / topic.base_name) or ():
            directory = root / topic.base_name / queue.base_name
            if queue_id_of(queue.base_name) is not None and any(map(_has_unit, files_in(directory)[:1])):
                yield directory


def _has_unit(file: OffsetFile) -> bool:
    if file.size_bytes < UNIT_SIZE:
        return False
    with LogFile(file.place) as opened:
        return any(opened.read_readable(0, UNIT_SIZE))
