"""The pending records of a store, divided among the partitions of a read (option ``pending``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gantrymq.clock import SystemClock
from gantrymq.errors import ConfigError
from gantrymq.spark.data_loss import report
from gantrymq.spark.pending_rows import PendingRows
from gantrymq.spark.plan.remote_store import RemoteStore
from gantrymq.spark.runs import LogRun
from gantrymq.store.reader import StoreReader
from gantrymq.tools.pending.pending import PendingMessages


def runs_with_pending(
    reader: StoreReader | RemoteStore, runs: Iterable[LogRun], *, fail_on_data_loss: bool
) -> Iterator[LogRun]:
    """The runs in which records of the store of ``reader`` are pending, each with these records.

    Raises ConfigError for a store that is not in a local directory, DataLossError if a record cannot be read.
    """
    if not isinstance(reader, StoreReader):
        raise ConfigError("pending", "true", "false for a store on another file system")
    messages = PendingMessages(reader, SystemClock().now_ms())
    rows = PendingRows.of(messages)
    losses = [f"{reader.paths.root}: {messages.unreadable} entries of waiting topics point to no readable record"]
    report(losses if messages.unreadable else [], fail=fail_on_data_loss)
    report(list(messages.problems), fail=False, allowed_by="pending")
    for run in runs:
        parts = [rows.between(piece.start, piece.stop) for piece in run.pieces]
        if any(map(len, parts)):
            yield replace(run, pending=rows.between(run.pieces[0].start, run.pieces[-1].stop))
