"""A demo cluster for the tests of a file, with a console that may change it and one that may not."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from demo_cluster import DemoCluster, demo_cluster

from gantrymq import EmbeddedBroker
from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.client.settings import ClientConfig
from gantrymq.console.cluster.site import cluster_site
from gantrymq.console.security import Access
from gantrymq.console.server import ConsoleServer


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """The broker of the demo cluster. Do not stop it."""
    with EmbeddedBroker(console=True) as running:
        yield running


@pytest.fixture(scope="module")
def demo(broker: EmbeddedBroker) -> Iterator[DemoCluster]:
    with demo_cluster(broker.namesrv, is_large=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def changing_url(demo: DemoCluster) -> Iterator[str]:
    """The address of a console that may change the cluster."""
    loop = LoopThread("console")
    server = ConsoleServer(cluster_site(ClientConfig(demo.namesrv)), Access(allow_changes=True))
    try:
        loop.run(server.start())
        yield server.url
    finally:
        loop.close(server.shutdown())


@pytest.fixture(scope="module")
def page(broker: EmbeddedBroker, demo: DemoCluster) -> Iterator[httpx.Client]:
    """A browser at the read-only console."""
    with httpx.Client(base_url=broker.console, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def changing(changing_url: str) -> Iterator[httpx.Client]:
    """A browser at the console that may change the cluster."""
    with httpx.Client(base_url=changing_url, timeout=30) as client:
        yield client
