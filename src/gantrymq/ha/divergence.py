"""Where a copy's log ends to be its master's: found over the HA port, and kept in ``config/divergence.json``.

A master that was killed or lost power may come back without its last messages, and take others. A master that was
replaced by its slave may have messages that the slave never got. The copy then has messages that its master does not
have. They are cut only by a command, or with haTruncate=auto (``ha/log_cut.py``).

The obvious way is to cut at the master's end, or at the last offset that both acknowledged. It fails for a master that
has lost its end and gone on: the logs have the same length, and differ. So the bytes are compared, backwards in steps
that grow until a step begins alike, then forwards to the first difference. The cut is where the record with that
difference begins.

Thread rule: one thread.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from gantrymq.clock import Clock
from gantrymq.errors import GantrymqError, LogCopyError
from gantrymq.format.names import CONFIG, DIVERGENCE
from gantrymq.format.record import BLANK_SIZE, CheckCRC, Layout
from gantrymq.fs.api import FileSystem
from gantrymq.ha.copy import CopyState
from gantrymq.ha.held_tail import Master
from gantrymq.ha.master_link import SILENT_S, Connect, MasterLink
from gantrymq.logs import get_logger
from gantrymq.store.config_files import ConfigFile
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.message_store import MessageStore

AUTO = "auto"  # of haTruncate
_FIRST_STEP_BYTES, _GROWTH = 64 << 10, 16
_ALIKE_BYTES = 4096  # a step that begins with as many equal bytes begins before the difference
_RECEIVE_S = 0.25

log = get_logger("gantrymq.ha")


class Divergence(NamedTuple):
    """The log from ``cut_offset`` to ``end_offset`` is not the master's.

    ``is_cutting``: a cut has begun. ``directory`` is then the name of the directory that has the cut records.
    """

    cut_offset: int
    end_offset: int
    master: str
    is_cutting: bool = False
    directory: str = ""


class DivergenceFile:
    """``config/divergence.json`` of a store: absent or empty while nothing is known to differ."""

    def __init__(self, fs: FileSystem, config_directory: Path) -> None:
        self._fs, self._file = fs, ConfigFile(fs, config_directory / DIVERGENCE)

    def load(self) -> Divergence | None:
        """Return what differs. Raises UnusableFileError."""
        saved = self._file.load()
        cut, end = saved.get("cutOffset"), saved.get("endOffset")
        if type(cut) is not int or type(end) is not int or not 0 <= cut <= end:
            return None
        directory = str(saved.get("directory", ""))
        return Divergence(cut, end, str(saved.get("master", "")), saved.get("cutting") is True, directory)

    def save(self, divergence: Divergence) -> None:
        """Write what differs; durable on return. Raises DiskFullError."""
        table = {"cutOffset": divergence.cut_offset, "endOffset": divergence.end_offset, "master": divergence.master}
        self._file.save({**table, "cutting": divergence.is_cutting, "directory": divergence.directory})

    def clear(self) -> None:
        """Note that nothing differs any more."""
        if self.load() is not None:
            self._file.save({})


class DivergenceSearch:
    """Compares ``log`` with the log of ``master``. Use it while nothing is appended to ``log``."""

    def __init__(
        self,
        log: CommitLog,
        master: Master,
        *,
        clock: Clock,
        connect: Connect = socket.create_connection,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._log, self._master, self._clock, self._connect, self._sleep = log, master, clock, connect, sleep
        self._begin = max(log.min_offset, master.min_offset, 1)  # 0 would ask for another begin
        self._end = min(log.max_offset, master.max_offset)

    def find(self) -> int:
        """Return the offset from which on the log is not the master's, where a record begins.

        Raises LogCopyError if both have nothing in common, OSError, and HAFrameError.
        """
        step = _FIRST_STEP_BYTES
        while self._begin < self._end:
            begin = max(self._begin, self._end - step)
            difference = self._difference(begin, min(begin + _ALIKE_BYTES, self._end))
            if difference is None:
                difference = self._difference(begin, self._end)
                return self._begin_of_record(self._end if difference is None else difference)
            if begin == self._begin:
                cut = self._begin_of_record(difference)
                if cut > begin:  # one message is enough: its time, its hosts and its offsets are those of one log
                    return cut
                break
            step *= _GROWTH
        raise LogCopyError(
            CopyState.DIVERGED,
            f"the log and the master's have nothing in common from offset {self._begin} on: it is another broker's; "
            "begin with an empty directory",
        )

    def _difference(self, begin: int, end: int) -> int | None:
        """The first offset in [begin, end) at which the logs differ; None without one."""
        at = begin
        for data in self._of_master(begin, end):
            own = self._own(at, len(data))
            if own != data:
                return at + next(number for number, (a, b) in enumerate(zip(own, data, strict=True)) if a != b)
            at += len(data)
        return None

    def _of_master(self, begin: int, end: int) -> Iterator[bytes]:
        """The master's bytes in [begin, end), none of which crosses a file."""
        at = begin
        master = self._master
        if master.ack_timeout_s:
            self._sleep(master.ack_timeout_s)  # the request must acknowledge no put that waits
        is_silent = master.reads_each_report
        link = MasterLink(master.ha_address, begin, clock=self._clock, is_silent=is_silent, connect=self._connect)
        with link:
            sent_s = self._clock.monotonic_s()
            while at < end:
                if self._clock.monotonic_s() - sent_s >= SILENT_S:  # heartbeats alone
                    raise TimeoutError(f"the master sent nothing from offset {at} on for {SILENT_S:g} s")
                for frame in link.receive(_RECEIVE_S):
                    if at >= end:
                        break
                    if frame.offset != at:
                        raise LogCopyError(CopyState.WRONG_OFFSET, f"the master sent offset {frame.offset}, not {at}")
                    body = frame.body[: end - at]
                    if body:
                        yield body
                        at, sent_s = at + len(body), self._clock.monotonic_s()
                link.report_again(0 if is_silent else begin)

    def _own(self, offset: int, size: int) -> bytes:
        held = self._log.get_message(offset, size)
        if held is None:
            raise LogCopyError(CopyState.DIVERGED, f"the log at offset {offset} was removed meanwhile")
        with held:
            return held.array.tobytes()

    def _begin_of_record(self, offset: int) -> int:
        """The begin of the record, or of the blank, that has the byte at ``offset``."""
        file_begin = offset - offset % self._log.file_size
        at = max(file_begin, self._log.min_offset)
        while at < offset:
            layout = self._log.check(at, CheckCRC.OFF)
            if not isinstance(layout, Layout) or at + layout.size > offset:
                break
            at += layout.size
        rest = file_begin + self._log.file_size - at
        return file_begin + self._log.file_size if rest < BLANK_SIZE else at


