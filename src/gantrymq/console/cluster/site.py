"""The console's site for a live cluster: the navigation, and the pages of each family."""

from __future__ import annotations

from gantrymq.client.settings import ClientConfig
from gantrymq.console.cluster.overview import OverviewPages, Watch
from gantrymq.console.cluster.source import ClusterSource
from gantrymq.console.view import Link, Site

_NAVIGATION = (Link("/", "Overview"),)


def cluster_site(config: ClientConfig) -> Site:
    """The pages for the cluster of ``config``. No server is asked before the first request."""
    source = ClusterSource(config)
    pages = (OverviewPages(Watch(source)),)
    routes = [route for family in pages for route in family.routes()]
    return Site(config.name_servers, "cluster", _NAVIGATION, routes, source.close)
