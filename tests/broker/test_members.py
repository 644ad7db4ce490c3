"""Connected clients: the connection by which a client is reached, and what remains after it has left."""

from __future__ import annotations

from typing import Any

import pytest
from broker_cases import BrokerCase

from gantrymq.broker.sessions.producers import ClientChannel, ProducerManager
from gantrymq.broker.sessions.queue_locks import LOCK_MAX_LIVE_MS, RebalanceLockManager
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.headers.consumer import UnregisterClientRequestHeader


class Connection:
    """As much of a connection as a table of members looks at."""

    address = "127.0.0.1:1"


def beat(manager: ProducerManager, connection: Any, group: str = "P", now_ms: int = 0) -> None:
    manager.register(group, ClientChannel(connection, "c1", 0, 1, now_ms))


def test_client_is_called_over_its_newest_connection() -> None:
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


def test_expired_locks_are_removed() -> None:
    locks, queue = RebalanceLockManager(), MessageQueue("T", "broker-a", 0)
    assert locks.lock("asks for nothing", [], "c1", 0) == []
    assert locks.lock("lets go", [queue], "c1", 0) == [queue]
    locks.unlock("lets go", [queue], "c2")
    assert locks.lock("lets go", [queue], "c2", 1) == []
    locks.unlock("lets go", [queue], "c1")
    assert locks.lock("dies", [queue], "c1", 0) == [queue]
    assert locks.lock("lives", [queue], "c1", LOCK_MAX_LIVE_MS) == [queue]
    locks.expire(LOCK_MAX_LIVE_MS)
    assert list(locks._groups) == ["dies", "lives"]
    locks.expire(LOCK_MAX_LIVE_MS + 1)
    assert list(locks._groups) == ["lives"]


@pytest.mark.asyncio
async def test_closed_group_drops_its_fingerprint(broker: BrokerCase) -> None:
    """Heart-beats of the second form: the broker says whether the group subscribes to something else than before."""

    async def is_other(fingerprint: int, group: str = "G", **of: Any) -> bool:
        answer = await broker.heart_beat(group, heartbeat_fingerprint=fingerprint, **of)
        return answer.ext_fields["IS_SUB_CHANGE"] == "true"

    assert [await is_other(one) for one in (7, 7, 8)] == [False, False, True]
    await broker.ask(UnregisterClientRequestHeader(client_id="c1", consumer_group="G"))
    assert not await is_other(9)
    assert [await is_other(one, "no name for a group") for one in (7, 8)] == [False, False]
    # Whom the broker has forgotten, and who believes that it knows the subscriptions, sends them again.
    assert [await is_other(7, "returned", topics=(), without_sub=one) for one in (True, True)] == [True, False]
