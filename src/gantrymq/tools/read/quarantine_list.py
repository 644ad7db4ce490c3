"""The list of the records that a rebuild or a salvage has quarantined, in ``lost+found`` of the store.

Thread rule: plain functions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gantrymq.errors import StoreError
from gantrymq.format import names
from gantrymq.fs.api import FileSystem
from gantrymq.fs.reads import read_part
from gantrymq.tools.read.record_lookup import RecordLookup, claims_at
from gantrymq.tools.reports import Quarantined

LIST = "quarantine.json"
_MAX_BYTES = 64 << 20


def quarantined_in(fs: FileSystem, store: Path, lookup: RecordLookup) -> list[Quarantined]:
    """The listed records that are still in the log, which ``lookup`` reads; none if the list cannot be read."""
    try:
        listed = json.loads(read_part(fs, store / names.LOST_FOUND / LIST, 0, _MAX_BYTES))
        records = [_of_json(item) for item in listed]
    except (OSError, StoreError, ValueError, KeyError, TypeError):
        return []
    claims = claims_at(lookup, (record.phy_offset for record in records))
    claimed = {phy_offset: (claim[:3], claim.size_bytes) for phy_offset, claim in claims.items()}
    return [record for record in records if claimed.get(record.phy_offset) == (record.slot, record.size_bytes)]


def _of_json(item: dict[str, Any]) -> Quarantined:
    likely = _slot(item["likely"]) if item["likely"] is not None else None
    return Quarantined(*_slot(item), int(item["phyOffset"]), int(item["bytes"]), str(item["reason"]), likely)


def _slot(item: dict[str, Any]) -> tuple[str, int, int]:
    return str(item["topic"]), int(item["queueId"]), int(item["queueOffset"])
