"""The store as the broker uses it, where the disk does not do its part."""

from unittest import mock

import pytest

from gantrymq.broker import message_store
from gantrymq.broker.message_store import BrokerMessageStore
from gantrymq.errors import StoreBehindError
from gantrymq.model.message import Message
from gated_file_system import GatedFileSystem
from store_cases import BARE, GEOMETRY_KEYS, ROOT, await_dispatch


def test_no_queue_goes_while_what_was_put_is_not_in_it() -> None:
    """Else it would come back with its old units, and the next message would be given an offset that is taken."""
    fs = GatedFileSystem("write_at", "consumequeue")
    opened = BrokerMessageStore.open(ROOT, BARE, given=GEOMETRY_KEYS, fs=fs, housekeeping=False)
    with opened as store, mock.patch.object(message_store, "_CATCH_UP_S", 0.05):
        assert isinstance(store, BrokerMessageStore)
        with fs.shut():
            store.put(Message("orders", b"x"))
            with pytest.raises(StoreBehindError, match="try again"):
                store.delete_topic("orders")
            assert store.put(Message("orders", b"y")).queue_offset == 1
        await_dispatch(store)
        assert store.delete_topic("orders") == 1
        assert store.put(Message("orders", b"z")).queue_offset == 0
