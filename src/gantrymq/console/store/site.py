"""The console's site for a store directory: the navigation, and the pages of each family."""

from __future__ import annotations

from pathlib import Path

from gantrymq.console.store.overview import OverviewPages
from gantrymq.console.view import Link, Site

_NAVIGATION = (Link("/", "Overview"),)


def store_site(path: Path) -> Site:
    """The pages for the store at ``path``. Nothing is read before the first request."""
    pages = (OverviewPages(path),)
    routes = [route for family in pages for route in family.routes()]
    return Site(str(path), "store", _NAVIGATION, routes, lambda: None)
