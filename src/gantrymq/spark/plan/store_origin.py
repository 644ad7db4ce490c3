"""Store directories as the origin of a read: their queues, and the partitions of the selected messages.

A queue that was never written has no files. The broker's ``config/topics.json`` declares it. A store without that file
has only the queues that have files.

Source: TopicConfigManager.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator

from gantrymq.errors import NotAStoreError, RemotingCommandError
from gantrymq.format.names import CONFIG
from gantrymq.model.limits import MAX_QUEUES
from gantrymq.remoting.bodies.route import PERM_READ
from gantrymq.remoting.bodies.topic import TopicConfigSerializeWrapper
from gantrymq.remoting.body import decode_body
from gantrymq.spark.data_loss import ends_before, missing, replaced, report
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.plan import log_identity
from gantrymq.spark.plan.log_order import QueueRange, after_bytes, after_rows
from gantrymq.spark.plan.origin import Extents, Marks, Offsets, QueueExtent, Resets
from gantrymq.spark.plan.partitions import plan_runs
from gantrymq.spark.plan.pending_runs import runs_with_pending
from gantrymq.spark.plan.queue_view import QueueView
from gantrymq.spark.plan.store_view import StoreView
from gantrymq.spark.runs import LogRun, split_proportionally
from gantrymq.spark.selection import RowFilter, Selection, with_namespace
from gantrymq.tools.locations import Location, content_of, find_stores
from gantrymq.tools.queue_key import QueueKey
from gantrymq.tools.read.log_fingerprint import LogState

_TOPICS = "topics.json"
_LOGGER = logging.getLogger(__name__)


def declared_queues(store: Location) -> Iterator[tuple[str, int]]:
    """(topic, queue id) of every readable queue in the configuration of the store's broker."""
    file = store / CONFIG / _TOPICS
    raw = content_of(file)
    if not raw:
        return
    try:
        topics = decode_body(TopicConfigSerializeWrapper, raw).topic_config_table
    except RemotingCommandError as error:
        _LOGGER.warning("%s cannot list its queues: %s", file, error)
        return
    for topic, config in topics.items():
        if config.perm & PERM_READ:
            for queue_id in range(min(config.read_queue_nums, MAX_QUEUES)):
                yield topic, queue_id


