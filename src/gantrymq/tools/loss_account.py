"""The account of loss of one result: queues, checkpoint and index of the old store against what was made.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.names import offset_name
from gantrymq.fs.api import FileSystem
from gantrymq.store.paths import StorePaths
from gantrymq.tools.kept_units import forget_readable
from gantrymq.tools.log_claims import LogClaim, log_claims
from gantrymq.tools.loss import LossAccount, LostRange
from gantrymq.tools.queue_account import LogExtent, QueueAccount, Suspect
from gantrymq.tools.queue_files import ResultQueues, place_of_unit
from gantrymq.tools.record_lookup import RecordLookup
from gantrymq.tools.records_elsewhere import RecordsElsewhere


def take_account(
    fs: FileSystem,
    old: StorePaths,
    config: MessageStoreConfig,
    extent: LogExtent,
    log_end: int,
    roots: Sequence[StorePaths],
    lookup: RecordLookup,
) -> tuple[LossAccount, list[Suspect]]:
    """What the store at ``old`` said it had and queues below ``roots``, made of the log in ``extent``, do not lead to.

    ``config`` has the sizes of the old store's files, and ``lookup`` reads the log. Whole records go up to ``log_end``;
    those behind the end of the extent will not stay. ``ranges`` of the account are those of the extent, and what is
    missing behind its end. The suspects are units that lead to a whole record, which is not at their offset.
    """
    size = config.mapped_file_size_consume_queue
    result = ResultQueues(fs, roots, size)
    elsewhere = RecordsElsewhere(lookup, result.stands, result.has, partial(place_of_unit, fs, old.consume_queue, size))
    queues = QueueAccount(fs, old, size, extent, elsewhere)
    account = queues.compare(roots)
    account.ranges = list(extent.lost)
    forget_readable(account, result, lookup, extent.end)
    if extent.end < log_end:
        account.ranges.append(_range(old, config, extent.end, log_end, extent.behind))
    account.ranges += missing_end(fs, old, config, replace(extent, end=log_end), account)
    account.ranges.sort(key=lambda one: one.start)
    return account, queues.suspects


def missing_end(
    fs: FileSystem, old: StorePaths, config: MessageStoreConfig, extent: LogExtent, account: LossAccount
) -> list[LostRange]:
    """What was behind the log's end, by the word of the queues, the checkpoint and the index.

    The ``account`` gets what of the checkpoint and the index could not be compared.
    """
    said = log_claims(fs, old, config)
    account.not_compared += said.not_compared
    by_queue = max((one.phy_end for one in account.messages), default=-1)
    claims = [LogClaim(by_queue, "the consume queues"), said.furthest]
    end, source = max(claim for claim in claims if claim is not None)
    if end <= extent.end:
        return []
    reason = f"missing at the end of the log, which reached {end} by {source}"
    return [_range(old, config, extent.end, end, reason)]


def _range(old: StorePaths, config: MessageStoreConfig, start: int, end: int, reason: str) -> LostRange:
    base = start - start % config.mapped_file_size_commit_log
    return LostRange(old.commit_log / offset_name(base), start, end, reason)
