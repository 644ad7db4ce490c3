"""What a recovery cuts, as the account of loss that every tool gives.

A recovery ends the log at its first damage. The queues say which messages were behind that; what was not in a queue yet
is named by its place.

Thread rule: plain functions.
"""

from __future__ import annotations

from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queue import REBUILD
from gantrymq.store.recovery.recovery import RecoveryReport
from gantrymq.tools.log_claims import LogClaims
from gantrymq.tools.loss import LossAccount, LostMessages, LostRange, NotCompared, ShortQueue


def recovery_account(paths: StorePaths, report: RecoveryReport, claims: LogClaims) -> LossAccount:
    """What the store at ``paths`` does not have after the recovery; ``claims`` say how far the log reached before."""
    account, end = LossAccount(not_compared=list(claims.not_compared)), report.max_phy_offset
    account.groups_ahead = list(report.groups_ahead)
    for late in report.late_queues:
        path = paths.consume_queue / late.topic / str(late.queue_id)
        text = f"begins at offset {late.begin}, although the log has its first file; {REBUILD}"
        account.not_compared.append(NotCompared(path, text, is_damage=False))
    claim = claims.furthest
    stop = f": {report.stop_reason}" if report.stop_reason else ""
    if report.cut_bytes:
        text = f"cut behind the end of the log{stop}; store salvage of a copy made before keeps what is whole there"
        account.ranges.append(LostRange(paths.commit_log, end, end + report.cut_bytes, text))
    cut_end = end + report.cut_bytes
    if claim is not None and claim.end > cut_end:
        text = f"missing at the end of the log, which reached {claim.end} by {claim.source}"
        account.ranges.append(LostRange(paths.commit_log, cut_end, claim.end, text))
    for one in report.cut_queues:
        reason = f"behind the end of the log at {end}{stop}"
        queue = one.topic, one.queue_id
        account.messages.append(LostMessages(*queue, one.end, one.was_end, -1, -1, reason))
        account.short_queues.append(ShortQueue(*queue, one.was_end, one.end))
    return account
