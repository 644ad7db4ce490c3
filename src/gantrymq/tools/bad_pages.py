"""Reading what the disk gives back, where it does not give back all: page by page.

Thread rule: the caller's thread.
"""

from __future__ import annotations

from collections.abc import Callable

from gantrymq.errors import StoreError
from gantrymq.fs.api import File

_PAGE_BYTES = 4096


def read_by_pages(file: File, position: int, length: int, note: Callable[[int, int, str], None]) -> bytes:
    """At most ``length`` bytes from ``position``; a page that the disk does not give back counts as zeros.

    ``note(start, end, error)`` hears of each such page, by its place in the file.
    """
    pages = []
    for at in range(position, position + length, _PAGE_BYTES):
        wanted = min(_PAGE_BYTES, position + length - at)
        try:
            pages.append(file.read_at(at, wanted))
        except (OSError, StoreError) as error:
            pages.append(bytes(wanted))
            note(at, at + wanted, str(error))
    return b"".join(pages)
