"""The account of loss of one result: queues, checkpoint and index of the old store against what was made.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.names import offset_name
from gantrymq.fs.api import FileSystem
from gantrymq.store.paths import StorePaths
from gantrymq.tools.log_claims import LogClaim, furthest_claim
from gantrymq.tools.loss import LossAccount, LostRange
from gantrymq.tools.queue_account import LogExtent, QueueAccount


def take_account(
    fs: FileSystem, old: StorePaths, config: MessageStoreConfig, extent: LogExtent, roots: Sequence[StorePaths]
) -> LossAccount:
    """What the store at ``old`` said it had and queues below ``roots``, made of the log in ``extent``, do not lead to.

    ``config`` has the sizes of the old store's files. ``ranges`` of the account are those of the extent, and what is
    missing behind the log's end.
    """
    account = QueueAccount(fs, old, config.mapped_file_size_consume_queue, extent).compare(roots)
    account.ranges = sorted([*extent.lost, *missing_end(fs, old, config, extent, account)], key=lambda one: one.start)
    return account


def missing_end(
    fs: FileSystem, old: StorePaths, config: MessageStoreConfig, extent: LogExtent, account: LossAccount
) -> list[LostRange]:
    """What was behind the log's end, by the word of the queues, the checkpoint and the index."""
    by_queue = max((one.phy_end for one in account.messages), default=-1)
    claims = [LogClaim(by_queue, "the consume queues"), furthest_claim(fs, old, config)]
    end, source = max(claim for claim in claims if claim is not None)
    if end <= extent.end:
        return []
    size = config.mapped_file_size_commit_log
    path = old.commit_log / offset_name(extent.end - extent.end % size)
    return [LostRange(path, extent.end, end, f"missing at the end of the log, which reached {end} by {source}")]
