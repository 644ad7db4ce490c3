"""Store directories as the origin of a read: their queues, and partitions of what is wanted of them."""

from __future__ import annotations

import math

from gantrymq.spark.data_loss import missing, replaced, report
from gantrymq.spark.declared_queues import declared_queues
from gantrymq.spark.log_order import QueueRange, after_rows
from gantrymq.spark.log_run import LogRun
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.origin import Extents, Offsets, QueueExtent
from gantrymq.spark.places import find_stores
from gantrymq.spark.planning import plan_runs
from gantrymq.spark.row_filter import RowFilter
from gantrymq.spark.selection import QueueKey, Selection, with_namespace
from gantrymq.spark.shares import shares
from gantrymq.spark.store_view import QueueView, StoreView


class StoreOrigin:
    """The stores that the options name; see :class:`gantrymq.spark.origin.Origin`."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._selection = Selection.of(options)
        self._views: dict[str, StoreView] = {}
        self._found: dict[QueueKey, QueueView] = {}

    def extents(self) -> Extents:
        """The wanted queues as they are now; new stores, topics and queues among them. Raises DataLossError."""
        self._refresh()
        self._found, losses = {}, []
        for broker, view in sorted(self._views.items()):
            for (topic, queue_id), queue in view.queues.items():
                shown = self._selection.shown_topic(topic)
                if shown is not None and self._selection.takes(key := QueueKey(broker, shown, queue_id)):
                    self._found[key] = queue
                    if (topic, queue_id) in view.replaced:
                        losses.append(f"{key}: {replaced(view.replaced[topic, queue_id])}")
        report(losses, fail=self._options.fail_on_data_loss)
        extents = self._without_messages()
        extents |= {key: QueueExtent(queue.min_offset, queue.max_offset) for key, queue in self._found.items()}
        self._selection.require_assigned(extents)
        self._selection.report_missing(extents)
        return dict(sorted(extents.items()))

    def _without_messages(self) -> Extents:
        """The queues that chosen topics have by their configuration, none of which need have been written to.

        A read of everything has enough in those that were: a broker's own topics have more than a thousand queues.
        """
        if self._selection.is_everything:
            return {}
        return {
            key: QueueExtent(0, 0)
            for broker, view in self._views.items()
            for topic, queue_id in declared_queues(view.place)
            if (shown := self._selection.shown_topic(topic)) is not None
            and self._selection.takes(key := QueueKey(broker, shown, queue_id))
        }

    def _refresh(self) -> None:
        stores = {store.broker: store for store in find_stores(self._options.path, self._options.broker_name)}
        for broker in self._views.keys() - stores.keys():
            self._views.pop(broker).close()
        for broker, store in stores.items():
            if broker in self._views and self._views[broker].place == store.place:
                self._views[broker].refresh()
            else:
                self._views[broker] = StoreView(store)

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int:
        """The first queue offset stored at ``timestamp_ms`` or later; the max offset where there is none."""
        if key not in self._found:  # nobody has written to it
            return 0
        topic = with_namespace(key.topic, self._options.namespace)
        return self._views[key.broker].offset_at(topic, key.queue_id, timestamp_ms)

    def advance(self, start: Offsets, latest: Offsets, rows: int) -> Offsets:
        """Offsets between both with ``rows`` messages in front of them, in the order of each store's log.

        What is not there any more is passed over as a whole, or nobody would ever come to where it is missed. Raises
        DataLossError.
        """
        report(self._gone(start, latest), fail=self._options.fail_on_data_loss)
        ends = {key: low if key in self._found else latest.get(key, low) for key, low in start.items()}
        by_broker = {broker: self._ranges(start, latest, broker) for broker in self._views}
        waiting = {broker: sum(map(len, ranges.values())) for broker, ranges in by_broker.items()}
        for broker, share in shares(waiting, rows).items():
            view, ranges = self._views[broker], by_broker[broker]
            begin = min((one.queue.phy_offset(one.low) for one in ranges.values()), default=view.begin)
            _, offsets = after_rows(list(ranges.values()), max(begin, 0), view.end, share)
            ends |= dict(zip(ranges, offsets, strict=True))
        return ends

    def _ranges(self, start: Offsets, end: Offsets, broker: str, *, whole: bool = False) -> dict[QueueKey, QueueRange]:
        """What is wanted of each queue that is there; of a ``whole`` one also nothing, for it may be damaged."""
        return {
            key: QueueRange(self._found[key], low, end.get(key, low))
            for key, low in start.items()
            if key.broker == broker and key in self._found and (whole or low < end.get(key, low))
        }

    def partitions(
        self, start: Offsets, end: Offsets, rows: RowFilter | None = None, *, whole: bool = False
    ) -> list[LogRun]:
        """The partitions of what lies between both; ``whole`` says that this is all there is of the wanted queues.

        Raises DataLossError where a queue of it is not there any more.
        """
        options, runs = self._options, []
        report(self._gone(start, end), fail=options.fail_on_data_loss)
        total = sum(max(end[key] - low, 0) for key, low in start.items()) or 1
        for broker, view in sorted(self._views.items()):
            ranges = self._ranges(start, end, broker, whole=whole)
            share = sum(map(len, ranges.values())) / total
            runs += plan_runs(
                view, {key[1:]: one for key, one in ranges.items()}, self._selection, rows,
                whole=whole, use_index=options.message_index_enable,
                min_partitions=math.ceil(options.min_partitions * share), max_records=options.max_records_per_partition,
                fail_on_data_loss=options.fail_on_data_loss,
            )  # fmt: skip
        return runs

    def _gone(self, start: Offsets, end: Offsets) -> list[str]:
        """What lies between both of queues that are wanted and not there; a query may have been told to leave some."""
        return [
            f"{key}: {missing(low, end[key])}"
            for key, low in start.items()
            if key not in self._found and low < end.get(key, low) and self._selection.wants(key)
        ]

    def close(self) -> None:
        """Close the stores."""
        for view in self._views.values():
            view.close()
        self._views = {}
