"""A log whose records retention has all removed, and whose next file was ready, is a log that goes on there."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import MissingLogError
from gantrymq.model.message import Message
from gantrymq.store.message_store import MessageStore

FILE = 1 << 16
CONFIG = MessageStoreConfig(mapped_file_size_commit_log=FILE, max_hash_slot_num=50, max_index_num=200)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of three files, with a last message in the middle of the third."""
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        for _ in range(60):
            store.put(Message("T", bytes(3_000)))
    return tmp_path / "store"


def leave_empty_file(path: Path, offset: int) -> None:
    for file in (path / "commitlog").iterdir():
        file.unlink()
    (path / "commitlog" / f"{offset:020d}").write_bytes(bytes(FILE))


def test_store_with_an_empty_next_file_alone_opens_and_continues(path: Path) -> None:
    leave_empty_file(path, 3 * FILE)
    with MessageStore.open(path, CONFIG) as store:
        assert store.max_phy_offset == 3 * FILE
        assert store.put(Message("T", b"next")).queue_offset == 60


def test_store_whose_last_records_read_as_zeros_is_refused(path: Path) -> None:
    leave_empty_file(path, 2 * FILE)
    with pytest.raises(MissingLogError, match="holds only zeros"):
        MessageStore.open(path, CONFIG)
