"""Where records begin: found by the records in front, in files that change and on disks that fail."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from gantrymq.spark.plan.store_view import record_at_or_after
from gantrymq.store.log import mapped_file
from gantrymq.store.reader import StoreReader
from store_cases import numbered, open_store


def test_first_record_after_offset_is_found(tmp_path: Path) -> None:
    with open_store(path=tmp_path) as store:
        places = [store.put(message).phy_offset for message in numbered(50)]
    with StoreReader.open(tmp_path) as reader:
        for place, following in pairwise(places):
            assert record_at_or_after(reader, (), place) == place
            assert record_at_or_after(reader, (), place + 1) == following


def test_log_file_truncated_during_read_does_not_kill_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_file, "_FETCHED_S", 0.0)  # pages that were asked for just now are asked for again
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(100))
    file = min((tmp_path / "commitlog").iterdir())
    with StoreReader.open(tmp_path) as reader:
        os.truncate(file, 0)
        assert record_at_or_after(reader, (), 5000) == reader.log.roll_next_file(5000)
