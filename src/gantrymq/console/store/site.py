"""The console's site for a store directory: the navigation, and the pages of each family."""

from __future__ import annotations

from pathlib import Path

from gantrymq.clock import Clock, SystemClock
from gantrymq.config.properties import read_settings
from gantrymq.config.reading import Reading
from gantrymq.console.page_request import NavigationEntry, Site
from gantrymq.console.store.jobs import JobSlot
from gantrymq.console.store.map import MapPages
from gantrymq.console.store.message import MessagePage
from gantrymq.console.store.messages import StoreMessagePages
from gantrymq.console.store.opened import OpenStore
from gantrymq.console.store.overview import StoreOverviewPages
from gantrymq.console.store.pending import StorePendingPages
from gantrymq.console.store.topics import StoreTopicPages
from gantrymq.console.store.verify import VerifyPages
from gantrymq.console.store.work import PendingResult, VerifyResult, count_pending, verify

_NAVIGATION = (
    NavigationEntry("/", "Overview"),
    NavigationEntry("/topics", "Topics"),
    NavigationEntry("/groups", "Groups"),
    NavigationEntry("/messages", "Messages"),
    NavigationEntry("/dlq", "Dead letters"),
    NavigationEntry("/pending", "Pending"),
    NavigationEntry("/map", "Store map"),
    NavigationEntry("/verify", "Verify"),
)


def store_site(path: Path, reading: Reading | None = None, clock: Clock | None = None) -> Site:
    """The pages for the store at ``path``, with the settings of ``reading``. Nothing is read before the first request.

    Nothing is ever written to the store. ``close`` of the site ends its jobs.
    """
    reading, clock = reading or read_settings({}), clock or SystemClock()
    store = OpenStore(path, reading, clock)
    verifies: JobSlot[VerifyResult] = JobSlot(verify, (path, reading), clock)
    counts: JobSlot[PendingResult] = JobSlot(count_pending, (path, reading), clock)
    pages = (
        StoreOverviewPages(store, verifies),
        StoreTopicPages(store),
        StoreMessagePages(store),
        MessagePage(store),
        StorePendingPages(store, counts),
        MapPages(store, verifies),
        VerifyPages(store, verifies),
    )
    routes = [route for family in pages for route in family.routes()]

    def close() -> None:
        for slot in (verifies, counts):
            slot.cancel()
        store.close()

    return Site(str(path), "store", _NAVIGATION, routes, close)
