"""Where the next start of a store would cut its log: a recovery ends the log at the first damage that it meets.

Whole records behind it, and their messages, are gone then. A rebuild that gives them entries has to say so.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.format.record import CheckCRC, Layout, decode_record
from gantrymq.fs.api import FileSystem
from gantrymq.store.commit_log import CommitLog
from gantrymq.store.mapped_file import MappedFile
from gantrymq.store.paths import StorePaths
from gantrymq.store.recover_start import FirstRecord, StartRule
from gantrymq.tools.loss import LostRange


def next_start_cuts_at(
    fs: FileSystem,
    paths: StorePaths,
    config: MessageStoreConfig,
    page: Checkpoint,
    queues_max_phy_offset: int,
    gaps: Sequence[LostRange],
    *,
    last_exit_ok: bool,
) -> int | None:
    """Where the log will end; None where the start begins behind all damage.

    ``page`` and ``queues_max_phy_offset`` are what checkpoint and queues will say then; ``gaps`` are the places of the
    log without a whole record, in front of its end.
    """
    if not gaps:
        return None
    log = CommitLog(fs, paths, config.mapped_file_size_commit_log)
    log.load()
    try:
        rule = StartRule(config, page, queues_max_phy_offset, last_exit_ok)

        def first_record(file: MappedFile) -> FirstRecord | None:
            layout = log.check(file.file_from_offset, CheckCRC.BODY)
            if not isinstance(layout, Layout):
                return None
            message = decode_record(file.array.data, 0, layout)
            return FirstRecord(message.phy_offset, message.store_timestamp_ms)

        files = log.queue.files
        start = files[rule.choose(files, first_record)].file_from_offset
    finally:
        log.close()
    return min((one.start for one in gaps if one.start >= start and not one.has_records), default=None)