class DivergenceNotes:
    """Notes where the log of an open ``store`` ends to be its master's, once for each end and master.

    ``cut_now`` is called after a note with haTruncate=auto. ``connect`` and ``sleep`` are those of the search.

    Thread rule: one thread looks; ``clear`` is called by another one while the copy goes on.
    """

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        cut_now: Callable[[], object],
        *,
        connect: Connect = socket.create_connection,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self._clock, self._cut_now = store, clock, cut_now
        self._connect, self._sleep = connect, sleep
        self._file = DivergenceFile(store.fs, store.path / CONFIG)
        self._seen: tuple[int, Master] | None = None
        self._may_be_noted = True

    def look(self, master: Master) -> None:
        """Find the offset and note it. A failure is logged; the next look tries again."""
        end = self._store.max_phy_offset
        if self._seen == (end, master):
            return
        try:
            cut = DivergenceSearch(
                self._store.commit_log, master, clock=self._clock, connect=self._connect, sleep=self._sleep
            ).find()
        except (GantrymqError, OSError) as error:
            log.warning("it is not known from where on the log is not its master's", reason=str(error))
            return
        if cut >= end:  # the master has it by now
            return
        host, port = master.ha_address
        self._file.save(Divergence(cut, end, f"{host}:{port}"))
        self._seen, self._may_be_noted = (end, master), True
        is_auto = self._store.config.ha_truncate == AUTO
        advice = "they are cut" if is_auto else f"see `gantrymq store diverged {self._store.path}`, which cuts them"
        log.warning("the log has messages that the master does not have", offset=cut, size=end - cut, advice=advice)
        if is_auto:
            self._cut_now()

    def clear(self) -> None:
        """Note that the log is its master's."""
        if self._may_be_noted:
            self._file.clear()
            self._may_be_noted = False
