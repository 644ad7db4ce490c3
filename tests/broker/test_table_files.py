"""A table that the broker saves is known to verify: its decoder, and the check of its values."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantrymq.broker.tables.persistence import table_decoders
from gantrymq.broker.tables.tables import Tables
from gantrymq.clock import ManualClock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.fs.real import RealFileSystem
from gantrymq.store import config_files


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables.load(LiveConfig(), ManualClock(0), RealFileSystem(), tmp_path, lambda _: None, lambda *_: None)


def test_every_needed_table_has_decoder_and_check(tables: Tables) -> None:
    """Otherwise verify calls a store healthy on which the broker does not start."""
    persistence = tables.persistence
    needed = persistence._tables.keys() - persistence._dispensable
    assert needed == table_decoders().keys()
    assert needed <= config_files._CHECKS.keys()
