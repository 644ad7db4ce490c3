"""What the tests of SQL share: stores of known messages, and queries in this process."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gantrymq.clock import ManualClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.store.reader import StoreReader
from gantrymq.tables.query.engine import Query
from gantrymq.tables.query.sources import Views
from store_cases import GEOMETRY_KEYS, NOON_MS, SMALL, await_dispatch, odd_message, open_store

Row = dict[str, Any]
HOUR_MS = 3_600_000


def make_store(path: Path, count: int = 400) -> Path:
    """Topic orders in queues 0 and 1, one message an hour, between odd messages of other topics."""
    rng, clock = random.Random(7), ManualClock(NOON_MS)
    with open_store(RealFileSystem(), path, clock=clock) as store:
        for number in range(count):
            tags = "paid" if number % 3 else "open"
            body = b'{"n": %d}' % number if number % 10 else b"\xff\x00"
            keys = [f"k{number}", "all"]
            store.put(Message("orders", body, queue_id=number % 2, tags=tags, keys=keys))
            if number % 4 == 0:
                noise = odd_message(rng)
                noise.topic = "noise"
                store.put(noise)
            clock.advance(HOUR_MS)
        await_dispatch(store)
    return path


def open_views(sources: Sequence[object], config: MessageStoreConfig = SMALL) -> Views:
    def reader(path: Path) -> StoreReader:
        return StoreReader.open(path, config, given=GEOMETRY_KEYS, trusts_writer=True, skips_lost=True)

    def no_client(name_servers: str) -> Any:
        raise AssertionError(name_servers)

    return Views([str(source) for source in sources], reader, no_client)


@contextmanager
def querying(views: Views, text: str) -> Iterator[Query]:
    with closing(Query(views, text)) as query:
        yield query


def rows_of(views: Views, text: str) -> list[Row]:
    """All rows of a query."""
    with querying(views, text) as query:
        return [row for batch in query for row in batch.to_pylist(maps_as_pydicts="lossy")]


def values(views: Views, text: str) -> list[Any]:
    """The rows of a query as tuples, or as values if it has one column."""
    rows = [tuple(row.values()) for row in rows_of(views, text)]
    return [row[0] if len(row) == 1 else row for row in rows]
