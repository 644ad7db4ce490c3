"""Finds records that a rebuild put into a wrong queue, and moves their units to the right one.

A rebuild that finds such records builds the queues once more without them and then adds their units in the right place.
That costs a damaged log a second reading, and an intact log nothing.

Thread rule: one thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.names import offset_name
from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, UNIT_SIZE, QueueEntry, encode_entry
from gantrymq.fs.api import FileSystem
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queues import ConsumeQueues
from gantrymq.store.queue.queue_listing import QueueName
from gantrymq.store.queue.queue_units import PassedOver, Renumbered
from gantrymq.tools.loss.loss import LossAccount, LostRange, RepairedRecord
from gantrymq.tools.loss.queue_account import LostPlaces, Suspect
from gantrymq.tools.read.queue_files import QueueFiles, as_units, place_of_unit, queue_directories
from gantrymq.tools.read.record_lookup import RecordLookup
from gantrymq.tools.repair.misfiled import (
    Candidate,
    Misfiled,
    Stray,
    Superseded,
    by_holes,
    by_old_units,
    candidates_in,
    conflicting_strays,
    overwriting_strays,
    strays_among,
)


class Refiling:
    """The records found so far. ``files`` are the files of the log; the queues of the store ``old`` are evidence."""

    def __init__(self, fs: FileSystem, old: StorePaths, config: MessageStoreConfig, files: Sequence[LogFile]) -> None:
        self._fs = fs
        self._old = old
        self._config = config
        self._files = files
        self._bases = [file.base for file in files]
        self.misfiled: list[Misfiled] = []
        self.corrected: set[int] = set()
        self.superseded: list[Superseded] = []

    @property
    def left_out(self) -> frozenset[int]:
        """The physical offsets of the records that must not enter the queues that they name.

        Records that were ``corrected`` in the meantime are not among them.
        """
        return self._found - self.corrected

    @property
    def _found(self) -> frozenset[int]:
        return frozenset([one.phy_offset for one in self.misfiled] + [one.phy_offset for one in self.superseded])

    def look(
        self,
        roots: Sequence[StorePaths],
        suspects: Sequence[Suspect],
        passed_over: Sequence[tuple[str, int, PassedOver]],
        renumbered: Iterable[tuple[str, int, Renumbered]],
        lost: Sequence[LostRange],
        misplaced: Sequence[LostRange],
    ) -> bool:
        """Look at the queues below ``roots``; returns whether anything new was found.

        ``misplaced`` records were written for another place of the log, so the evidence of their own fields is not
        used.
        """
        elsewhere = LostPlaces(misplaced)
        known = self._found
        passed = [
            Candidate(topic, queue_id, one.queue_offset, one.phy_offset, one.size_bytes, one.tags_code, False)
            for topic, queue_id, one in passed_over
            if one.phy_offset not in known
        ]
        queues = dict(self._queues(roots))
        in_place = [one for one in suspects if elsewhere.reason(one.phy_offset) is None]
        found = {one.phy_offset: one for one in self._by_old_units(in_place) if one.phy_offset not in known}
        slots: dict[QueueName, list[int]] = {}
        for one in passed:
            slots.setdefault((one.topic, one.queue_id), []).append(one.queue_offset)

        def is_passed(name: QueueName, begin: int, end: int) -> bool:
            return any(begin <= slot < end for slot in slots.get(name, ()))

        doubted = [*candidates_in(queues, is_passed, LostPlaces(lost)), *passed]
        doubted = [
            one for one in doubted if one.phy_offset not in known and self._old_place(*one[:3]) != one.phy_offset
        ]
        # A record that was written for another place is not the message of this one, even if it fits the hole.
        fitting = [one for one in doubted if elsewhere.reason(one.phy_offset) is None]
        found |= {one.phy_offset: one for one in self._by_holes(fitting, passed, queues) if one.phy_offset not in found}
        # Superseded records are looked for only when nothing else was found: the others may be all that was in the way.
        unknown = {place: one for place, one in self._strays(misplaced).items() if place not in known}
        superseded = overwriting_strays(unknown, renumbered, queues, self._old_place)
        if not found and not superseded:
            passed_now = [one for one in passed_over if one[2].phy_offset not in known]
            superseded = conflicting_strays(unknown.values(), passed_now) or self._superseded(passed, doubted, queues)
        self.misfiled += found.values()
        self.superseded += superseded
        return bool(found or superseded)

    @staticmethod
    def _by_holes(
        doubted: Sequence[Candidate], passed: Sequence[Candidate], queues: dict[QueueName, QueueFiles]
    ) -> list[Misfiled]:
        """The ``doubted`` records that fit a hole.

        If two records claim one slot and both fit another, neither is taken.
        """
        rivals = []
        for one in passed:
            files = queues[one.topic, one.queue_id]
            if one.queue_offset >= files.end:
                continue
            unit, following = as_units(files.units(one.queue_offset, one.queue_offset + 2))
            # A record after the next message of the queue is out of order there.
            is_in_turn = one.queue_offset + 1 >= files.end or one.phy_offset < following["phy_offset"]
            if unit["size"] != BLANK_UNIT_SIZE and is_in_turn:
                place, size, tags_code = unit.item()
                rivals.append(one._replace(phy_offset=place, size_bytes=size, tags_code=tags_code))
        found = by_holes([*doubted, *rivals], queues)
        claims = Counter({one.phy_offset: one.slot for one in found}.values())
        return [one for one in found if claims[one.slot] == 1]

    def _queues(self, roots: Sequence[StorePaths]) -> Iterable[tuple[QueueName, QueueFiles]]:
        for root in roots:
            for topic, queue_id, path in queue_directories(self._fs, root.consume_queue)[0]:
                files = QueueFiles(self._fs, path, topic, queue_id, self._config.mapped_file_size_consume_queue)
                files.load()
                yield (topic, queue_id), files

    def _by_old_units(self, suspects: Sequence[Suspect]) -> list[Misfiled]:
        lookup = RecordLookup(self._fs, self._file_at)
        try:
            return by_old_units(suspects, lookup, self._old_place)
        finally:
            lookup.close()

    def _strays(self, misplaced: Sequence[LostRange]) -> dict[int, Stray]:
        lookup = RecordLookup(self._fs, self._file_at)
        try:
            return strays_among(misplaced, lookup)
        finally:
            lookup.close()

    def _file_at(self, place: int) -> LogFile | None:
        number = bisect_right(self._bases, place) - 1
        return self._files[number] if number >= 0 and place < self._files[number].end else None

    def _old_place(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """The physical offset in a unit of the old queue; -1 if there is none."""
        size = self._config.mapped_file_size_consume_queue
        return place_of_unit(self._fs, self._old.consume_queue, size, topic, queue_id, queue_offset)

    @classmethod
    def _superseded(
        cls, passed: Sequence[Candidate], doubted: Sequence[Candidate], queues: dict[QueueName, QueueFiles]
    ) -> list[Superseded]:
        return [
            Superseded(
                one.phy_offset,
                one.size_bytes,
                f"another record is offset {one.queue_offset} of {one.topic}/{one.queue_id}",
            )
            for one in cls._conflicting(passed, doubted, queues)
        ]

    @staticmethod
    def _conflicting(
        passed: Sequence[Candidate], doubted: Sequence[Candidate], queues: dict[QueueName, QueueFiles]
    ) -> list[Candidate]:
        """The records that displace others: skipped ones, or the first one after a slot filled for them."""
        found = []
        for one in passed:
            name = one.topic, one.queue_id
            unit = as_units(queues[name].units(one.queue_offset, one.queue_offset + 1))[0]
            if unit["size"] != BLANK_UNIT_SIZE:
                found.append(one)
                continue
            behind = [other for other in doubted if other[:2] == name and other.queue_offset > one.queue_offset]
            found += sorted(behind, key=lambda other: other.queue_offset)[:1] or [one]
        return list(dict.fromkeys(found))

    def put_back(self, roots: Sequence[StorePaths], log_end: int) -> int:
        """Write the units of the misfiled records to the right slots, durably. Returns the number of added slots.

        Raises DiskFullError.
        """
        by_queue: dict[QueueName, list[Misfiled]] = {}
        for one in self.misfiled:
            if one.phy_offset in self.corrected:
                continue
            by_queue.setdefault((one.topic, one.queue_id), []).append(one)
        where = {name: root for root in roots for name in self._names(root)}
        added = 0
        for name, records in by_queue.items():
            root = where.get(name, roots[0] if roots else None)
            if root is not None:
                added += self._put(root, name, records, log_end)
        return added

    def _names(self, root: StorePaths) -> list[QueueName]:
        return [(topic, queue_id) for topic, queue_id, _ in queue_directories(self._fs, root.consume_queue)[0]]

    def _put(self, root: StorePaths, name: QueueName, records: Sequence[Misfiled], log_end: int) -> int:
        queue = ConsumeQueues(self._fs, root, self._config).get_or_create(*name)
        queue.load()
        try:
            queue.recover(log_end)
            before = queue.max_offset
            for one in sorted(records, key=lambda record: record.queue_offset):
                unit = encode_entry(QueueEntry(one.phy_offset, one.size_bytes, one.tags_code))
                if one.queue_offset >= queue.max_offset:
                    end = one.phy_offset + one.size_bytes
                    queue.append_units(one.queue_offset, memoryview(unit), np.zeros(1, np.int64), end)
                else:
                    self._overwrite(queue.files.directory, one.queue_offset * UNIT_SIZE, unit)
            queue.flush()
            return queue.max_offset - before
        finally:
            queue.close()

    def _overwrite(self, directory: Path, position: int, unit: bytes) -> None:
        size = self._config.mapped_file_size_consume_queue
        file = self._fs.open(directory / offset_name(position // size * size), writable=True)
        try:
            file.write_at(position % size, unit)
            file.sync()
        finally:
            file.close()

    def add_to(self, account: LossAccount) -> None:
        """Add the findings to ``account``."""
        for one in self.misfiled:
            place = one.phy_offset, one.size_bytes
            slot = (*one.stated_queue, one.stated_offset)
            account.repaired.append(RepairedRecord(one.topic, one.queue_id, one.queue_offset, *place, one.text, slot))
        for other in self.superseded:
            file = self._file_at(other.phy_offset)
            if file is not None:
                account.ranges = [
                    one for one in account.ranges if one.stated_offset < 0 or one.start != other.phy_offset
                ]
                path, end = self._old.commit_log / file.path.name, other.phy_offset + other.size_bytes
                account.ranges.append(LostRange(path, other.phy_offset, end, other.reason, has_records=True))
        account.ranges.sort(key=lambda place: place.start)
