"""The store as the broker's processors use it: reads, reads by offset, and the queue of puts."""

from __future__ import annotations

from dataclasses import dataclass

from gantrymq.broker.appends.put_queue import PutQueue
from gantrymq.broker.reads.stored_records import StoredRecords
from gantrymq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class Storage:
    """An open store. ``records`` reads by physical offset, ``puts`` appends."""

    store: MessageStore
    records: StoredRecords
    puts: PutQueue
