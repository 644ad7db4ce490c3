"""Predicts what ``salvage`` would keep of a damaged store, and what ``recover`` would cut.

Both are computed by a run that writes nothing: the log is read as an export reads it, and the recovery runs over an
in-memory overlay of the files.

Thread rule: one thread; a second one reads ahead.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import GantrymqError, MissingLogEndError
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.fs.real import RealFileSystem
from gantrymq.kernels import codes
from gantrymq.kernels.arrays import Int64s
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.paths import StorePaths
from gantrymq.store.reader import StoreReader
from gantrymq.store.recovery.recovery import Progress
from gantrymq.tools.export_account import account_of, choices_of, decide
from gantrymq.tools.export_files import ExportReport
from gantrymq.tools.export_plan import ExportPlan, ExportSelection, StoreSurvey, plan_export
from gantrymq.tools.read.bad_disk import ListedFileSystem
from gantrymq.tools.record_export import RecordExport


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a salvage and a recovery of one store would do.

    ``messages`` counts the whole messages, ``lost`` those that are known to be lost. A salvage needs about
    ``salvage_needed_bytes`` of disk. A recovery would cut ``cut`` messages, of which ``cut_whole`` are whole. Both are
    None if recovery would refuse the store; ``refusal`` then has the reason.
    """

    messages: int
    lost: int
    cut: int | None
    cut_whole: int | None
    refusal: str | None = None
    salvage_needed_bytes: int = 0

    def as_json(self) -> dict[str, object]:
        """The object that ``--json`` prints."""
        return {
            "salvageKeeps": self.messages,
            "salvageBytes": self.salvage_needed_bytes,
            "lostMessages": self.lost,
            "recoverCuts": self.cut,
            "recoverCutsWhole": self.cut_whole,
            "recoverRefuses": self.refusal,
        }


class _Count(RecordExport):
    """Counts the messages, and separately those at or after the physical offset ``end``."""

    def __init__(self, plan: ExportPlan, end: int) -> None:
        super().__init__(plan, None, ExportReport())
        self._end = end
        self.messages = self.behind = self.record_bytes = 0

    def take(self, batch: RecordBatch, numbers: Int64s, phy_offsets: Int64s, keep: NDArray[np.bool_]) -> None:
        """Count the records that ``keep`` selects."""
        self.messages += int(keep.sum())
        self.record_bytes += int(batch.columns[codes.SIZE, : batch.count][keep].sum())
        self.behind += int((keep & (phy_offsets >= self._end)).sum())


def look_ahead(
    path: Path,
    config: MessageStoreConfig | None = None,
    *,
    given: Collection[str] = (),
    progress: Progress | None = None,
) -> Outlook:
    """Compute the outlook of the store at ``path``. Raises NotAStoreError, StorePermissionError."""
    config = config or MessageStoreConfig()
    paths = StorePaths.of(path, config)
    fs = ListedFileSystem(RealFileSystem(), path, (path, *paths.commit_logs)).as_file_system()
    end, refusal = _recovered_end(path, config, given)
    plan = plan_export(StoreSurvey(fs, paths, config, given), ExportSelection(), decompress=False)
    count = _Count(plan, end)
    contents = count.run(plan.files, progress)
    better, choices = decide(fs, plan, contents, count.runs.by_queue)
    if better is not plan:
        count = _Count(better, end)
        contents = count.run(plan.files, progress)
        choices = choices_of(fs, plan, contents, count.runs.by_queue)
    account = account_of(fs, better, contents, choices, {})
    index_bytes = sum(entry.size_bytes for entry in fs.scan(plan.paths.index) if not entry.is_directory)
    needed_bytes = count.record_bytes + UNIT_SIZE * count.messages + index_bytes
    if refusal is not None:
        return Outlook(count.messages, account.message_count, None, None, refusal, needed_bytes)
    damaged = sum(lost.count for lost in account.messages if lost.phy_offset >= end)
    cut = count.behind + damaged
    return Outlook(count.messages, account.message_count, cut, count.behind, salvage_needed_bytes=needed_bytes)


def _recovered_end(path: Path, config: MessageStoreConfig, given: Collection[str]) -> tuple[int, str | None]:
    """The physical offset at which a recovery would end the log, and the reason if recovery would refuse the store."""
    try:
        with StoreReader.open(path, config, given=given) as reader:
            refused = [problem for problem in reader.problems if not isinstance(problem, MissingLogEndError)]
            return reader.max_phy_offset, str(refused[0]) if refused else None
    except (GantrymqError, OSError) as error:
        return 0, str(error)