class StoreOrigin:
    """The stores that the options name; implements :class:`gantrymq.spark.plan.origin.Origin`."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._selection = Selection.of(options)
        self._views: dict[str, StoreView] = {}
        self._queues_by_key: dict[QueueKey, QueueView] = {}
        self._extents: Extents = {}
        self._replaced: Resets = {}
        self._known_resets: dict[QueueKey, tuple[int, dict[int, int] | None, str]] = {}
        self._has_compared = False

    def extents(self) -> Extents:
        """The selected queues now, including new stores, topics and queues. Raises DataLossError, StoreError."""
        self._refresh()
        self._queues_by_key = {}
        for broker, view in sorted(self._views.items()):
            for (topic, queue_id), queue in view.queues.items():
                shown = self._selection.shown_topic(topic)
                if shown is not None and self._selection.takes(key := QueueKey(broker, shown, queue_id)):
                    self._queues_by_key[key] = queue
                    if (topic, queue_id) in view.replaced:
                        self._replaced[key] = replaced(view.replaced[topic, queue_id])
        self._report_lost_ends()
        extents = self._without_messages()
        extents |= {key: QueueExtent(queue.min_offset, queue.max_offset) for key, queue in self._queues_by_key.items()}
        self._selection.require_assigned(extents)
        self._selection.report_missing(extents)
        self._extents = dict(sorted(extents.items()))
        return self._extents

    def _report_lost_ends(self) -> None:
        """Report a log that ends before messages that the queues of its store name.

        In a closed store this raises DataLossError, or logs it with failOnDataLoss=false. After a crash, whose recovery
        cuts data that was not flushed, it is only logged.
        """
        for broker, view in self._views.items():
            if not view.has_lost_ends:
                continue
            view.has_lost_ends = False
            for key, queue in self._queues_by_key.items():
                if key.broker == broker and view.location.uri is None and (doubt := view.doubt_of(queue)):
                    _LOGGER.warning("%s: %s; `gantrymq store verify` shows it, `store rebuild` restores it", key, doubt)
            ends = f"the log in {view.location} ends at physical offset {view.end}, before them"
            lost = view.lost_ends()
            losses = [
                f"{key}: {missing(lost_end.start, lost_end.stop)}: {ends}"
                for key, queue in self._queues_by_key.items()
                if key.broker == broker and (lost_end := lost.get((queue.topic, key.queue_id))) is not None
            ]
            if view.reader.last_exit_ok:
                report(losses, fail=self._options.fail_on_data_loss)
            else:
                report(losses, fail=False, allowed_by="after a crash")

    def _without_messages(self) -> Extents:
        """The queues that selected topics have by their configuration. They need not have been written.

        A read of everything skips this: a broker's own topics have more than a thousand queues.
        """
        if self._selection.is_everything:
            return {}
        return {
            key: QueueExtent(0, 0)
            for broker, view in self._views.items()
            for topic, queue_id in declared_queues(view.location)
            if (shown := self._selection.shown_topic(topic)) is not None
            and self._selection.takes(key := QueueKey(broker, shown, queue_id))
        }

    def _refresh(self) -> None:
        if self._has_compared:  # the next look begins where this one ended
            self._replaced, self._has_compared = {}, False
            for view in self._views.values():
                view.is_new = False
        options = self._options
        found_stores = find_stores(options.path, options.broker_name, options.store_path_commit_log)
        stores = {store.broker: store for store in found_stores}
        self._require_stores(self._views.keys(), stores.keys())
        for broker in self._views.keys() - stores.keys():
            self._views.pop(broker).close()
        for broker, store in stores.items():
            if broker in self._views and self._views[broker].location == store.location:
                self._views[broker].refresh()
            else:
                self._views[broker] = StoreView(store, skips_lost=not options.fail_on_data_loss)

    def _require_stores(self, known: Iterable[str], there: Iterable[str]) -> None:
        """Raise NotAStoreError if a store that was read before is missing.

        Otherwise its new messages would be skipped without an error.
        """
        lost = sorted(set(known) - set(there) - set(self._options.retired_brokers))
        if lost:
            shown = ", ".join(sorted(there)) or "none"
            raise NotAStoreError(
                ",".join(self._options.path),
                f"has no store of broker {', '.join(lost)}, which this query has read (there: {shown}); mount it, give "
                f"brokerName={lost[0]} if its directory was renamed, or retiredBrokers={lost[0]} if it was retired",
            )

    def marks(self, offsets: Offsets, before: Marks) -> Marks:
        """Marks that recognize the logs, which were read up to ``offsets``."""
        read: dict[str, list[int]] = {broker: [] for broker in self._views}
        for key, offset in offsets.items():
            queue = self._queues_by_key.get(key)
            if queue is not None and queue.min_offset < offset <= queue.max_offset:
                read[key.broker].append(queue.phy_offset(offset - 1))
        noted = {
            broker: log_identity.marks(view, read[broker], before.get(broker, {}))
            for broker, view in self._views.items()
        }
        return {broker: records for broker, records in noted.items() if records}

    def resets(self, began: Offsets, marks: Marks) -> Resets:
        """The queues whose messages before ``began`` are not those that were read, by ``marks`` or by a refresh."""
        wanted = {key: offset for key, offset in began.items() if self._selection.wants(key)}
        self._require_stores({key.broker for key in wanted}, self._views.keys())
        read = {key: offset for key, offset in wanted.items() if offset > 0}
        resets = {key: reason for key, reason in self._replaced.items() if key in read}
        # A batch is planned after its end was fixed, and must see the same resets then.
        resets |= {
            key: reason
            for key, (offset, noted, reason) in self._known_resets.items()
            if read.get(key) == offset and marks.get(key.broker) == noted
        }
        states = {
            broker: log_identity.state_of(view, marks[broker])
            for broker, view in self._views.items()
            if marks.get(broker)
        }
        for key, offset in read.items():
            if key not in resets and key in self._extents:
                reason = self._reset(key, offset, marks.get(key.broker), states.get(key.broker))
                if reason:
                    resets[key] = reason
        self._has_compared = True
        self._known_resets |= {key: (read[key], marks.get(key.broker), reason) for key, reason in resets.items()}
        return resets

    def _reset(self, key: QueueKey, offset: int, noted: dict[int, int] | None, state: LogState | None) -> str | None:
        """The reason for which a queue that was read up to ``offset`` is not the same any more, or None."""
        view, queue, extent = self._views[key.broker], self._queues_by_key.get(key), self._extents[key]
        if state is LogState.OTHER:
            reason = ends_before(offset, extent) if offset > extent.max_offset else replaced(offset)
            return f"{view.location} holds another log than the one that was read; {reason}"
        if offset > extent.max_offset:
            is_behind = noted is None or queue is None or log_identity.is_past(queue, noted)
            return ends_before(offset, extent) if is_behind else None
        if noted is None or state is None or queue is None or not (view.is_new or state is LogState.CUT):
            return None
        return replaced(offset) if log_identity.is_recreated(view, queue, offset, noted, state) else None

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int:
        """The first queue offset stored at ``timestamp_ms`` or later; the max offset if there is none."""
        if key not in self._queues_by_key:  # never written
            return 0
        topic = with_namespace(key.topic, self._options.namespace)
        return self._views[key.broker].offset_at(topic, key.queue_id, timestamp_ms)

    def advance(self, start: Offsets, latest: Offsets, rows: int) -> Offsets:
        """The offsets after ``rows`` messages from ``start`` on, in the order of each store's log; at most ``latest``.

        A missing queue is passed as a whole; otherwise the stream would never reach its end. Raises DataLossError.
        """
        report(self._removed_messages(start, latest), fail=self._options.fail_on_data_loss)
        ends = {key: low if key in self._queues_by_key else latest.get(key, low) for key, low in start.items()}
        by_broker = {broker: self._ranges(start, latest, broker) for broker in self._views}
        waiting = {broker: sum(map(len, ranges.values())) for broker, ranges in by_broker.items()}
        for broker, share in split_proportionally(waiting, rows).items():
            view, ranges = self._views[broker], by_broker[broker]
            begin = min((range_.queue.phy_offset(range_.low) for range_ in ranges.values()), default=view.begin)
            _, offsets = after_rows(list(ranges.values()), max(begin, 0), view.end, share)
            ends |= dict(zip(ranges, offsets, strict=True))
        return ends

    def advance_bytes(self, start: Offsets, latest: Offsets, size_bytes: int) -> Offsets:
        """The offsets after ``size_bytes`` of records from ``start`` on, in the order of each store's log."""
        report(self._removed_messages(start, latest), fail=self._options.fail_on_data_loss)
        ends = {key: low if key in self._queues_by_key else latest.get(key, low) for key, low in start.items()}
        by_broker = {broker: self._ranges(start, latest, broker) for broker in self._views}
        waiting = {broker: sum(map(len, ranges.values())) for broker, ranges in by_broker.items()}
        total = sum(waiting.values()) or 1
        for broker, ranges in by_broker.items():
            view, share = self._views[broker], size_bytes * waiting[broker] // total
            begin = min((range_.queue.phy_offset(range_.low) for range_ in ranges.values()), default=view.begin)
            offsets = after_bytes(list(ranges.values()), max(begin, 0), view.end, share, view.tail_sizes)
            ends |= dict(zip(ranges, offsets, strict=True))
        return ends

    def _ranges(self, start: Offsets, end: Offsets, broker: str, *, whole: bool = False) -> dict[QueueKey, QueueRange]:
        """The range of each existing queue. With ``whole`` empty ranges are included, because a unit may be damaged."""
        return {
            key: QueueRange(self._queues_by_key[key], low, end.get(key, low))
            for key, low in start.items()
            if key.broker == broker and key in self._queues_by_key and (whole or low < end.get(key, low))
        }

    def partitions(
        self, start: Offsets, end: Offsets, rows: RowFilter | None = None, *, whole: bool = False
    ) -> list[LogRun]:
        """The partitions of the messages from ``start`` to before ``end``.

        ``whole``: these are all messages of the selected queues. Raises DataLossError if a queue of them is missing.
        """
        options = self._options
        runs: list[LogRun] = []
        report(self._removed_messages(start, end), fail=options.fail_on_data_loss)
        total = sum(max(end[key] - low, 0) for key, low in start.items()) or 1
        for broker, view in sorted(self._views.items()):
            ranges = self._ranges(start, end, broker, whole=whole)
            share = sum(map(len, ranges.values())) / total
            planned = plan_runs(
                view, {key[1:]: range_ for key, range_ in ranges.items()}, self._selection, rows,
                whole=whole, use_index=options.message_index_enable,
                min_partitions=math.ceil(options.min_partitions * share), max_records=options.max_records_per_partition,
                fail_on_data_loss=options.fail_on_data_loss,
            )  # fmt: skip
            if options.pending:
                runs += runs_with_pending(view.reader, planned, fail_on_data_loss=options.fail_on_data_loss)
            else:
                runs += planned
        return runs

    def _removed_messages(self, start: Offsets, end: Offsets) -> list[str]:
        """The losses of selected queues that are missing. A query may have been told to leave some out."""
        return [
            f"{key}: {missing(low, end[key])}"
            for key, low in start.items()
            if key not in self._queues_by_key and low < end.get(key, low) and self._selection.wants(key)
        ]

    def close(self) -> None:
        """Close the stores."""
        for view in self._views.values():
            view.close()
        self._views = {}
