"""The extended units of a consume queue (``enableConsumeQueueExt``), which hold more than its 20 bytes.

File format: ``gantrymq.format.queue_ext``.

Invariant: a unit never crosses a file. A file that a unit did not fit into ends with size -1.

Thread rule: one dispatcher writes. Readers follow addresses that they found in the consume queue.

Source: ConsumeQueueExt.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gantrymq.format.queue_ext import (
    END_BLANK_SIZE,
    MAX_ADDRESS,
    MAX_UNIT_SIZE,
    QueueExtUnit,
    decode_unit,
    encode_unit,
    is_address,
    to_address,
    to_offset,
    unit_size,
)
from gantrymq.fs.api import FileSystem
from gantrymq.store.log.mapped_file_queue import MappedFileQueue

_MAX_OFFSET = to_offset(MAX_ADDRESS)
_END = b"\xff\xff"
NO_ADDRESS = 1


REBUILD_EXT = "`gantrymq store rebuild` with enableConsumeQueueExt=true rebuilds it from the commit log"


class ConsumeQueueExt:
    """The extended units of one queue, in ``directory``/TOPIC/QUEUE."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        topic: str,
        queue_id: int,
        file_size: int,
        defer_sync: Callable[[Path], None] | None = None,
    ) -> None:
        self.files = MappedFileQueue(
            fs,
            directory / topic / str(queue_id),
            file_size,
            reserve_space=False,
            defer_sync=defer_sync,
            remedy=REBUILD_EXT,
        )

    def load(self) -> None:
        """Load the files. Raises WrongFileSizeError."""
        self.files.load()
        self.files.drop_empty()

    def put(self, unit: QueueExtUnit) -> int:
        """Append ``unit``. Returns its address (negative), or NO_ADDRESS if there is no room for it."""
        size = unit.size_bytes
        if size > MAX_UNIT_SIZE or self.files.max_offset + size > _MAX_OFFSET:
            return NO_ADDRESS
        file = self.files.last_for_append()
        if size > file.size - file.wrote_position - END_BLANK_SIZE:
            file.file.write_at(file.wrote_position, _END)
            file.advance(file.size - file.wrote_position)
            file = self.files.last_for_append()
        address = to_address(file.file_from_offset + file.wrote_position)
        file.append(encode_unit(unit))
        return address

    def get(self, address: int) -> QueueExtUnit | None:
        """Return the unit at ``address``, or None."""
        file = self.files.find(to_offset(address)) if is_address(address) else None
        if file is None or not file.hold_to_read():
            return None
        try:
            position = to_offset(address) - file.file_from_offset
            left = file.wrote_position - position
            unit = decode_unit(file.file.read_at(position, min(MAX_UNIT_SIZE, left))) if left > 0 else None
            is_lost = unit is not None and file.file.lost_in(position, len(encode_unit(unit))) is not None
            return None if is_lost else unit
        finally:
            file.release()

    def recover(self) -> None:
        """Find the end by following the sizes of the units through every file."""
        end = 0
        for file in self.files.files:
            position = 0
            while position < file.size - 1:
                size = unit_size(file.file.read_at(position, 2))
                if size <= 0 or position + size > file.size:
                    break
                position += size
            end = file.file_from_offset + position
        if self.files.files:
            self.files.truncate_dirty(end, wipe=True)

    def truncate_by_max_address(self, address: int) -> None:
        """Cut the bytes after the unit at ``address``, the last one that the consume queue points to."""
        unit = self.get(address)
        if unit is not None:
            self.files.truncate_dirty(to_offset(address) + unit.size_bytes, wipe=True)

    def truncate_by_min_address(self, address: int) -> None:
        """Remove whole files before the unit at ``address``."""
        if is_address(address):
            ended = [file for file in self.files.files if file.file_from_offset + file.size <= to_offset(address)]
            self.files.remove_before(len(ended))

    def destroy(self) -> None:
        """Remove the files and their directory."""
        self.files.destroy()

    def close(self) -> None:
        """Close the files."""
        self.files.close()
