"""What stands in the mark of a rebuild whose new files are ready (:mod:`gantrymq.store.ready_swap`): JSON, with a CRC.

Nothing of it is believed that was not checked: it says which files take the places of others.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Annotated
from zlib import crc32

import msgspec
from msgspec import Meta, Struct

from gantrymq.format.names import CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX
from gantrymq.store.file_swap import WORK_DIRECTORY

_Long = Annotated[int, Meta(ge=-1 << 63, le=(1 << 63) - 1)]


class SwapMark(Struct, rename="camel"):
    """``log_end`` and the number of what stands there; ``moves`` are those of a FileSwap, below the store.

    ``crc`` is that of all the rest; :meth:`encode` works it out.
    """

    crc: int
    checkpoint: Annotated[tuple[_Long, ...], Meta(min_length=6, max_length=6)]
    log_end: tuple[int, int]
    moves: list[tuple[str, str, list[str]]]

    def encode(self) -> bytes:
        """The mark as it stands in its file."""
        self.crc = self.rest_crc()
        return json.dumps(msgspec.to_builtins(self)).encode("ascii")

    def rest_crc(self) -> int:
        """What ``crc`` is to be."""
        return crc32(json.dumps([self.checkpoint, self.log_end, self.moves]).encode("ascii"))


def parse_mark(raw: bytes) -> SwapMark:
    """A mark that somebody has set; raises ValueError where these bytes are none."""
    try:
        mark = msgspec.convert(json.loads(raw), SwapMark)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if mark.crc != mark.rest_crc():
        raise ValueError("its CRC is wrong")
    for source, target, _ in mark.moves:
        if not (_is_in(source, WORK_DIRECTORY) and _is_in(target, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX)):
            raise ValueError(f"nothing is to be moved from {source!r} to {target!r}")
    return mark


def _is_in(path: str, *directories: str) -> bool:
    parts = PurePosixPath(path).parts
    return parts[:1] in [(one,) for one in directories] and ".." not in parts
