"""Logs events of the store in the broker's log."""

from __future__ import annotations

from gantrymq.ha.log_cut import Cut
from gantrymq.logs import get_logger
from gantrymq.store.deletions import DeletedQueues
from gantrymq.store.message_store import MessageStore

log = get_logger()


def log_cut(done: Cut | None) -> None:
    """Log what a slave has cut, and where it is now."""
    if done is not None:
        where, offset = str(done.directory), done.divergence.cut_offset
        log.warning("messages that the master does not have were cut", offset=offset, size=done.size_bytes, kept=where)


def log_opening(store: MessageStore) -> None:
    """Log which files of the log are missing, and what recovery has cut."""
    for note in [*store.accepted, *store.notes]:
        log.warning("files of the commit log are missing", path=str(note.path), reason=note.reason)
    for reason in store.accepted_contents:
        log.warning(f"accepted without effect: {reason.text}")
    report = store.recovery
    cut = {
        "cut_bytes": report.cut_bytes,
        "removed_files": len(report.removed_files),
        "queue_units_cut": report.queue_units_cut,
        "queues_destroyed": report.queues_destroyed,
        "index_files_dropped": len(report.index_files_dropped),
    }
    if any(cut.values()):
        is_recreated = report.index_files_dropped and sum(map(bool, cut.values())) == 1  # only the index
        log_end = {"log_ends_at": report.max_phy_offset, "stop_reason": report.stop_reason.value}
        (log.info if is_recreated else log.warning)("recovery has cut the store", **log_end, **cut)


def log_failure(service: str, error: Exception, is_final: bool) -> None:
    """Log a failure that is not a repetition. Thread rule: any thread."""
    if is_final:
        log.error(
            "the store acknowledges no more messages: stop the broker and run `gantrymq store verify`",
            service=service,
            error=str(error),
        )
    else:
        log.error("a service of the store failed, and is retried", service=service, error=str(error))


def log_deletion(topic: str, deleted: DeletedQueues) -> None:
    """Log how many queues and messages the deletion of a topic has removed."""
    if deleted.queues:
        log.warning("the queues of a topic were deleted", topic=topic, queues=deleted.queues, messages=deleted.messages)
