"""What stands in the mark of a rebuild whose new files are ready (:mod:`gantrymq.store.ready_swap`): JSON, with a CRC.

Nothing of it is believed that was not checked: it says which files take the places of others.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from zlib import crc32

from gantrymq.format.names import CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX
from gantrymq.model.java import LONG_MAX
from gantrymq.store.file_swap import WORK_DIRECTORY


@dataclass(slots=True)
class SwapMark:
    """``checkpoint`` are the numbers of the checkpoint when all is moved.

    ``log_end`` is where the log ended, and the number of what stands there; ``moves`` are those of a FileSwap, below
    the store.
    """

    checkpoint: tuple[int, int, int, int, int, int]
    log_end: tuple[int, int]
    moves: list[tuple[str, str, list[str]]]

    def encode(self) -> bytes:
        """The mark as it stands in its file."""
        return json.dumps({"crc": self._crc(), "mark": asdict(self)}).encode("ascii")

    @classmethod
    def parse(cls, raw: bytes) -> SwapMark:
        """A mark that somebody has set; raises ValueError where these bytes are none."""
        # Here, for nearly every store is opened without a mark, and this takes milliseconds to import.
        import msgspec

        try:
            value = json.loads(raw)
            mark = msgspec.convert(value["mark"], cls)
        except (msgspec.ValidationError, RecursionError, LookupError, TypeError) as error:
            raise ValueError(f"it is no mark: {error}") from error
        if value.get("crc") != mark._crc():
            raise ValueError("its CRC is wrong")
        if not all(-LONG_MAX - 1 <= number <= LONG_MAX for number in mark.checkpoint):
            raise ValueError("a number of its checkpoint is none")
        for source, target, _ in mark.moves:
            if not (_is_in(source, WORK_DIRECTORY) and _is_in(target, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX)):
                raise ValueError(f"nothing is to be moved from {source!r} to {target!r}")
        return mark

    def _crc(self) -> int:
        return crc32(json.dumps([self.checkpoint, self.log_end, self.moves]).encode("ascii"))


def _is_in(path: str, *directories: str) -> bool:
    parts = PurePosixPath(path).parts
    return parts[:1] in [(one,) for one in directories] and ".." not in parts
