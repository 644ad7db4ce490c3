"""The index of a store that is only read, as recovery would leave it.

It is made at the first access, because that may take a while.

Thread rule: any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.store.index.index_dispatch import IndexDispatcher
from gantrymq.store.index.index_service import IndexService
from gantrymq.store.opening import LoadedStore, load_index
from gantrymq.store.recovery.log_passes import LostRecords, across_lost, dispatched, forward_scanner, unjudged
from gantrymq.store.recovery.recovery import RecoveryReport, index_begin


class RecoveredIndex:
    """Continues the recovery of a loaded store, which ``report`` describes, with the index.

    ``config`` has the geometry of the index after the first access.
    With ``keeps_files`` the index files are shown as they are although there is no log. ``lost`` records do not end the
    log.
    """

    def __init__(
        self,
        loaded: LoadedStore,
        given: Collection[str],
        report: RecoveryReport,
        *,
        keeps_files: bool,
        lost: LostRecords | None = None,
    ) -> None:
        self._loaded = loaded
        self._given = given
        self._report = report
        self._keeps_files = keeps_files
        self._lost = lost
        self._guard = threading.Lock()
        self._index: IndexService | None = None

    @property
    def config(self) -> MessageStoreConfig:
        """The settings, with the file sizes that the files have."""
        return self._loaded.config

    def get(self) -> IndexService | None:
        """Return the index, or None if messageIndexEnable is off. Raises AmbiguousGeometryError, ConfigError."""
        with self._guard:
            if self._index is None and self.config.message_index_enable:
                self._index = self._recover()
            return self._index

    def _recover(self) -> IndexService:
        parts, report = self._loaded.parts, self._report
        index, config, dropped = load_index(self._loaded, self._given)
        self._loaded, log = self._loaded._replace(config=config), parts.log
        report.index_files_dropped = [path for path, _ in dropped]
        if not log.queue.files:
            index.end_rewriting()
            if not self._keeps_files:
                index.destroy()
            return index
        begin = index_begin(report, index, dropped, log)
        dispatcher = IndexDispatcher(index, max(index.end_phy_offset, begin))
        first = max(begin - begin % log.file_size, log.min_offset)
        for batch in unjudged(log, config, first, report.start_offset, lambda _done, _total: None, self._lost):
            dispatcher.dispatch(batch, None)
        start = max(report.start_offset, log.min_offset)
        with forward_scanner(log, config, start, log.max_offset) as scanner:
            for batch in across_lost(scanner, self._lost, log.max_offset):
                whole = batch if self._lost is None else self._lost.whole_of(batch)
                dispatcher.dispatch(dispatched(whole, config, parts.checkpoint.page), None)
        report.index_entries_added = dispatcher.added
        if (failure := dispatcher.disk_full()) is not None:
            report.index_behind = failure
            raise failure
        index.end_rewriting()
        return index

    def close(self) -> None:
        """Close the files."""
        with self._guard:
            if self._index is not None:
                self._index.close()
