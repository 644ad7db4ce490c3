"""The places of a log without a whole record, as ``--json`` prints them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gantrymq.tools.loss import LostRange


def lost_rows(store: Path, lost: Sequence[LostRange]) -> list[dict[str, Any]]:
    """One object for each; paths are relative to the store."""
    return [one.as_json(store) for one in lost]
