"""Chooses the commit log file that recovery begins with.

======  ===========  ==================================================================================
rule    last exit    the start file is
======  ===========  ==================================================================================
5.5.0   clean        the newest whose first offset is not after the last record that a queue points to
5.5.0   abnormal     the newest whose first offset ≤ checkpoint.logicsPhysicalOffset; if that is 0,
                     the newest whose first storeTimestamp ≤ checkpoint.logicsMsgTimestamp
4.x     clean        the third from the end (``recoverLastFiles``)
4.x     abnormal     the newest whose first storeTimestamp ≤ min(physic, logics) - 3 s of the checkpoint
======  ===========  ==================================================================================

With messageIndexSafe the first storeTimestamp must also be ≤ checkpoint.indexMsgTimestamp. If no file fits, recovery
begins with the first file. RocketMQ examines at most ten files, and so loses messages of larger stores whose queues are
gone; here that limit (commitLogRecoverMaxNum) is off unless it is set. Beyond RocketMQ, after an abnormal exit the file
must also not begin after the last record that a queue points to: a checkpoint that is ahead of its queues is not
believed.

Source: CommitLog.recoverNormally, recoverAbnormally and isMappedFileMatchedRecover; the articles for 4.x.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gantrymq.config.settings import MessageStoreConfig, RecoverRule
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.store.log.mapped_file import MappedFile


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """The fields of a file's first record that the choice depends on."""

    phy_offset: int
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class StartRule:
    """The choice, given what is known after queues and checkpoint are read."""

    config: MessageStoreConfig
    checkpoint: Checkpoint
    queues_max_phy_offset: int
    last_exit_ok: bool

    def choose(self, files: Sequence[MappedFile], first_record: Callable[[MappedFile], FirstRecord | None]) -> int:
        """Return the index in ``files`` (not empty) of the file to begin with.

        ``first_record`` returns a file's first record, or None if there is none.
        """
        if self.last_exit_ok and self.config.recover_rule is RecoverRule.V4:
            return max(len(files) - self.config.recover_last_files, 0)
        looked_at_most = self.config.commit_log_recover_max_num or len(files)
        lowest = max(len(files) - looked_at_most, 0)
        for index in range(len(files) - 1, lowest, -1):
            first = first_record(files[index])
            if first is not None and first.store_timestamp_ms != 0 and self._fits(first):
                return index
        return lowest

    def _fits(self, first: FirstRecord) -> bool:
        page, config = self.checkpoint, self.config
        index_counts = config.message_index_enable and config.message_index_safe
        if index_counts and first.store_timestamp_ms > page.index_msg_timestamp_ms:
            return False
        if self.last_exit_ok:
            return first.phy_offset <= self.queues_max_phy_offset
        if first.phy_offset > self.queues_max_phy_offset:
            return False
        if config.recover_rule is RecoverRule.V4:
            durable_ms = min(page.physic_msg_timestamp_ms, page.logics_msg_timestamp_ms) - 3_000
            return first.store_timestamp_ms <= max(durable_ms, 0)
        if page.logics_physical_offset > 0:
            return first.phy_offset <= page.logics_physical_offset
        return first.store_timestamp_ms <= page.logics_msg_timestamp_ms
