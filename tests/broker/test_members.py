"""Who is connected: which of its connections a client is reached by, and what is left of those who went."""

from __future__ import annotations

from typing import Any

from gantrymq.broker.clients import ClientChannel
from gantrymq.broker.producers import ProducerManager


class Connection:
    """As much of a connection as a table of members looks at."""

    address = "127.0.0.1:1"


def beat(manager: ProducerManager, connection: Any, group: str = "P", now_ms: int = 0) -> None:
    manager.register(group, ClientChannel(connection, "c1", 0, 1, now_ms))


def test_a_client_is_reached_by_its_newest_connection() -> None:
    """The old one is dead perhaps, and its end not noticed yet: a reply would be lost."""
    manager = ProducerManager()
    old: Any = Connection()
    new: Any = Connection()
    beat(manager, old)
    beat(manager, old, "another")
    beat(manager, new)
    beat(manager, old, now_ms=1)  # a sign of life makes it no newer
    assert reached(manager) is new
    manager.channel_closed(new)
    assert reached(manager) is old
    manager.unregister("P", old)
    assert reached(manager) is old
    manager.unregister("another", old)
    assert manager.find("c1") is None
    assert not manager.groups


def reached(manager: ProducerManager) -> object:
    client = manager.find("c1")
    assert client is not None
    return client.channel
