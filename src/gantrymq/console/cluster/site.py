"""The console's site for a live cluster: the navigation, and the pages of each family."""

from __future__ import annotations

from gantrymq.client.settings import ClientConfig
from gantrymq.console.cluster.broker_changes import BrokerChangePages
from gantrymq.console.cluster.brokers import BrokerPages
from gantrymq.console.cluster.clients import ClientPages
from gantrymq.console.cluster.delivery import DeliveryPages
from gantrymq.console.cluster.dlq import DeadLetterPages
from gantrymq.console.cluster.dlq_export import DeadLetterExport
from gantrymq.console.cluster.group_changes import GroupChangePages
from gantrymq.console.cluster.groups import GroupPages
from gantrymq.console.cluster.messages import MessagePages
from gantrymq.console.cluster.overview import ClusterWatch, OverviewPages
from gantrymq.console.cluster.pending import PendingPages
from gantrymq.console.cluster.reset import ResetPages
from gantrymq.console.cluster.sending import SendPages
from gantrymq.console.cluster.source import ClusterSource
from gantrymq.console.cluster.topics import TopicPages
from gantrymq.console.page_request import NavigationEntry, Site

_NAVIGATION = (
    NavigationEntry("/", "Overview"),
    NavigationEntry("/brokers", "Brokers", ("/broker-setting", "/broker-tasks")),
    NavigationEntry("/topics", "Topics", ("/delete-topic", "/send")),
    NavigationEntry("/groups", "Groups", ("/reset", "/delete-group")),
    NavigationEntry("/clients", "Clients", ("/consumer",)),
    NavigationEntry("/messages", "Messages", ("/message", "/trace", "/deliver")),
    NavigationEntry("/dlq", "DLQ", ("/resend",)),
    NavigationEntry("/pending", "Pending"),
)


def cluster_site(config: ClientConfig) -> Site:
    """The pages for the cluster of ``config``. No server is asked before the first request."""
    source = ClusterSource(config)
    watch = ClusterWatch(source)
    pages = (
        OverviewPages(watch),
        BrokerPages(source, watch),
        BrokerChangePages(source),
        TopicPages(source),
        SendPages(source),
        GroupPages(source),
        GroupChangePages(source),
        ResetPages(source),
        ClientPages(source),
        MessagePages(source),
        DeliveryPages(source),
        DeadLetterPages(source),
        DeadLetterExport(source),
        PendingPages(source),
    )
    routes = [route for family in pages for route in family.routes()]
    return Site(config.name_servers, "cluster", _NAVIGATION, routes, source.close)
