"""The places of a log without a whole record, as ``--json`` prints them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gantrymq.tools.intact_records import LostRange


def lost_rows(store: Path, lost: Sequence[LostRange]) -> list[dict[str, Any]]:
    """One object for each; paths are relative to the store."""
    return [
        {
            "path": str(one.path.relative_to(store)),
            "phyOffset": one.start,
            "bytes": one.end - one.start,
            "reason": one.reason,
        }
        for one in lost
    ]
